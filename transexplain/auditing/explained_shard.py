"""Computes one shard: from items to attributions, aggregates and control results; no queue,
no SQL.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from transexplain.analysis.groups.entity_finder import TOGETHER
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate
from transexplain.auditing.shard_mentions import MentionCounter
from transexplain.data.shard_reader import read_shard
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat
from transexplain.evaluating.metrics.map_metrics import sensitivity_between
from transexplain.explaining import Explained, Request, Stopped, explain_items
from transexplain.explaining.explain_request import screened
from transexplain.explaining.staged_items import StagedItems
from transexplain.interpreter import few_collections
from transexplain.methods.at_input_layer import steps_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.store.exact_sums import LARGEST
from transexplain.types.items import Attribution, Item, ItemFailure, ItemOutcome, Mention
from transexplain.types.observer import NO_CAUTION, Caution, Observer
from transexplain.types.plans import AT_POSITIONS, AuditPlan, Shard, ShardResult
from transexplain.types.scores import MetricScore
from transexplain.types.targets import parse_target

if TYPE_CHECKING:
    from transexplain.auditing.shard_controls import ExactMethodCheck, ShardControls
    from transexplain.data.attribution_files import GivenItem

#: items of every shard that class sensitivity is measured on
SENSITIVITY_SAMPLE = 2

#: items of a shard that are read (and encoded, for an audit) already
Given = Iterable[Item | ItemFailure | Encoded] | None
#: what makes the result of a shard whose last batch is over
Unfinished = Callable[[], ShardResult]


class StagedShard:
    """Explains every item of a shard, in stages, and measures those of the samples.

    The device can compute one shard while others are prepared or finished: call `prepare` where
    there is time, in any thread, then `compute` once, in the device's; what that returns makes the
    result, in any thread. Call `close` where it comes to no `compute`. All of them raise Stopped
    where the observer requested a stop, EngineError where the model has an operator without a rule.
    """

    def __init__(
        self,
        plan: AuditPlan,
        shard: Shard,
        model: LoadedModel,
        *,
        caution: Caution = NO_CAUTION,
        items: Given = None,
    ) -> None:
        """`caution` names items that share no batch, and those that are not run at all.

        `items` are those of the shard, where they were read ahead.
        """
        self._shard, self._model, self._caution = shard, model, caution
        self._request, self._gathered = Request.from_plan(plan), _Gathered(plan, model)
        read = _given(plan, shard, items, caution)
        self._items = StagedItems(
            model, read, self._request, caution.alone, keep=SENSITIVITY_SAMPLE
        )
        self.prepare, self.close = self._items.prepare, self._items.close

    def compute(self, observer: Observer) -> Unfinished:
        """The device's part; raises Stopped where the observer requested a stop."""
        begun = time.perf_counter()
        model, gathered, caution = self._model, self._gathered, self._caution
        with few_collections():
            taken = self._items.run(gathered.add, observer=observer, early=gathered.draw)
            sample = [self._items.first.get(item.id, item) for item in gathered.drawn]
            sensitivities = _sensitivities(model, sample, self._request, observer, caution)
            if gathered.is_measured_again:
                taken()
            controls = gathered.controls(Heartbeat(observer), caution.alone)
            scores = tuple(_scores(model, gathered, observer, caution))
        seconds, steps = time.perf_counter() - begun, steps_of(model).ran()

        def finished() -> ShardResult:
            with few_collections():
                taken()
                for value in sensitivities:
                    gathered.aggregate.add_sensitivity(value)
                gathered.aggregate.checked.merge(controls)
                result = gathered.result(self._shard, seconds)
            return replace(result, scores=scores, steps=steps)

        return finished


_COUNTED_TOGETHER = 1024  #: items


