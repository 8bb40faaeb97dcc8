"""Explains items by several methods, and scores every explanation by several metrics."""

import dataclasses
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transexplain.errors import ConfigurationError
from transexplain.evaluating.curve_scores import (
    Entry,
    PerturbedLogits,
    curve_scores,
    not_scored,
    score_of,
)
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat, MethodBench
from transexplain.evaluating.metrics import bound_metric, metric_facts
from transexplain.evaluating.metrics.metric_table import Array, Case, Scored, unmeasured
from transexplain.evaluating.metrics.perturbation_curves import probabilities
from transexplain.evaluating.metrics.rationale import oracle
from transexplain.explaining import Explained, Stopped
from transexplain.explaining.batch_sizes import give_back, is_out_of_memory
from transexplain.explaining.explain_request import Member, finished, model_failure, portions
from transexplain.explaining.long_texts import redrawn_in_windows
from transexplain.methods.random import redrawn
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Item, ItemFailure, ItemOutcome
from transexplain.types.observer import Observer
from transexplain.types.plans import Modality
from transexplain.types.scores import (
    ORACLE,
    PREDICTION,
    EvaluatedMethod,
    MetricScore,
    MetricSpec,
    joined_draws,
)


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
            mine = [row for row in sure if method in self._methods_of(row)]
            first = yield from self._of_draw(method, 0, mine)
            entries += first
            for draw in range(1, method.draws):
                entries += yield from self._of_draw(method, draw, mine, first)
        yield from self._of_predictions(sure)
        marked = list(_oracles(entries))
        yield from self._of_maps(ORACLE, [case for _, _, case in marked], of_content=True)
        yield from curve_scores(
            self._specs("curve"), self.questions, [*entries, *marked], self.evaluation.measures
        )

    def _of_draw(
        self, method: EvaluatedMethod, draw: int, rows: Sequence[int], first: Sequence[Entry] = ()
    ) -> Generator[MetricScore, None, list[Entry]]:
        """Yield the scores that need no curve; return what curves are drawn of.

        What does not depend on where the relevance lies is measured on the first draw alone, and
        so is what explains again. A later draw takes all but its relevance from the `first`, so
        that no model is run for it.
        """
        bench = MethodBench(
            model=self.model,
            method=method.drawn(draw),
            request=self.evaluation.request,
            observer=self.observer,
        )
        known = {row for row, _, _ in first}
        if draw == 0 and rows and self._timed():
            bench.warm_up(self._item(rows[0]))
        explained = yield from self._explained(bench, [row for row in rows if row not in known])
        seed = bench.method.method.params.get("seed", 0)
        explained += [(row, self._redrawn(row, case, seed)) for row, _, case in first]
        cases = [case for _, case in explained]
        yield from self._of_maps(method.label, cases, of_content=draw > 0)
        if draw == 0:
            yield from self._of_models(bench, cases)
        return [(row, method.label, case) for row, case in explained]

    def _redrawn(self, row: int, case: Case, seed: int) -> Case:
        """The case of random relevance with another draw."""
        encoded, attribution = self.encoded[row], case.attribution
        if encoded.windows:
            made = redrawn_in_windows(
                attribution, encoded, self.evaluation.request.long_text_join, seed
            )
        else:
            made = redrawn(attribution, seed)
        return dataclasses.replace(case, attribution=made)

    def _of_predictions(self, rows: Sequence[int]) -> Iterator[MetricScore]:
        """The seconds of a prediction alone, beside the methods."""
        specs = self._timed()
        if not specs or not rows:
            return
        seconds = self.questions.seconds(self.evaluation.request.batch_tokens)
        for row in rows:
            item = self._item(row)
            for target in self.evaluation.request.targets:
                for spec in specs:
                    if self.evaluation.measures(spec, item.index):
                        yield MetricScore(
                            item_id=item.id,
                            method=PREDICTION,
                            target=target.spec,
                            metric=spec.label,
                            value=seconds[row],
                        )

    def _timed(self) -> list[MetricSpec]:
        return [
            metric for metric in self.evaluation.plan.metrics if metric_facts(metric.name).timed
        ]

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
        return [
            metric
            for metric in self.evaluation.plan.metrics
            if metric_facts(metric.name).kind == kind
        ]

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
            item = self._item(row)
            (label,) = self.evaluation.request.classes_of(item) or (None,)
            cases += [
                (
                    row,
                    Case(
                        item=item,
                        attribution=attribution,
                        logits=whole[row],
                        seconds=seconds,
                        label=label,
                    ),
                )
                for attribution in attributions
            ]
        return cases

    def _of_maps(
        self, label: str, cases: Sequence[Case], *, of_content: bool = False
    ) -> Iterator[MetricScore]:
        """`of_content`: only by metrics that say something of where the relevance lies."""
        for spec in self._specs("map"):
            if of_content and not metric_facts(spec.name).of_oracle:
                continue
            measure = bound_metric(spec)
            for case in self._measured(spec, cases):
                yield score_of(label, spec.label, case, _of_map(spec, measure, case))

    def _of_models(self, bench: MethodBench, cases: Sequence[Case]) -> Iterator[MetricScore]:
        for spec in self._specs("model"):
            some = self._measured(spec, cases)
            scores = bound_metric(spec)(bench, some) if some else []
            for case, scored in zip(some, scores, strict=True):
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
            shown = dataclasses.replace(case, attribution=marked, seconds=0.0)
            yield row, ORACLE, shown


