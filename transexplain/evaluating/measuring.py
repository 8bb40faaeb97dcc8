"""From a metric's result to the record that is stored."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.evaluation_bench import Evaluation, MethodBench
from transexplain.evaluating.metrics import bound_metric, curve_of, metric_facts
from transexplain.evaluating.metrics.marked_regions import oracle
from transexplain.evaluating.metrics.measured_case import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.perturbation_curves import (
    PerturbationCurve,
    probabilities,
    too_small,
)
from transexplain.evaluating.perturbed_logits import PerturbedLogits
from transexplain.explaining import Stopped
from transexplain.methods.presence import Baseline, Over
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, PatchGrid
from transexplain.types.observer import Observer
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
    asked: list[list[Masks]] = [[] for _ in questions.encoded]
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
            begin = sum(map(len, asked[row]))
            asked[row].append(masks)
            wanted.append((entry, spec.label, curve, slice(begin, begin + len(masks))))
    joined = [np.concatenate(masks) if masks else None for masks in asked]
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
    relevance = np.asarray(case.attribution.relevance, dtype=np.float64)
    if isinstance(case.attribution.features, PatchGrid):
        return relevance.reshape(-1)  # every patch is a feature
    held = owner >= 0
    count = int(owner.max(initial=-1)) + 1
    found = np.bincount(owner[held], weights=relevance[held], minlength=count)
    return np.asarray(found, dtype=np.float64)


def _answers(
    questions: PerturbedLogits, masks: Sequence[Masks | None], baseline: Baseline, over: Over
) -> list[Array | str]:
    """The logits (N, C) of every item, or why it has none; one bad item costs itself only."""
    try:
        return list(questions.ask(masks, baseline, over))
    except (ConfigurationError, EngineError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason of the item's scores
        asked = [row for row, mask in enumerate(masks) if mask is not None]
        if len(asked) == 1:
            reason = f"{type(error).__name__}: {error}"
            return [reason for _ in masks]
        middle = asked[len(asked) // 2]
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
    """What people marked as if it were an explanation, once for each item and target."""
    first = {(row, case.attribution.target): case for row, _, case in reversed(entries)}
    for (row, _), case in sorted(first.items()):
        marked = None if case.item.evidence is None else oracle(case)
        if marked is not None:
            shown = Case(item=case.item, attribution=marked, logits=case.logits, seconds=0.0)
            yield row, ORACLE, shown