class _Gathered:
    """The records of a shard's items, and their totals."""

    def __init__(self, plan: AuditPlan, model: LoadedModel | None) -> None:
        """`model`: None where attributions are there already."""
        self.aggregate = ShardAggregate() if model is None else ShardAggregate.of(plan)
        self.outcomes: list[ItemOutcome] = []
        self.attributions: list[Attribution] = []
        self.failures: list[ItemFailure] = []
        self.mentions: list[Mention] = []
        self.checks: ShardControls | None = None
        self.exact: ExactMethodCheck | None = None
        if model and (plan.check or plan.exact):
            from transexplain.auditing import shard_controls as measured

            self.checks = measured.ShardControls(plan, plan.check, model) if plan.check else None
            self.exact = measured.ExactMethodCheck(plan, plan.exact, model) if plan.exact else None
        self.evaluation = Evaluation.from_plan(plan) if model and plan.evaluation else None
        self.drawn: list[Item] = []  #: the first of the shard, for class sensitivity
        self.measured: list[Item] = []  #: once more, by the metrics
        self._mention_counter = MentionCounter(plan) if plan.groups else None
        self._counted = (0, 0)  # outcomes and attributions that are in the aggregate
        self._waiting: list[Explained] = []  # for others whose entities are found with theirs

    def draw(self, ends: Iterator[Explained]) -> None:
        """Take of these, which are the next in order, what is missing in the sample."""
        explained = (end.item for end in ends if end.outcome is not None and end.item is not None)
        self.drawn += islice(explained, SENSITIVITY_SAMPLE - len(self.drawn))

    @property
    def is_measured_again(self) -> bool:
        """Return whether the items that were added decide what is computed after them."""
        return any(part is not None for part in (self.checks, self.exact, self.evaluation))

    def controls(self, observer: Observer, alone: Collection[str]) -> ControlResults:
        """The controls of the items that were added; raises Stopped."""
        self._take_waiting()
        results = ControlResults()
        if self.checks is not None:
            results.merge(self.checks.measure(observer, alone))
        if self.exact is not None:
            results.exact = self.exact.measure(observer, alone)
        return results

    def result(self, shard: Shard, seconds: float) -> ShardResult:
        """The result of a shard after its last item was added."""
        self._take_waiting()
        self._count()
        return ShardResult(
            shard=shard,
            outcomes=tuple(self.outcomes),
            attributions=tuple(self.attributions),
            failures=tuple(self.failures),
            mentions=tuple(self.mentions),
            aggregate=self.aggregate.to_json(),
            seconds=seconds,
        )

    def _count(self) -> None:
        outcomes, attributions = self._counted
        self.aggregate.add_all(self.outcomes[outcomes:], self.attributions[attributions:])
        self._counted = (len(self.outcomes), len(self.attributions))

    def add(self, done: Explained) -> None:
        """Take one item's end."""
        self._waiting.append(done)
        if len(self._waiting) == TOGETHER:
            self._take_waiting()

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        read = self._mention_counter.read(waiting) if self._mention_counter else waiting
        for done in read:
            self._take(done if _can_be_summed(done) else _too_large(done))

    def _take(self, done: Explained) -> None:
        if done.failure is not None:
            self.failures.append(done.failure)
        if done.outcome is None:
            return
        self.outcomes.append(done.outcome)
        self.attributions.extend(done.attributions)
        item = done.item
        if item is not None and self.evaluation and self.evaluation.wants(item.index):
            self.measured.append(item)
        if len(self.outcomes) - self._counted[0] == _COUNTED_TOGETHER:
            self._count()
        if self.exact is not None:
            self.exact.consider(done)
        if self._mention_counter is not None:
            matches, mentions = self._mention_counter.of(done, self.aggregate)
            self.mentions += mentions
            if self.checks is not None:
                self.checks.consider(done, matches, bool(mentions))


def _can_be_summed(done: Explained) -> bool:
    """Whether totals can hold the numbers of an item."""
    return all(
        abs(attribution.logit) < LARGEST and np.abs(attribution.relevance).max(initial=0) < LARGEST
        for attribution in done.attributions
    )


def _too_large(done: Explained) -> Explained:
    assert done.outcome is not None  # otherwise it has no attributions
    return Explained(
        item=done.item,
        failure=ItemFailure(
            item_id=done.outcome.item_id,
            index=done.outcome.index,
            kind="not-finite",
            message=f"item {done.outcome.item_id!r}: its logit or a relevance is {LARGEST:.0e} or "
            "beyond; look at the model's weights, or use another method",
        ),
    )


