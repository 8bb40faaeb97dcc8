"""The plan of an evaluation, and the bench on which metrics explain an item again."""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Case
from transexplain.explaining import Request, explain_items
from transexplain.explaining.item_loop import explain_again
from transexplain.models.loaded_model import LoadedModel
from transexplain.randomness import row_places
from transexplain.types.items import Attribution, Item
from transexplain.types.observer import Observer
from transexplain.types.plans import AuditPlan, Head
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MetricSpec
from transexplain.types.targets import ClassNames

#: of these targets every item has exactly one class
TARGETS = ("predicted", "label", "class")


_HEADS: dict[Head, str] = {
    "labels": "may give an item several labels",
    "tokens": "labels tokens",
    "span": "answers questions",
    "answer": "generates its answers",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What to measure and how, whatever the items.

    Raises ConfigurationError where a target is not one class of every item.
    """

    request: Request  #: targets, long texts; its method is replaced by each of the plan's
    plan: EvaluationPlan
    rows: int  #: of the dataset
    _places: NDArray[np.intp] | None = field(init=False, repr=False)  #: None: all rows are measured

    def __post_init__(self) -> None:
        """Check before anything is computed."""
        if self.request.head != "classes":
            raise ConfigurationError(
                f"explanations of a model that {_HEADS[self.request.head]} are not evaluated: the "
                "metrics measure the probability of one class against all others"
            )
        for target in self.request.targets:
            if target.kind not in TARGETS:
                raise ConfigurationError(
                    f"target {target.spec!r} cannot be evaluated: the explanations of one class an "
                    f"item are compared; use one of {', '.join(TARGETS)}"
                )
        plan = self.plan
        limits = [plan.items, *(method.items for method in plan.methods)]
        limits += [metric.items for metric in plan.metrics]
        limited = any(limit is not None for limit in limits)
        drawn = row_places(self.rows, self.plan.seed) if limited else None
        object.__setattr__(self, "_places", drawn)

    @classmethod
    def from_plan(cls, plan: AuditPlan) -> "Evaluation":
        """The evaluation of a plan that has one; raises ConfigurationError, TargetError."""
        assert plan.evaluation is not None
        targets = replace(plan, targets=plan.evaluation.targets)
        return cls(request=Request.from_plan(targets), plan=plan.evaluation, rows=plan.dataset.rows)

    def wants(self, row: int) -> bool:
        """Return whether an item is in the sample."""
        return self._is_drawn(row, self.plan.items)

    def measures(self, part: EvaluatedMethod | MetricSpec, row: int) -> bool:
        """Return whether a method is measured, or a metric computed, on an item of the sample."""
        return self._is_drawn(row, part.items)

    def _is_drawn(self, row: int, count: int | None) -> bool:
        return count is None or self._places is None or bool(self._places[row] < count)


class Heartbeat:
    """An observer for passes that finish no item: it reports progress and stop requests."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """Progress of a check."""
        self.observer.check_started(item_ids)

    def check_started(self, item_ids: Sequence[str]) -> None:
        """Progress of a check within another."""
        self.observer.check_started(item_ids)

    def item_done(self, *item_ids: str) -> None:
        """Nothing: the item is done when everything about it is measured."""

    def should_stop(self) -> bool:
        """Return whether the observer requests a stop."""
        return self.observer.should_stop()


class Stopwatch(Heartbeat):
    """A heartbeat that notes how long each batch took, in equal shares of its items."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self.seconds: dict[str, float] = defaultdict(float)  #: by item
        self._batch: Sequence[str] = ()
        self._begun = 0.0

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """A batch begins, and the one before has ended."""
        self._end()
        super().batch_started(item_ids)
        self._batch, self._begun = item_ids, time.perf_counter()

    def item_done(self, *item_ids: str) -> None:
        """An item of the batch is done, so the whole batch is."""
        self._end()

    def _end(self) -> None:
        if not self._batch:
            return
        share = (time.perf_counter() - self._begun) / len(self._batch)
        for name in self._batch:
            self.seconds[name] += share
        self._batch = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MethodBench:
    """One method on one model, for metrics that explain again; a `metric_table.Bench`."""

    model: LoadedModel
    method: EvaluatedMethod
    request: Request
    observer: Observer

    def warm_up(self, item: Item) -> None:
        """Explain one item, unless this method has run on the model: the first pass is slower.

        It imports the method and sets up what later passes find.
        """
        warm: set[str] = self.model.steps.setdefault("warm", set())
        name = self.method.method.name
        if name not in warm:
            list(self.explain([item]))
            warm.add(name)

    def explain(
        self, items: Sequence[Item]
    ) -> Iterator[tuple[tuple[Attribution, ...] | str, float]]:
        """The attributions of every item for all targets, or why not; and its seconds."""
        request = dataclasses.replace(self.request, method=self.method.method)
        watch = Stopwatch(self.observer)
        for item, explained in zip(
            items, list(explain_items(self.model, items, request, observer=watch)), strict=True
        ):
            failure = explained.failure
            result = explained.attributions if failure is None else failure.message
            yield result, watch.seconds[item.id]

    def again(
        self,
        cases: Sequence[Case],
        *,
        classes: Sequence[int] | None = None,
        items: Sequence[Item] | None = None,
        model: LoadedModel | None = None,
    ) -> list[Attribution | str]:
        """Explain the cases' items again by the same method; see `metric_table.Bench`."""
        model = model or self.model
        indices = [case.attribution.class_index for case in cases] if classes is None else classes
        given = [case.item for case in cases] if items is None else items
        named = [
            dataclasses.replace(item, label=model.classes[index])
            for item, index in zip(given, indices, strict=True)
            if index is not None
        ]
        names = ClassNames(model.classes)
        request = dataclasses.replace(
            self.request,
            method=self.method.method,
            names=names,
            labels={},
        )
        # the class as the item's label: items of different classes then share batches
        wanted = [(item, ("label",)) for item in named]
        try:
            done = explain_again(model, request, wanted, observer=self.observer)
        except ConfigurationError as error:
            if model is self.model:
                raise
            return [str(error)] * len(named)  # the method is made for one model, and this is none
        return [end.attributions[0] if end.failure is None else end.failure.message for end in done]
