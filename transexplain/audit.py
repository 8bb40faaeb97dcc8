"""The computation of a shard: items in, attributions and aggregates out; no queue, no SQL."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.matching import Matcher
from transexplain.bias.mentions import mentions_of
from transexplain.data.reader import read_shard
from transexplain.explaining import Request, explain_items
from transexplain.metrics.class_sensitivity import of_attributions
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, Observer, Shard, ShardResult
from transexplain.targets import parse_target
from transexplain.types import Attribution, Item, ItemFailure, ItemOutcome, Mention

#: items of every shard that class sensitivity is measured on
SENSITIVITY_SAMPLE = 2


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
    request = Request.from_plan(plan)
    sample: list[Item] = []
    for done in explain_items(model, read_shard(plan.dataset, shard), request, observer=observer):
        if done.failure is not None:
            failures.append(done.failure)
        if done.outcome is not None:
            outcomes.append(done.outcome)
            attributions.extend(done.attributions)
            aggregate.add(done.outcome, done.attributions)
            mentions.extend(_mentions(matcher, done.attributions))
            if done.item is not None and len(sample) < SENSITIVITY_SAMPLE:
                sample.append(done.item)
    for value in _sensitivities(model, sample, request):
        aggregate.add_sensitivity(value)
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(attributions),
        failures=tuple(failures),
        mentions=tuple(mentions),
        aggregate=aggregate.to_json(),
        seconds=time.perf_counter() - begun,
    )


def _sensitivities(model: LoadedModel, sample: Sequence[Item], request: Request) -> Iterator[float]:
    """Class sensitivity of the first items of a shard, between their two likeliest classes."""
    if len(model.classes) < 2:
        return
    for_two = replace(request, targets=(parse_target("top:2", request.names),))
    for done in explain_items(model, sample, for_two):
        if len(done.attributions) == 2:
            yield of_attributions(*done.attributions)


def _mentions(matcher: Matcher | None, attributions: Sequence[Attribution]) -> Iterator[Mention]:
    text = attributions[0].text if attributions else None
    if matcher is None or text is None:
        return
    matches = matcher.find(text)
    for attribution in attributions if matches else ():
        yield from mentions_of(attribution, matches)
