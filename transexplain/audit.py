"""The computation of a shard: items in, attributions and aggregates out; no queue, no SQL."""

import time
from collections.abc import Iterator, Sequence

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.matching import Matcher
from transexplain.bias.mentions import mentions_of
from transexplain.data.reader import read_shard
from transexplain.explaining import Request, explain_items
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, Observer, Shard, ShardResult
from transexplain.types import Attribution, ItemFailure, ItemOutcome, Mention


def explain_shard(
    plan: AuditPlan, shard: Shard, model: LoadedModel, *, observer: Observer
) -> ShardResult:
    """Explain every item of one shard.

    Raises:
        Stopped: the observer asked to stop; nothing of the shard is returned.
        EngineError: the model has an operator without a rule.
    """
    begun = time.perf_counter()
    matcher = Matcher(plan.groups) if plan.groups else None
    aggregate = ShardAggregate()
    outcomes: list[ItemOutcome] = []
    attributions: list[Attribution] = []
    failures: list[ItemFailure] = []
    mentions: list[Mention] = []
    items = read_shard(plan.dataset, shard)
    for done in explain_items(model, items, Request.from_plan(plan), observer=observer):
        if done.failure is not None:
            failures.append(done.failure)
        if done.outcome is not None:
            outcomes.append(done.outcome)
            attributions.extend(done.attributions)
            aggregate.add(done.outcome, done.attributions)
            mentions.extend(_mentions(matcher, done.attributions))
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(attributions),
        failures=tuple(failures),
        mentions=tuple(mentions),
        aggregate=aggregate.to_json(),
        seconds=time.perf_counter() - begun,
    )


def _mentions(matcher: Matcher | None, attributions: Sequence[Attribution]) -> Iterator[Mention]:
    text = attributions[0].text if attributions else None
    if matcher is None or text is None:
        return
    matches = matcher.find(text)
    for attribution in attributions if matches else ():
        yield from mentions_of(attribution, matches)
