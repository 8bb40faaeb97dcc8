"""Computes one shard: from items to attributions, aggregates and control results; no queue,
no SQL.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from transexplain.analysis.groups.entity_finder import TOGETHER
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate
from transexplain.auditing.shard_mentions import MentionCounter
from transexplain.auditing.text_redaction import guard_of
from transexplain.data.shard_reader import read_shard
from transexplain.errors import InfrastructureError
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat
from transexplain.evaluating.metrics.map_metrics import sensitivity_between
from transexplain.explaining import Explained, Request, Stopped, explain_items
from transexplain.explaining.explain_request import screened
from transexplain.explaining.item_loop import StagedItems
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

#: items of every shard that class sensitivity is measured on
SENSITIVITY_SAMPLE = 2

#: what makes the result of a shard whose last batch is over
Unfinished = Callable[[], ShardResult]


class StagedShard:
    """Computes a shard in stages; of an audit every item is explained, and samples are measured.

    The device can compute one shard while others are prepared or finished: call `prepare` where
    there is time, in any thread, then `compute` once, in the device's; what that returns makes the
    result as it may be stored, in any thread. Call `close` where it comes to no `compute`. All of
    them raise Stopped where the observer requested a stop, EngineError where the model has an
    operator without a rule, and ConfigurationError as `guard_of`. Where the plan keeps texts out of
    the store, errors do not quote them.
    """

    def __init__(
        self,
        plan: AuditPlan,
        shard: Shard,
        model: LoadedModel | None,
        *,
        caution: Caution = NO_CAUTION,
        items: Iterable[Any] | None = None,
    ) -> None:
        """`model`: None where the attributions are there already.

        `caution` names items that share no batch, and those that are not run at all. `items` are
        those of the shard, where they were read ahead; for an audit they may be encoded.
        """
        self._plan, self._shard, self._model, self._caution = plan, shard, model, caution
        self._items: Iterable[Any]
        self._taken: Callable[[], None] = lambda: None
        self._sensitivities: list[float] = []
        self._controls = ControlResults()
        self._steps: tuple[str, ...] = ()
        self._guard = guard_of(plan)
        self._stages: StagedItems | None = None
        with self._without_text():
            self._gathered = _Gathered(plan, model)
            self._items = self._read() if items is None else items
            if self._guard is not None:
                self._items = self._guard.read(self._items)
            if model is not None and plan.task != "evaluation":
                self._stages = StagedItems(
                    model,
                    screened(self._items, caution),
                    Request.from_plan(plan),
                    caution.alone,
                    keep=SENSITIVITY_SAMPLE,
                )

    def _read(self) -> Iterable[Any]:
        if self._model is None:
            from transexplain.data.attribution_files import read_attributions

            return read_attributions(self._plan, self._shard)
        return read_shard(self._plan.dataset, self._shard, self._caution.quarantined)

    @contextmanager
    def _without_text(self) -> Iterator[None]:
        """A block whose errors do not quote what the plan keeps out of the store."""
        try:
            yield
        except (Stopped, InfrastructureError):
            raise
        except Exception as error:
            if self._guard is None:
                raise
            raise self._guard.error_without_text(error) from None

    def prepare(self) -> None:
        """Make the first batch of an audit ready for the device."""
        if self._stages is not None:
            with self._without_text():
                self._stages.prepare()

    def close(self) -> None:
        """Ask for no more items."""
        if self._stages is not None:
            self._stages.close()

    def compute(self, observer: Observer) -> Unfinished:
        """The device's part."""
        begun = time.perf_counter()
        with self._without_text(), few_collections():
            if self._model is None:
                self._import(observer)
            elif self._stages is None:
                self._evaluate(self._model, observer)
            else:
                self._explain(self._model, self._stages, observer)
                self._steps = steps_of(self._model).ran()
        self._seconds = time.perf_counter() - begun
        return self._finish

    def _finish(self) -> ShardResult:
        gathered = self._gathered
        with self._without_text(), few_collections():
            self._taken()
            for value in self._sensitivities:
                gathered.aggregate.add_sensitivity(value)
            gathered.aggregate.checked.merge(self._controls)
            result = replace(gathered.result(self._shard, self._seconds), steps=self._steps)
            return result if self._guard is None else self._guard.storable(result)

    def _explain(self, model: LoadedModel, stages: StagedItems, observer: Observer) -> None:
        gathered, alone = self._gathered, self._caution.alone
        watch = Heartbeat(observer)
        self._taken = stages.run(gathered.add, observer=observer, early=gathered.draw)
        sample = [stages.first.get(item.id, item) for item in gathered.drawn]
        self._sensitivities = _sensitivities(model, sample, stages.request, watch, alone)
        if gathered.is_measured_again:
            self._taken()
        self._controls = gathered.controls(watch, alone)
        if gathered.evaluation is not None:
            from transexplain.evaluating.evaluate_items import evaluate_items

            measured, evaluation = gathered.measured, gathered.evaluation
            # these items are done already, so this finishes none
            for end in evaluate_items(model, measured, evaluation, observer=watch, alone=alone):
                gathered.scores += end.scores

    def _evaluate(self, model: LoadedModel, observer: Observer) -> None:
        """Measure the explanations of every item; none of them is kept."""
        from transexplain.evaluating.evaluate_items import evaluate_items

        evaluation, alone = Evaluation.from_plan(self._plan), self._caution.alone
        items = screened(self._items, self._caution)
        for end in evaluate_items(model, items, evaluation, observer=observer, alone=alone):
            self._gathered.add(end)

    def _import(self, observer: Observer) -> None:
        """Take attributions that are there already; nothing of a stopped shard is returned."""
        stream = map(Explained.of, self._items)
        while some := list(islice(stream, TOGETHER)):
            if observer.should_stop():
                raise Stopped
            ids = [end.item_id for end in some]
            observer.batch_started(ids)
            for end in some:
                self._gathered.add(end)
            observer.item_done(*ids)


