"""Computes one shard: from items to attributions, aggregates and control results; no queue,
no SQL.
"""

import gc
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice

from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate
from transexplain.auditing.mention_changes import AblationCheck, SwapCheck
from transexplain.auditing.model_controls import ExactMethodCheck, RandomisedModelCheck
from transexplain.auditing.region_hiding import RegionCheck
from transexplain.auditing.shard_mentions import MentionCounter
from transexplain.data.attribution_files import GivenItem, read_attributions
from transexplain.data.shard_reader import read_shard
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat
from transexplain.evaluating.metrics.class_sensitivity import sensitivity_between
from transexplain.explaining import Explained, Request, Stopped, explain_items
from transexplain.explaining.item_loop import explain_beside, screened
from transexplain.methods import facts_of
from transexplain.methods.at_input_layer import steps_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.randomness import generator, row_number
from transexplain.types.items import Attribution, Item, ItemFailure, ItemOutcome, Mention
from transexplain.types.observer import NO_CAUTION, Caution, Observer
from transexplain.types.plans import AuditPlan, CheckPlan, Shard, ShardResult
from transexplain.types.scores import MethodSpec, MetricScore
from transexplain.types.targets import parse_target


class ShardControls:
    """Samples items, and of each text one of its mentions; of pictures all marked regions.

    An item is sampled by its row alone and a mention by its item alone, so that any cut into shards
    gives the same sample. The mention that is ablated is also the one that is swapped.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._check, self._model = check, model
        self._request = Request.from_plan(plan)
        self._ablations = AblationCheck(plan, model)
        self._swaps = SwapCheck(plan, check) if check.swap else None
        self._regions = RegionCheck(plan) if check.regions else None
        self._randomised = RandomisedModelCheck(plan, check, model) if check.randomised else None

    def consider(self, done: Explained, matches: Sequence[Match], mentioned: bool) -> None:
        """Note an item of the sample; `mentioned`: it has mentions of any kind."""
        item, check = done.item, self._check
        if item is None or not (matches or (mentioned and check.whole)):
            return
        sampled = row_number(item.index, check.seed) < check.share * 2**64
        if sampled and self._randomised is not None:
            self._randomised.consider(done)
        if sampled and self._regions is not None:
            self._regions.consider(done)
        if not matches or not isinstance(item.content, str):
            return
        random = generator("check", check.seed, item.id)
        match = matches[int(random.integers(len(matches)))]
        if sampled:
            self._ablations.consider(done, matches, match)
        if self._swaps is not None and self._swaps.wants(item, match):
            self._swaps.consider(done, matches, match, random)

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> ControlResults:
        """Run the sampled items again; those `alone` (ids) share no batch.

        Texts without a mention and with another one, and pictures with a region hidden, are
        answered in the same batches, by forward passes only. Raises Stopped where the observer
        requested a stop.
        """
        found = ControlResults()
        without, other = self._ablations.items, self._swaps.items if self._swaps else []
        forward = replace(self._request, method=self._logits_by(), targets=())
        pictures = (
            self._regions.items if self._regions else ()
        )  # an iterator: pictures are large, so each is made just before its pass
        changed = chain(without, other, pictures)
        ends = iter(explain_items(self._model, changed, forward, observer=observer, alone=alone))
        found.ablations += self._ablations.compared(list(islice(ends, len(without))))
        if self._swaps is not None:
            found.observations += self._swaps.observations(list(islice(ends, len(other))))
        if self._regions is not None:
            found.regions += self._regions.observations(ends)
        if self._randomised is not None:
            found.randomised.merge(self._randomised.measure(observer, alone))
        return found

    def _logits_by(self) -> MethodSpec:
        """A method that gives the logits of the audit's own method in one forward pass.

        Methods of rules cut off a final softmax; all others see the logits as they are.
        """
        method = self._request.method
        return method if facts_of(method.name).needs_rules else MethodSpec(name="random")


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
        Stopped: the observer requested a stop; nothing of the shard is returned.
        EngineError: the model has an operator without a rule.
    """
    begun = time.perf_counter()
    if plan.task == "evaluation":
        return evaluate_shard(plan, shard, model, observer=observer, caution=caution, items=items)
    request, kept, gathered = Request.from_plan(plan), _Kept(plan), _Gathered(plan, model)
    given = _given(plan, shard, items, caution)

    def take(done: Explained) -> None:
        gathered.add(done)
        if done.outcome is not None:
            kept.consider(done.item)

    with _few_collections():
        explain_beside(model, given, request, take, observer=observer, alone=caution.alone)
        gathered.count()
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
        steps=steps_of(model).ran(),
    )


