"""Every revision up and down with rows in every table: what a revision keeps is unchanged."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from old_rows import save_mixed
from sqlalchemy import MetaData, Table, delete, func, insert, inspect, select, update
from store_samples import make_plan, make_result, make_rows, make_shards

from transexplain.errors import ConfigurationError
from transexplain.store import (
    deliveries,
    fleet_state,
    partitions,
    result_rows,
    results,
    revisions,
    runs,
    schedules,
    shard_blocks,
    shard_messages,
    shards,
)
from transexplain.store.database import Database
from transexplain.store.deliveries import Receiver
from transexplain.store.schedules import Planned
from transexplain.store.schema import PARTITIONED, pending_shards, result_part, run, schedule
from transexplain.types.plans import ShardCut, Sink
from transexplain.types.scores import MetricScore

Rows = dict[str, list[dict[str, Any]]]
#: columns that no later revision has, and that must not be NULL
NEEDED_ONCE = {"post_attempts": 0}
TABLES = [table.name for table in schedule.metadata.sorted_tables]


def fill(db: Database) -> None:
    """Rows in every table by the way that the program writes them."""
    schedules.add(
        db,
        Planned(
            name="nightly",
            cron="0 3 * * *",
            time_zone="UTC",
            spec={"name": "x"},
            on_change=False,
            receivers=(Receiver(kind="json", address="https://example.org/x"),),
        ),
    )
    due = schedules.get(db, "nightly")
    first = schedules.fire_now(db, due, (make_plan(), make_shards()), None)
    while (claim := shards.claim(db, first, "w", 60)) is not None:
        made = make_result(claim.shard, failing=frozenset({claim.shard.start}))
        scores = tuple(
            MetricScore(
                item_id=one.item_id,
                method="lrp",
                target="predicted",
                metric="activation",
                value=0.5,
                curve=(0.1, 0.2),
                reason="",
                detail={"steps": 2},
            )
            for one in made.outcomes
        )
        save_mixed(db, claim, replace(made, scores=scores))
    assert runs.finalise(db, first)
    assert result_rows.replace(db, first, make_rows())
    delivery = deliveries.claim(db, 60)
    assert delivery is not None
    deliveries.not_posted(db, delivery, "503", 60)
    second = schedules.fire_now(db, due, (make_plan(), make_shards()), first)
    held = shards.claim(db, second, "w", 60)
    assert held is not None
    assert shards.note(db, held, ["id-1", "id-2"])
    hung = shards.claim(db, second, "w", 60)
    assert hung is not None
    shards.hang(db, hung, ["id-5"], "no progress")
    runs.create(db, make_plan(), ShardCut(rows=shard_blocks.BLOCK + 1, size=1))
    assert shard_messages.take_task(db, "sweep", 60)
    fleet_state.add(db, {"json": 2, "task": 3})
    sunk = runs.create(db, make_plan(sink=Sink(url="memory://ladder/{run}")), make_shards())
    own = shards.claim(db, sunk, "w", 60)
    assert own is not None
    results.save(db, own, make_result(own.shard))


def rows(db: Database) -> Rows:
    """Every row as the database has it, in the order of the keys."""
    found: Rows = {}
    with db.read() as connection:
        there = set(inspect(connection).get_table_names())
        for name in [name for name in TABLES if name in there]:
            table = reflected(connection, name)
            query = select(table).order_by(*table.primary_key)
            found[name] = [dict(row) for row in connection.execute(query).mappings()]
    return found


def reflected(connection: Any, name: str) -> Table:
    return Table(name, MetaData(), autoload_with=connection, resolve_fks=False)


def common(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """Both, narrowed to the tables and columns that both have."""
    names = [name for name in one if name in other and one[name] and other[name]]
    columns = {name: one[name][0].keys() & other[name][0].keys() for name in names}

    def narrow(rows: Rows) -> Rows:
        return {
            name: [{key: row[key] for key in columns[name]} for row in rows[name]] for name in names
        }

    return narrow(one), narrow(other)


def put(db: Database, wanted: Rows, names: Iterable[str]) -> None:
    """Write the rows of these tables with the columns that there are at this revision."""
    with db.begin() as connection:
        for name in names:
            table = reflected(connection, name)
            gone = {key: value for key, value in NEEDED_ONCE.items() if key in table.c}
            kept = [gone | {key: row[key] for key in row if key in table.c} for row in wanted[name]]
            connection.execute(insert(table), kept)


def without_parts(db: Database) -> None:
    """The version before could not read them, so they have to go first."""
    with db.begin() as connection:
        connection.execute(delete(result_part))


def without_pending(db: Database) -> None:
    """As where all such runs have ended."""
    with db.begin() as connection:
        connection.execute(delete(pending_shards))


def without_sinks(db: Database) -> None:
    """The same of runs with files."""
    with db.begin() as connection:
        connection.execute(update(run).values(sink=None))


def ladder() -> list[str]:
    """Every revision, oldest first."""
    return [one.revision for one in revisions._scripts().walk_revisions()][::-1]


@pytest.mark.exhaustive
def test_up_down_up_one_at_a_time_with_rows_everywhere(db: Database) -> None:
    if partitions.supported(db):
        partitions.maintain(db, ahead=1)
    fill(db)
    full = rows(db)
    assert set(full) == set(TABLES)
    assert all(full.values()), "a table without rows"
    steps = ladder()
    assert steps[-1] == revisions.head()
    _down(db, full, steps)
    _up(db, full, steps)
    revisions.check(db)
    _down(db, rows(db), steps)


def _down(db: Database, full: Rows, steps: list[str]) -> None:
    for below in reversed(steps[:-1]):
        if below == "0017" and any(row["sink"] for row in full["run"]):
            with pytest.raises(ConfigurationError, match="1 runs have results in Parquet files"):
                revisions.downgrade(db, below)
            without_sinks(db)
        if below == "0016":
            with pytest.raises(ConfigurationError, match="have some to be made: 2"):
                revisions.downgrade(db, below)
            without_pending(db)
        if below == "0011":
            with pytest.raises(ConfigurationError, match="3 shards have their results in the"):
                revisions.downgrade(db, below)
            assert rows(db)["result_part"] == full["result_part"]
            without_parts(db)
        revisions.downgrade(db, below)
        assert revisions.current(db) == below
        left = rows(db)
        kept, wanted = common(left, full)
        assert kept == wanted
        assert kept.keys() == left.keys()
    revisions.downgrade(db, "base")
    with db.read() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]


def _up(db: Database, full: Rows, steps: list[str]) -> None:
    written: set[str] = set()
    for above in steps:
        before = rows(db)
        revisions.upgrade(db, above)
        after = rows(db)
        kept, wanted = common(after, before)
        assert kept == wanted
        assert kept.keys() == before.keys()
        # a table that is new gets its rows now, so that the revisions above have them to keep
        fresh = [name for name in after if name not in written]
        put(db, full, fresh)
        written |= set(fresh)
    ended, wanted = common(rows(db), full)
    assert ended.keys() == full.keys()
    added = {("shard", name) for name in ("hinted", "fruitless", "breadcrumb", "suspects")}
    added |= {("attribution", "notes"), ("run", "previous"), ("run", "surroundings")}
    added |= {("run", "sink")}
    added |= {("shard", "digest"), ("shard", "surroundings")}
    added |= {("item", "margin"), ("attribution", "size")}
    for name, found in ended.items():
        columns = [key for key in found[0] if (name, key) not in added]
        assert [[row[key] for key in columns] for row in found] == [
            [row[key] for key in columns] for row in wanted[name]
        ]


def test_rows_go_where_their_ids_say(db: Database) -> None:
    """Before partitions and after, by way of the migration; on SQLite nothing moves."""
    fill(db)
    without_sinks(db)
    without_parts(db)
    without_pending(db)
    counts = {name: len(found) for name, found in rows(db).items()}
    revisions.downgrade(db, "0005")
    revisions.upgrade(db)
    with db.read() as connection:
        for name in PARTITIONED:
            query = select(func.count()).select_from(reflected(connection, name))
            assert connection.execute(query).scalar_one() == counts[name]
    if partitions.supported(db):
        assert partitions.maintain(db, ahead=0)
        with db.read() as connection:
            left = connection.exec_driver_sql("SELECT count(*) FROM item_default").scalar_one()
        assert left == 0
