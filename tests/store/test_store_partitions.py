"""Monthly partitions on PostgreSQL: rows find theirs, late ones are moved, months are dropped."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
from sqlalchemy import text
from store_samples import make_result, start, work

from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store import readers, results, revisions, run_totals, runs, shards, upkeep
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import PARTITIONED
from transexplain.store.upkeep import Month


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with open_database(postgres_url, upgrade=True) as database:
        yield database


pytestmark = pytest.mark.postgres

FAILING = frozenset(range(0, 800, 4))  #: rows, one or none of a shard


def run_of(db: Database, run_id: str, *, worked: bool = True) -> str:
    """A run with this id, whose results are saved."""
    with mock.patch.object(runs, "_new_id", return_value=run_id):
        assert start(db) == run_id
    if worked:
        work(db, run_id, failing=FAILING)
    return run_id


def where(db: Database, table: str, run_id: str) -> dict[str, int]:
    """How many rows of the run each partition of `table` has."""
    query = text(
        f"SELECT CAST(CAST(tableoid AS regclass) AS text), count(*) FROM {table} "
        "WHERE run_id = :run GROUP BY 1"
    )
    with db.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query, {"run": run_id})}


def months(db: Database) -> list[str]:
    with db.read() as connection:
        return [month.name for month in upkeep.months(connection)]


def age(db: Database, run_id: str) -> None:
    with db.begin() as connection:
        connection.execute(text("UPDATE run SET finished = 0 WHERE id = :run"), {"run": run_id})


def content(db: Database, run_id: str) -> list[object]:
    attributions = readers.iter_attributions(db, run_id)
    return [
        list(readers.iter_items(db, run_id)),
        [(one.item_id, one.target, one.relevance.tolist()) for one in attributions],
        list(readers.iter_mentions(db, run_id)),
        list(run_totals.aggregates(db, run_id)),
    ]


def test_months_follow_each_other() -> None:
    for name, after in (("202611", "202612"), ("202612", "202701"), ("209912", "210001")):
        assert Month(name).next == Month(after)


@pytest.mark.exhaustive
def test_months_are_made_ahead_and_once(db: Database) -> None:
    with db.read() as connection:
        now = upkeep.this_month(connection)
    three = [now, now.next, now.next.next]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: upkeep.maintain(db, ahead=2), range(4)))
    assert sorted(made, key=len) == [[], [], [], three], "by one of those that call at once"
    assert months(db) == [month.name for month in three]
    run_id = start(db)
    assert run_id.startswith(now.name)
    work(db, run_id, failing=FAILING)
    for table in ("item", "attribution", "shard_aggregate"):
        assert where(db, table, run_id).keys() == {f"{table}_{now.name}"}
    revisions.check(db)


@pytest.mark.exhaustive
def test_ids_of_earlier_versions_and_months_without_partition_are_not_refused(db: Database) -> None:
    upkeep.maintain(db)
    homes = {
        "0123456789ab": "low",
        "ffffffffffff": "high",
        "207a00000000": "default",
        "20310105-00000000": "default",
    }
    for run_id, home in homes.items():
        run_of(db, run_id)
        for table in ("item", "attribution", "shard_aggregate"):
            assert where(db, table, run_id).keys() == {f"{table}_{home}"}


@pytest.mark.exhaustive
def test_rows_that_the_default_took_are_moved_and_stay_the_same(db: Database) -> None:
    late = run_of(db, "20310105-00000000")
    neighbour = run_of(db, "203101000000")  # hexadecimal, and inside the bounds of that month
    other = run_of(db, "20310205-00000000", worked=False)
    claim = shards.claim(db, other, "w", 60)
    before = {one: content(db, one) for one in (late, neighbour)}
    made = upkeep.maintain(db, ahead=0)
    assert [month.name for month in made][1:] == ["203101", "203102"]
    for one in (late, neighbour):
        assert content(db, one) == before[one]
        assert where(db, "attribution", one) == {"attribution_203101": 18}
    results.save(db, claim, make_result(claim.shard))
    assert where(db, "attribution", other) == {"attribution_203102": 8}
    revisions.check(db)


def test_keys_hold_in_new_months(db: Database) -> None:
    upkeep.maintain(db, ahead=0)
    run_id = start(db)
    work(db, run_id, failing=FAILING)
    with pytest.raises(Exception, match="foreign key"), db.begin() as connection:
        connection.execute(text("UPDATE shard_aggregate SET shard = 77 + shard"))
    with pytest.raises(Exception, match="unique"), db.begin() as connection:
        connection.execute(text("UPDATE attribution SET ordinal = 0"))
    age(db, run_id)
    assert [old.id for old in upkeep.prune(db, upkeep.Age(60.0)).runs] == [run_id]
    assert not any(where(db, table, run_id) for table in PARTITIONED)


@pytest.mark.exhaustive
def test_nothing_is_lost_while_workers_write(db: Database) -> None:
    ids = [run_of(db, f"203{year}0105-0000000{year}", worked=False) for year in range(4)]
    begun = threading.Event()

    def save(run_id: str) -> None:
        while (claim := shards.claim(db, run_id, "w", 60)) is not None:
            results.save(db, claim, make_result(claim.shard))
            begun.set()

    with ThreadPoolExecutor(4) as pool:
        saving = [pool.submit(save, run_id) for run_id in ids]
        assert begun.wait(30)
        upkeep.maintain(db, ahead=0)
        for one in saving:
            one.result()
    for year, run_id in enumerate(ids):
        assert len(list(readers.iter_attributions(db, run_id))) == 24
        assert where(db, "attribution", run_id) == {f"attribution_203{year}01": 24}


@pytest.mark.exhaustive
def test_busy_tables_are_not_waited_for_for_ever(db, monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "_LOCK_TRIES", 2)
    with db.read() as reader:
        reader.execute(text("SELECT count(*) FROM attribution"))
        with pytest.raises(DatabaseError, match="busy the whole"):
            upkeep.maintain(db)
    assert months(db) == []
    assert upkeep.maintain(db)


def test_a_worker_writes_into_partitions_that_only_the_owner_makes(db, role) -> None:
    """Rights on the tables are enough: on their partitions the worker has none."""
    upkeep.maintain(db, ahead=0)
    [month] = months(db)
    tables = ", ".join(("run", "shard", "pending_shards", *PARTITIONED))
    with role(db, f"SELECT, INSERT, UPDATE, DELETE ON {tables}") as other:
        run_id = start(other)
        work(other, run_id)
        assert where(other, "attribution", run_id) == {f"attribution_{month}": 24}
        assert upkeep.maintain(other, ahead=0) == []
        with pytest.raises(ConfigurationError, match="role 'postgres'"):
            upkeep.maintain(other, ahead=1)
