"""The computation of a shard: items in, attributions and aggregates out; no queue, no SQL."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from transexplain.bias.aggregates import ShardAggregate
from transexplain.checking.checks import Checks
from transexplain.checking.exact import ExactChecks
from transexplain.data.reader import read_shard
from transexplain.evaluating import Evaluation, Heartbeat, evaluate_items
from transexplain.evaluations import MetricScore
from transexplain.explaining import Explained, Request, explain_items
from transexplain.explaining.caution import screened
from transexplain.mentioning import Mentioning
from transexplain.metrics.class_sensitivity import of_attributions
from transexplain.models.base import Encoded, LoadedModel
from transexplain.plans import AuditPlan, Shard, ShardResult
from transexplain.supervision import NO_CAUTION, Caution, Observer
from transexplain.targets import parse_target
from transexplain.types import (
    Attribution,
    Item,
    ItemFailure,
    ItemOutcome,
    Mention,
)

#: items of every shard that class sensitivity is measured on
SENSITIVITY_SAMPLE = 2

#: items of a shard that are read (and encoded, for an audit) already
Given = Iterable[Item | ItemFailure | Encoded] | None


def explain_shard(
    plan: AuditPlan,
    shard: Shard,
    model: LoadedModel,
    *,
    observer: Observer,
    caution: Caution = NO_CAUTION,
    items: Given = None,
) -> ShardResult:
    """Explain every item of one shard, and measure those of the samples.

    `caution` names the items that share no batch, and those that are not run at all; `items` are
    those of the shard, where they were read ahead.

    Raises:
        Stopped: the observer asked to stop; nothing of the shard is returned.
        EngineError: the model has an operator without a rule.
    """
    begun = time.perf_counter()
    if plan.task == "evaluation":
        return evaluate_shard(plan, shard, model, observer=observer, caution=caution, items=items)
    request, kept, gathered = Request.from_plan(plan), _Kept(plan), _Gathered(plan, model)
    given = _given(plan, shard, items, caution)
    for done in explain_items(model, given, request, observer=observer, alone=caution.alone):
        gathered.add(done)
        if done.outcome is not None:
            kept.consider(done.item)
    aggregate = gathered.aggregate
    _add_sensitivities(aggregate, model, kept.sample, request, observer, caution)
    if gathered.checks is not None:
        aggregate.checked.merge(gathered.checks.measure(Heartbeat(observer), caution.alone))
    if gathered.exact is not None:
        aggregate.checked.exact = gathered.exact.measure(Heartbeat(observer), caution.alone)
    return ShardResult(
        shard=shard,
        outcomes=tuple(gathered.outcomes),
        attributions=tuple(gathered.attributions),
        failures=tuple(gathered.failures),
        mentions=tuple(gathered.mentions),
        aggregate=aggregate.to_json(),
        scores=tuple(_scores(model, kept, observer, caution)),
        seconds=time.perf_counter() - begun,
    )


class _Gathered:
    """The records of a shard's items, and their totals."""

    def __init__(self, plan: AuditPlan, model: LoadedModel) -> None:
        self.aggregate = ShardAggregate()
        self.outcomes: list[ItemOutcome] = []
        self.attributions: list[Attribution] = []
        self.failures: list[ItemFailure] = []
        self.mentions: list[Mention] = []
        self.checks = Checks(plan, plan.check, model) if plan.check else None
        self.exact = ExactChecks(plan, plan.exact, model) if plan.exact else None
        self._mentioning = Mentioning(plan) if plan.groups else None

    def add(self, done: Explained) -> None:
        """Take one item's end."""
        if done.failure is not None:
            self.failures.append(done.failure)
        if done.outcome is None:
            return
        self.outcomes.append(done.outcome)
        self.attributions.extend(done.attributions)
        self.aggregate.add(done.outcome, done.attributions)
        if self.exact is not None:
            self.exact.consider(done)
        if self._mentioning is not None:
            matches, mentions = self._mentioning.of(done, self.aggregate)
            self.mentions += mentions
            if self.checks is not None:
                self.checks.consider(done, matches, bool(mentions))


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

    Raises as `explain_shard`.
    """
    begun = time.perf_counter()
    aggregate = ShardAggregate()
    evaluation = Evaluation.from_plan(plan)
    given = _given(plan, shard, items, caution)
    readable = (one for one in given if isinstance(one, Item | ItemFailure))
    ends = list(evaluate_items(model, readable, evaluation, observer=observer, alone=caution.alone))
    outcomes = [end.outcome for end in ends if end.outcome is not None]
    for outcome in outcomes:
        aggregate.add(outcome, ())
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
    read = read_shard(plan.dataset, shard) if items is None else items
    return screened(read, caution.quarantined)


class _Kept:
    """The items that are explained or measured again once the shard is explained."""

    def __init__(self, plan: AuditPlan) -> None:
        self.evaluation = Evaluation.from_plan(plan) if plan.evaluation else None
        self.sample: list[Item] = []  #: for class sensitivity
        self.measured: list[Item] = []

    def consider(self, item: Item | None) -> None:
        """Keep an item where it is wanted."""
        if item is not None and len(self.sample) < SENSITIVITY_SAMPLE:
            self.sample.append(item)
        if item is not None and self.evaluation and self.evaluation.wants(item.index):
            self.measured.append(item)


def _scores(
    model: LoadedModel,
    kept: _Kept,
    observer: Observer,
    caution: Caution,
) -> Iterator[MetricScore]:
    """The scores of the sampled items; these are done already, so this finishes none."""
    if kept.evaluation is None:
        return
    watch = Heartbeat(observer)
    for end in evaluate_items(
        model, kept.measured, kept.evaluation, observer=watch, alone=caution.alone
    ):
        yield from end.scores


def _add_sensitivities(
    aggregate: ShardAggregate,
    model: LoadedModel,
    sample: Sequence[Item],
    request: Request,
    observer: Observer,
    caution: Caution,
) -> None:
    """Class sensitivity of the first items of a shard, between their two likeliest classes."""
    if len(model.classes) < 2:
        return
    for_two = replace(request, targets=(parse_target("top:2", request.names),))
    heartbeat = Heartbeat(observer)
    for done in explain_items(model, sample, for_two, observer=heartbeat, alone=caution.alone):
        if len(done.attributions) == 2:
            aggregate.add_sensitivity(of_attributions(*done.attributions))
