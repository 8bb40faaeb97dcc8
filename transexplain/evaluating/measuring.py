"""Every method and every metric on some items."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from transexplain.evaluating.asking import Questions
from transexplain.evaluating.bench import MethodBench
from transexplain.evaluating.curves import Entry, curve_scores
from transexplain.evaluating.records import not_scored, score_of
from transexplain.evaluating.request import Evaluation
from transexplain.evaluations import ORACLE, EvaluatedMethod, MetricScore, MetricSpec
from transexplain.metrics import bound_metric, metric_facts
from transexplain.metrics.case import Case, Scored, unmeasured
from transexplain.metrics.curves import probabilities
from transexplain.metrics.evidence import oracle
from transexplain.models.base import Encoded, LoadedModel
from transexplain.supervision import Observer
from transexplain.types import Item


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measuring:
    """Some items that are measured together, and their perturbed logits."""

    model: LoadedModel
    evaluation: Evaluation
    observer: Observer
    encoded: Sequence[Encoded]
    questions: Questions

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