def _sensitivities(
    model: LoadedModel,
    sample: Sequence[Item | Encoded],
    request: Request,
    watch: Observer,
    alone: Collection[str],
) -> list[float]:
    """Class sensitivity of the first items of a shard, between their two likeliest classes."""
    if len(model.classes) < 2 or request.head in AT_POSITIONS:
        return []
    for_two = replace(request, targets=(parse_target("top:2", request.names),))
    ends = explain_items(model, sample, for_two, observer=watch, alone=alone)
    return [sensitivity_between(*done.attributions) for done in ends if len(done.attributions) == 2]


_COUNTED_TOGETHER = 1024  #: items


class _Gathered:
    """The records of a shard's items, and their totals."""

    def __init__(self, plan: AuditPlan, model: LoadedModel | None) -> None:
        """`model`: None where attributions are there already."""
        explains = model is not None and plan.task != "evaluation"
        self.aggregate = ShardAggregate.of(plan) if explains else ShardAggregate()
        self.outcomes: list[ItemOutcome] = []
        self.attributions: list[Attribution] = []
        self.failures: list[ItemFailure] = []
        self.mentions: list[Mention] = []
        self.scores: list[MetricScore] = []
        self.checks: ShardControls | None = None
        self.exact: ExactMethodCheck | None = None
        if model and explains and (plan.check or plan.exact):
            from transexplain.auditing import shard_controls as measured

            self.checks = measured.ShardControls(plan, plan.check, model) if plan.check else None
            self.exact = measured.ExactMethodCheck(plan, plan.exact, model) if plan.exact else None
        self.evaluation = Evaluation.from_plan(plan) if explains and plan.evaluation else None
        self.drawn: list[Item] = []  #: the first of the shard, for class sensitivity
        self.measured: list[Item] = []  #: once more, by the metrics
        counts = plan.groups and plan.task != "evaluation"
        self._mention_counter = MentionCounter(plan) if counts else None
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
            scores=tuple(self.scores),
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
        self.scores += done.scores
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
