"""Audits of a specification in this process, in a store of their own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from gallery import run_audit
from tiny_audit import make_audit

from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.explaining.item_loop import Silent
from transexplain.settings import Settings
from transexplain.store.database import Database
from transexplain.types.observer import NO_CAUTION
from transexplain.types.plans import Shard, ShardResult
from workers.shard_work import compute


@contextmanager
def audited_in(folder: Path, *, processes: int = 1, **keys: Any) -> Iterator[tuple[Database, str]]:
    """Run the specification of these keys; the store below `folder`, and the run's id."""
    audit = run_audit(keys, folder, processes=processes)
    with audit.open(read_only=False) as db:
        yield db, audit.id


def prepared_tiny(folder: Path, *settings: str, **keys: Any) -> PreparedAudit:
    """The audit of `make_audit` prepared, without its evaluation."""
    spec = load_spec(make_audit(folder, **keys), settings=("evaluation.items=0", *settings))
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))


def aggregate_of(
    prepared: PreparedAudit, shards: int = 1, *, cuts: Sequence[int] = ()
) -> ShardAggregate:
    """What the shards of a prepared audit add up to, the last of them first."""
    total = ShardAggregate()
    for part in shard_results(prepared, shards, cuts=cuts)[::-1]:
        total.merge(ShardAggregate.from_json(part.aggregate))
    return total


def shard_results(
    prepared: PreparedAudit, shards: int = 1, *, cuts: Sequence[int] = ()
) -> list[ShardResult]:
    """A prepared audit worked on here, its rows cut into so many shards, or at these rows."""
    rows = prepared.plan.dataset.rows
    cuts = cuts or [rows * number // shards for number in range(shards + 1)]
    return [
        compute(
            prepared.plan,
            Shard(index=index, start=start, stop=stop),
            prepared.model,
            observer=Silent(),
            caution=NO_CAUTION,
        )()
        for index, (start, stop) in enumerate(pairwise(cuts))
    ]