def evaluate_shard(
    plan: AuditPlan,
    shard: Shard,
    model: LoadedModel,
    *,
    observer: Observer,
    caution: Caution = NO_CAUTION,
    items: Given = None,
) -> ShardResult:
    """Measure the explanations of every item of one shard; none of them is kept.

    Raises as `StagedShard`.
    """
    from transexplain.evaluating.evaluate_items import evaluate_items

    begun = time.perf_counter()
    aggregate = ShardAggregate()
    evaluation = Evaluation.from_plan(plan)
    read = _given(plan, shard, items, caution)
    readable = (item for item in read if isinstance(item, Item | ItemFailure))
    ends = list(evaluate_items(model, readable, evaluation, observer=observer, alone=caution.alone))
    outcomes = [end.outcome for end in ends if end.outcome is not None]
    aggregate.add_all(outcomes, ())
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=(),
        failures=tuple(end.failure for end in ends if end.failure is not None),
        mentions=(),
        aggregate=aggregate.to_json(),
        scores=tuple(score for end in ends for score in end.scores),
        seconds=time.perf_counter() - begun,
    )


def _given(
    plan: AuditPlan, shard: Shard, items: Given, caution: Caution
) -> Iterator[Item | ItemFailure | Encoded]:
    read = read_shard(plan.dataset, shard, caution.quarantined) if items is None else items
    return screened(read, caution)


def _scores(
    model: LoadedModel,
    gathered: _Gathered,
    observer: Observer,
    caution: Caution,
) -> Iterator[MetricScore]:
    """The scores of the sampled items; these are done already, so this finishes none."""
    if gathered.evaluation is None:
        return
    from transexplain.evaluating.evaluate_items import evaluate_items

    watch = Heartbeat(observer)
    for end in evaluate_items(
        model, gathered.measured, gathered.evaluation, observer=watch, alone=caution.alone
    ):
        yield from end.scores


def _sensitivities(
    model: LoadedModel,
    sample: Sequence[Item | Encoded],
    request: Request,
    observer: Observer,
    caution: Caution,
) -> list[float]:
    """Class sensitivity of the first items of a shard, between their two likeliest classes."""
    if len(model.classes) < 2 or request.head in AT_POSITIONS:
        return []
    for_two = replace(request, targets=(parse_target("top:2", request.names),))
    heartbeat = Heartbeat(observer)
    ends = explain_items(model, sample, for_two, observer=heartbeat, alone=caution.alone)
    return [sensitivity_between(*done.attributions) for done in ends if len(done.attributions) == 2]


def import_shard(
    plan: AuditPlan,
    shard: Shard,
    *,
    observer: Observer,
    items: "Iterable[GivenItem | ItemFailure] | None" = None,
) -> ShardResult:
    """Return the result of a shard from attributions that are there already.

    `items` are those of the shard, where somebody read them before.

    Raises:
        Stopped: the observer requested a stop; nothing of the shard is returned.
        DataSourceError: the snapshot is missing or not the one of the plan.
    """
    from transexplain.data.attribution_files import read_attributions

    begun, gathered = time.perf_counter(), _Gathered(plan, None)
    stream = iter(read_attributions(plan, shard) if items is None else items)
    while some := list(islice(stream, TOGETHER)):
        if observer.should_stop():
            raise Stopped
        observer.batch_started([_id_of(item) for item in some])
        for item in some:
            gathered.add(_explained(item))
        observer.item_done(*map(_id_of, some))
    return gathered.result(shard, time.perf_counter() - begun)


def _explained(end: "GivenItem | ItemFailure") -> Explained:
    if isinstance(end, ItemFailure):
        return Explained(item=None, failure=end)
    item, outcome, attributions = end
    return Explained(item=item, outcome=outcome, attributions=attributions)


def _id_of(end: "GivenItem | ItemFailure") -> str:
    return end.item_id if isinstance(end, ItemFailure) else end[0].id
