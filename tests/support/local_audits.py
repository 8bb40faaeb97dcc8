"""Audits of a specification in this process, in a store of their own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.dispatch.local import run_local
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import AuditSpec
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.explained_shard import explain_shard
from transexplain.explaining.item_loop import Silent
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.plans import Shard, ShardResult


@contextmanager
def audited_in(folder: Path, *, processes: int = 1, **keys: Any) -> Iterator[tuple[Database, str]]:
    """Run the specification of these keys; the store below `folder`, and the run's id."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
    )
    prepared = prepare_audit(AuditSpec.model_validate(keys), settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_local(db, run_id, settings, processes, model=prepared.model)
        yield db, run_id


def prepared_in(folder: Path, keys: Mapping[str, Any]) -> Prepared:
    """The specification of these keys prepared, its snapshot below `folder`."""
    spec = AuditSpec.model_validate(keys)
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))


def aggregate_of(
    prepared: Prepared, shards: int = 1, *, cuts: Sequence[int] = ()
) -> ShardAggregate:
    """What the shards of a prepared audit add up to, the last of them first."""
    total = ShardAggregate()
    for part in shard_results(prepared, shards, cuts=cuts)[::-1]:
        total.merge(ShardAggregate.from_json(part.aggregate))
    return total


def shard_results(
    prepared: Prepared, shards: int = 1, *, cuts: Sequence[int] = ()
) -> list[ShardResult]:
    """A prepared audit worked on here, its rows cut into so many shards, or at these rows."""
    rows = prepared.plan.dataset.rows
    cuts = cuts or [rows * number // shards for number in range(shards + 1)]
    return [
        explain_shard(
            prepared.plan,
            Shard(index=index, start=start, stop=stop),
            prepared.model,
            observer=Silent(),
        )
        for index, (start, stop) in enumerate(pairwise(cuts))
    ]