#: items that are measured together: their perturbed inputs fill many passes
TOGETHER: Mapping[Modality, int] = {"text": 64, "image": 32, "nodes": 32}


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedItem:
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
) -> Iterator[EvaluatedItem]:
    """Measure the explanations of items; results come in the order of the items.

    The items `alone` (ids) are measured each by itself.

    Raises:
        Stopped: the observer requested a stop.
        EngineError: the model has an operator without a rule.
        ConfigurationError: a method, a metric or a baseline does not fit the model.
    """
    for given in portions(items, TOGETHER[model.modality], alone):
        yield from _ItemGroup(model, evaluation, observer).evaluate(given)


class _ItemGroup:
    """Some items that are measured together."""

    def __init__(self, model: LoadedModel, evaluation: Evaluation, observer: Observer) -> None:
        self.model, self.evaluation, self.observer = model, evaluation, observer
        self.request = evaluation.request
        self.specs = evaluation.plan.metrics

    def evaluate(self, given: Sequence[Item | ItemFailure]) -> Iterator[EvaluatedItem]:
        """One end for each, in order."""
        items = [entry for entry in given if isinstance(entry, Item)]
        encoded = iter(self.request.encode(self.model, items))
        ready = [next(encoded) if isinstance(entry, Item) else entry for entry in given]
        whole = [case for case in ready if not isinstance(case, ItemFailure)]
        ends = iter(self._measured(whole)) if whole else iter(())
        for case in ready:
            end = EvaluatedItem(failure=case) if isinstance(case, ItemFailure) else next(ends)
            self.observer.item_done(case.item_id if isinstance(case, ItemFailure) else case.item.id)
            yield end

    def _measured(self, encoded: Sequence[Encoded]) -> Sequence[EvaluatedItem]:
        self._check_stop()
        self.observer.batch_started([entry.item.id for entry in encoded])
        questions = self._questions(encoded)
        if isinstance(questions, tuple):
            if len(encoded) == 1:
                failed = model_failure(encoded[0].item, *questions)
                return [EvaluatedItem(failure=failed.failure)]
            return [end for entry in encoded for end in self._measured([entry])]
        outcomes = [
            self._outcome(entry, logits)
            for entry, logits in zip(encoded, questions.whole, strict=True)
        ]
        usable = [row for row, end in enumerate(outcomes) if end.failure is None]
        scores: dict[str, list[MetricScore]] = {entry.item.id: [] for entry in encoded}
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
            EvaluatedItem(
                outcome=end.outcome,
                failure=end.failure,
                scores=() if end.failure else joined_draws(scores[entry.item.id]),
            )
            for entry, end in zip(encoded, outcomes, strict=True)
        ]

    def _questions(self, encoded: Sequence[Encoded]) -> PerturbedLogits | tuple[Exception, str]:
        """The answers, or the error without its frames, and its traceback."""
        try:
            return PerturbedLogits.of(
                self.model, encoded, self.request.long_text_join, lambda: self._beat(encoded)
            )
        except (ConfigurationError, Stopped):
            raise
        except Exception as error:  # noqa: BLE001 - becomes the item's error row
            trace = traceback_of(error)
            failed = error.with_traceback(None)  # its frames hold the tensors
        if is_out_of_memory(failed):
            give_back(self.model)
        return failed, trace

    def _beat(self, encoded: Sequence[Encoded]) -> None:
        self._check_stop()
        self.observer.check_started([entry.item.id for entry in encoded])

    def _check_stop(self) -> None:
        if self.observer.should_stop():
            raise Stopped

    def _outcome(self, encoded: Encoded, logits: Array) -> Explained:
        labels = self.request.classes_of(encoded.item)
        return finished(self.request, Member(0, encoded, labels), logits, ())
