"""Explains items by several methods, and scores every explanation by several metrics."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat, MethodBench
from transexplain.evaluating.metrics import bound_metric, curve_of, metric_facts
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.perturbation_curves import (
    PerturbationCurve,
    probabilities,
    too_small,
)
from transexplain.evaluating.metrics.rationale_regions import oracle
from transexplain.evaluating.perturbed_logits import PerturbedLogits
from transexplain.explaining import Explained, Stopped
from transexplain.explaining.batch_sizes import give_back, is_out_of_memory
from transexplain.explaining.explain_request import Member, finished, model_failure
from transexplain.explaining.portions import portions
from transexplain.methods.presence import Baseline, Over
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ItemFailure, ItemOutcome, PatchGrid
from transexplain.types.observer import Observer
from transexplain.types.plans import Modality
from transexplain.types.scores import ORACLE, EvaluatedMethod, MetricScore, MetricSpec


def score_of(label: str, metric: str, case: Case, scored: Scored) -> MetricScore:
    """The record of an explanation's score by `metric`; `label` names the method."""
    return MetricScore(
        item_id=case.item.id,
        method=label,
        target=case.attribution.target,
        metric=metric,
        value=scored.value,
        curve=scored.curve,
        reason=scored.reason,
        detail=scored.detail,
    )


def not_scored(item_id: str, label: str, target: str, metric: str, reason: str) -> MetricScore:
    """The record of an explanation that is not there."""
    return MetricScore(
        item_id=item_id, method=label, target=target, metric=metric, value=None, reason=reason
    )


#: number of the item, label of the method, explanation
Entry = tuple[int, str, Case]


def curve_scores(
    specs: Sequence[MetricSpec],
    questions: PerturbedLogits,
    entries: Sequence[Entry],
    measures: Callable[[MetricSpec, int], bool],
) -> Iterator[MetricScore]:
    """The scores of every explanation by the metrics `specs`, all of kind `curve`.

    All curves over one baseline are run together, whatever methods and metrics the masks of an
    item come from. `measures` gives whether a metric is computed on an item
    of the dataset.
    """
    curves = [(spec, curve_of(spec)) for spec in specs]
    for place in dict.fromkeys((curve.baseline, curve.over) for _, curve in curves):
        some = [(spec, one) for spec, one in curves if (one.baseline, one.over) == place]
        wanted = [
            (entry, [pair for pair in some if measures(pair[0], entry[2].item.index)])
            for entry in entries
        ]
        yield from _of_place(wanted, questions, *place)


def _of_place(
    given: Sequence[tuple[Entry, Sequence[tuple[MetricSpec, PerturbationCurve]]]],
    questions: PerturbedLogits,
    baseline: Baseline,
    over: Over,
) -> Iterator[MetricScore]:
    owners = questions.features(over)
    requested: list[list[Masks]] = [[] for _ in questions.encoded]
    wanted: list[tuple[Entry, str, PerturbationCurve, slice]] = []
    for entry, curves in given:
        row, label, case = entry
        weights = feature_weights(case, owners[row])
        small = too_small(len(weights))
        for spec, curve in curves:
            if small is not None:
                yield score_of(label, spec.label, case, small)
                continue
            masks = curve.masks(weights)
            begin = sum(map(len, requested[row]))
            requested[row].append(masks)
            wanted.append((entry, spec.label, curve, slice(begin, begin + len(masks))))
    joined = [np.concatenate(masks) if masks else None for masks in requested]
    answers = _answers(questions, joined, baseline, over)
    for (row, label, case), name, curve, part in wanted:
        found = answers[row]
        index = case.attribution.class_index
        assert index is not None
        scored = (
            unmeasured(found)
            if isinstance(found, str)
            else curve.score(case.logits, found[part], index)
        )
        yield score_of(label, name, case, scored)