_COUNTED_TOGETHER = 1024  #: items
_ALLOCATIONS = 50_000  #: records made between two garbage collections; Python's default is 700


@contextmanager
def _few_collections() -> Iterator[None]:
    """A block in which garbage is looked for rarely.

    The records of a shard all stay, and a collection of everything reads through what torch and
    the model hold, too: at the default it took a third of the time of a text.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _ALLOCATIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Gathered:
    """The records of a shard's items, and their totals."""

    def __init__(self, plan: AuditPlan, model: LoadedModel) -> None:
        self.aggregate = ShardAggregate()
        self.outcomes: list[ItemOutcome] = []
        self.attributions: list[Attribution] = []
        self.failures: list[ItemFailure] = []
        self.mentions: list[Mention] = []
        self.checks = ShardControls(plan, plan.check, model) if plan.check else None
        self.exact = ExactMethodCheck(plan, plan.exact, model) if plan.exact else None
        self._mention_counter = MentionCounter(plan) if plan.groups else None
        self._counted = (0, 0)  # outcomes and attributions that are in the aggregate

    def count(self) -> None:
        """Count the items that are not yet counted; call it after the last of them."""
        outcomes, attributions = self._counted
        self.aggregate.add_all(self.outcomes[outcomes:], self.attributions[attributions:])
        self._counted = (len(self.outcomes), len(self.attributions))

    def add(self, done: Explained) -> None:
        """Take one item's end."""
        if done.failure is not None:
            self.failures.append(done.failure)
        if done.outcome is None:
            return
        self.outcomes.append(done.outcome)
        self.attributions.extend(done.attributions)
        if len(self.outcomes) - self._counted[0] == _COUNTED_TOGETHER:
            self.count()
        if self.exact is not None:
            self.exact.consider(done)
        if self._mention_counter is not None:
            matches, mentions = self._mention_counter.of(done, self.aggregate)
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
            aggregate.add_sensitivity(sensitivity_between(*done.attributions))


_TOGETHER = 64  #: items between two checks whether to stop


def import_shard(
    plan: AuditPlan,
    shard: Shard,
    *,
    observer: Observer,
    items: Iterable[GivenItem | ItemFailure] | None = None,
) -> ShardResult:
    """What `audit.explain_shard` gives of a shard, from attributions that are there already.

    `items` are those of the shard, where somebody read them before.

    Raises:
        Stopped: the observer requested a stop; nothing of the shard is returned.
        DataSourceError: the snapshot is missing or not the one of the plan.
    """
    begun = time.perf_counter()
    aggregate = ShardAggregate()
    counter = MentionCounter(plan) if plan.groups else None
    outcomes: list[ItemOutcome] = []
    attributions: list[Attribution] = []
    failures: list[ItemFailure] = []
    mentions: list[Mention] = []
    given = iter(read_attributions(plan, shard) if items is None else items)
    while some := list(islice(given, _TOGETHER)):
        if observer.should_stop():
            raise Stopped
        observer.batch_started([_id_of(one) for one in some])
        for one in some:
            if isinstance(one, ItemFailure):
                failures.append(one)
            else:
                outcomes.append(one.outcome)
                attributions += one.attributions
                if counter is not None:
                    mentions += counter.of(_explained(one), aggregate)[1]
            observer.item_done(_id_of(one))
    aggregate.add_all(outcomes, attributions)
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(attributions),
        failures=tuple(failures),
        mentions=tuple(mentions),
        aggregate=aggregate.to_json(),
        seconds=time.perf_counter() - begun,
    )


def _explained(one: GivenItem) -> Explained:
    return Explained(item=one.item, outcome=one.outcome, attributions=one.attributions)


def _id_of(one: GivenItem | ItemFailure) -> str:
    return one.item_id if isinstance(one, ItemFailure) else one.item.id
