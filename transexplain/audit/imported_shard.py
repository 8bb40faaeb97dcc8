"""One shard of attributions made elsewhere: who is mentioned, and what it adds up to; no model."""

import time
from collections.abc import Iterable
from itertools import islice

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.audit.shard_mentions import MentionCounter
from transexplain.data.attribution_files import GivenItem, read_attributions
from transexplain.explaining import Explained, Stopped
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention
from transexplain.types.observer import Observer
from transexplain.types.plans import AuditPlan, Shard, ShardResult

_TOGETHER = 64  #: items between two looks at whether to stop


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
        Stopped: the observer asked to stop; nothing of the shard is returned.
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
                aggregate.add(one.outcome, one.attributions)
                if counter is not None:
                    mentions += counter.of(_explained(one), aggregate)[1]
            observer.item_done(_id_of(one))
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