def feature_weights(case: Case, owner: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Array:
    """(F,) the relevance of every feature: the sum over its positions."""
    if isinstance(case.attribution.features, PatchGrid):
        return case.relevance  # every patch is a feature
    count = int(owner.max(initial=-1)) + 1
    found = np.bincount(owner[owner >= 0], weights=case.relevance, minlength=count)
    return np.asarray(found, dtype=np.float64)


def _answers(
    questions: PerturbedLogits, masks: Sequence[Masks | None], baseline: Baseline, over: Over
) -> list[Array | str]:
    """The logits (N, C) of every item, or why it has none; a bad item affects no other."""
    try:
        return list(questions.ask(masks, baseline, over))
    except (ConfigurationError, EngineError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason of the item's scores
        requested = [row for row, mask in enumerate(masks) if mask is not None]
        if len(requested) == 1:
            reason = f"{type(error).__name__}: {error}"
            return [reason for _ in masks]
        middle = requested[len(requested) // 2]
        first = [mask if row < middle else None for row, mask in enumerate(masks)]
        second = [mask if row >= middle else None for row, mask in enumerate(masks)]
        left = _answers(questions, first, baseline, over)
        right = _answers(questions, second, baseline, over)
        return [*left[:middle], *right[middle:]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measuring:
    """Some items that are measured together, and their perturbed logits."""

    model: LoadedModel
    evaluation: Evaluation
    observer: Observer
    encoded: Sequence[Encoded]
    questions: PerturbedLogits

    def scores(self, rows: Sequence[int]) -> Iterator[MetricScore]:
        """The score of every metric for every method's explanations of the items `rows`."""
        sure = [row for row in rows if self._is_sure(row)]
        for row in set(rows) - set(sure):
            reason = "the model is not sure enough of its prediction"
            for method in self._methods_of(row):
                yield from self._missing(self._item(row), method.label, reason)
        entries: list[Entry] = []
        for method in self.evaluation.plan.methods:
            bench = MethodBench(
                model=self.model,
                method=method,
                request=self.evaluation.request,
                observer=self.observer,
            )
            mine = [row for row in sure if method in self._methods_of(row)]
            cases = yield from self._explained(bench, mine)
            entries += [(row, method.label, case) for row, case in cases]
            yield from self._of_maps(method.label, [case for _, case in cases])
            yield from self._of_models(bench, [case for _, case in cases])
        marked = list(_oracles(entries))
        yield from self._of_maps(ORACLE, [case for _, _, case in marked])
        yield from curve_scores(
            self._specs("curve"), self.questions, [*entries, *marked], self.evaluation.measures
        )

    def _is_sure(self, row: int) -> bool:
        logits = self.questions.whole[row]
        return bool(probabilities(logits[None]).max() > self.evaluation.plan.confidence)

    def _item(self, row: int) -> Item:
        return self.encoded[row].item

    def _methods_of(self, row: int) -> list[EvaluatedMethod]:
        index = self._item(row).index
        plan = self.evaluation.plan
        return [method for method in plan.methods if self.evaluation.measures(method, index)]

    def _specs(self, kind: str) -> list[MetricSpec]:
        return [one for one in self.evaluation.plan.metrics if metric_facts(one.name).kind == kind]

    def _explained(
        self, bench: MethodBench, rows: Sequence[int]
    ) -> Generator[MetricScore, None, list[tuple[int, Case]]]:
        """Yield what cannot be scored; return (row, Case) of every explanation."""
        cases: list[tuple[int, Case]] = []
        whole = self.questions.whole
        explained = bench.explain([self._item(row) for row in rows])
        for row, (attributions, seconds) in zip(rows, explained, strict=True):
            if isinstance(attributions, str):
                yield from self._missing(self._item(row), bench.method.label, attributions)
                continue
            cases += [
                (
                    row,
                    Case(item=self._item(row), attribution=one, logits=whole[row], seconds=seconds),
                )
                for one in attributions
            ]
        return cases

    def _of_maps(self, label: str, cases: Sequence[Case]) -> Iterator[MetricScore]:
        for spec in self._specs("map"):
            if label == ORACLE and not metric_facts(spec.name).of_oracle:
                continue
            measure = bound_metric(spec)
            for case in self._measured(spec, cases):
                yield score_of(label, spec.label, case, _of_map(spec, measure, case))

    def _of_models(self, bench: MethodBench, cases: Sequence[Case]) -> Iterator[MetricScore]:
        for spec in self._specs("model"):
            some = self._measured(spec, cases)
            found = bound_metric(spec)(bench, some) if some else []
            for case, scored in zip(some, found, strict=True):
                yield score_of(bench.method.label, spec.label, case, scored)

    def _measured(self, spec: MetricSpec, cases: Sequence[Case]) -> list[Case]:
        """The cases that a metric with a limit of items is computed on."""
        return [case for case in cases if self.evaluation.measures(spec, case.item.index)]

    def _missing(self, item: Item, label: str, reason: str) -> Iterator[MetricScore]:
        for target in self.evaluation.request.targets:
            for spec in self.evaluation.plan.metrics:
                if self.evaluation.measures(spec, item.index):
                    yield not_scored(item.id, label, target.spec, spec.label, reason)


def _of_map(spec: MetricSpec, measure: Callable[[Case], Scored], case: Case) -> Scored:
    if metric_facts(spec.name).needs_evidence and case.item.evidence is None:
        return unmeasured("no evidence is marked in the item")
    return measure(case)


def _oracles(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The human rationale as an explanation, once for each item and target."""
    first = {(row, case.attribution.target): case for row, _, case in reversed(entries)}
    for (row, _), case in sorted(first.items()):
        marked = None if case.item.evidence is None else oracle(case)
        if marked is not None:
            shown = Case(item=case.item, attribution=marked, logits=case.logits, seconds=0.0)
            yield row, ORACLE, shown


#: items that are measured together: their perturbed inputs fill many passes
TOGETHER: Mapping[Modality, int] = {"text": 64, "image": 32, "nodes": 32}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """One item's end: its outcome and what was measured, or its failure."""

    outcome: ItemOutcome | None = None
    scores: tuple[MetricScore, ...] = ()
    failure: ItemFailure | None = None


def evaluate_items(
    model: LoadedModel,
    items: Iterable[Item | ItemFailure],
    evaluation: Evaluation,
    *,
    observer: Observer,
    alone: Collection[str] = (),
) -> Iterator[Evaluated]:
    """Measure the explanations of items; results come in the order of the items.

    The items `alone` (ids) are measured each by itself.

    Raises:
        Stopped: the observer requested a stop.
        EngineError: the model has an operator without a rule.
        ConfigurationError: a method, a metric or a baseline does not fit the model.
    """
    for given in portions(items, TOGETHER[model.modality], alone):
        yield from _Group(model, evaluation, observer).evaluate(given)


class _Group:
    """Some items that are measured together."""

    def __init__(self, model: LoadedModel, evaluation: Evaluation, observer: Observer) -> None:
        self.model, self.evaluation, self.observer = model, evaluation, observer
        self.request = evaluation.request
        self.specs = evaluation.plan.metrics

    def evaluate(self, given: Sequence[Item | ItemFailure]) -> Iterator[Evaluated]:
        """One end for each, in order."""
        items = [entry for entry in given if isinstance(entry, Item)]
        encoded = iter(self.request.encode(self.model, items))
        ready = [next(encoded) if isinstance(entry, Item) else entry for entry in given]
        whole = [one for one in ready if not isinstance(one, ItemFailure)]
        ends = iter(self._measured(whole)) if whole else iter(())
        for one in ready:
            end = Evaluated(failure=one) if isinstance(one, ItemFailure) else next(ends)
            self.observer.item_done(one.item_id if isinstance(one, ItemFailure) else one.item.id)
            yield end

    def _measured(self, encoded: Sequence[Encoded]) -> Sequence[Evaluated]:
        self._check_stop()
        self.observer.batch_started([one.item.id for one in encoded])
        questions = self._questions(encoded)
        if isinstance(questions, Exception):
            if len(encoded) == 1:
                failed = model_failure(encoded[0].item, questions)
                return [Evaluated(failure=failed.failure)]
            return [end for one in encoded for end in self._measured([one])]
        outcomes = [
            self._outcome(one, logits) for one, logits in zip(encoded, questions.whole, strict=True)
        ]
        usable = [row for row, end in enumerate(outcomes) if end.failure is None]
        scores: dict[str, list[MetricScore]] = {one.item.id: [] for one in encoded}
        measuring = Measuring(
            model=self.model,
            evaluation=self.evaluation,
            observer=Heartbeat(self.observer),
            encoded=encoded,
            questions=questions,
        )
        for score in measuring.scores(usable):
            scores[score.item_id].append(score)
        return [
            Evaluated(
                outcome=end.outcome,
                failure=end.failure,
                scores=() if end.failure else tuple(scores[one.item.id]),
            )
            for one, end in zip(encoded, outcomes, strict=True)
        ]

    def _questions(self, encoded: Sequence[Encoded]) -> PerturbedLogits | Exception:
        try:
            return PerturbedLogits.of(
                self.model, encoded, self.request.long_text_join, lambda: self._beat(encoded)
            )
        except (ConfigurationError, Stopped):
            raise
        except Exception as error:  # noqa: BLE001 - becomes the item's error row
            failed = error.with_traceback(None)  # its frames hold the tensors
        if is_out_of_memory(failed):
            give_back(self.model)
        return failed

    def _beat(self, encoded: Sequence[Encoded]) -> None:
        self._check_stop()
        self.observer.check_started([one.item.id for one in encoded])

    def _check_stop(self) -> None:
        if self.observer.should_stop():
            raise Stopped

    def _outcome(self, encoded: Encoded, logits: Array) -> Explained:
        label = self.request.class_of(encoded.item)
        return finished(self.model, Member(0, encoded, label), logits, ())
