"""What `prune` deletes and what it must keep, on both databases."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
from sqlalchemy import event, func, insert, select, update
from store_samples import start, work

from transexplain.errors import ConfigurationError
from transexplain.store import readers, runs, schedules, upkeep
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.schedules import Planned, Receiver
from transexplain.store.schema import fire_delivery, metadata, run, schedule_fire

DAY = 86_400.0


def old_run(db: Database, days: float, run_id: str | None = None, name: str = "daily") -> str:
    """A worked-off run that is over for so many days."""
    with mock.patch.object(runs, "_new_id", return_value=run_id) if run_id else mock.MagicMock():
        made = start(db, name=name)
    work(db, made, failing=frozenset({0, 4, 8}))
    age(db, made, days)
    return made


def age(db: Database, run_id: str, days: float) -> None:
    moment = DatabaseTime() - days * DAY
    with db.begin() as connection:
        connection.execute(
            update(run).where(run.c.id == run_id).values(created=moment, finished=moment)
        )


def ids(db: Database) -> set[str]:
    return {one.id for one in runs.list_runs(db)}


def rows_left(db: Database, run_id: str) -> dict[str, int]:
    with db.read() as connection:
        counts = {
            table.name: connection.execute(
                select(func.count()).select_from(table).where(table.c.run_id == run_id)
            ).scalar_one()
            for table in metadata.sorted_tables
            if "run_id" in table.c
        }
    return {name: count for name, count in counts.items() if count}


def planned(name: str) -> Planned:
    return Planned(
        name=name,
        cron="0 3 * * *",
        time_zone="UTC",
        spec={},
        receivers=(Receiver(kind="json", address="http://x/"),),
    )


def fired(db: Database, name: str, at: float, run_id: str | None, **values: object) -> None:
    row = {"schedule": name, "at": at, "created": at, "run_id": run_id}
    with db.begin() as connection:
        connection.execute(insert(schedule_fire).values(**(row | values)))


def waiting(db: Database, name: str, at: float) -> None:
    row = {"schedule": name, "at": at, "number": 1, "state": "waiting", "attempts": 0}
    with db.begin() as connection:
        connection.execute(insert(fire_delivery).values(**row))


def test_old_runs_go_with_all_their_rows_and_young_ones_stay(db: Database) -> None:
    old, young = old_run(db, 91), old_run(db, 89)
    kept = rows_left(db, young)
    [found] = upkeep.old_runs(db, upkeep.Age(90 * DAY))
    assert (found.id, found.name, found.items) == (old, "daily", 12)
    gone = upkeep.prune(db, upkeep.Age(90 * DAY))
    assert [one.id for one in gone.runs] == [old]
    assert gone.items == 12
    assert rows_left(db, old) == {}
    assert rows_left(db, young) == kept
    assert ids(db) == {young}
    assert upkeep.prune(db, upkeep.Age(90 * DAY)).runs == []


def test_cancelled_runs_go_and_running_ones_stay(db: Database) -> None:
    running, cancelled = (start(db) for _ in range(2))
    assert runs.cancel(db, cancelled)
    age(db, cancelled, 400)
    with db.begin() as connection:
        connection.execute(update(run).where(run.c.id == running).values(created=0.0))
    assert [one.id for one in upkeep.prune(db, upkeep.Age(DAY)).runs] == [cancelled]
    assert ids(db) == {running}


def test_the_newest_of_each_name_are_kept(db: Database) -> None:
    made = {name: [old_run(db, days, name=name) for days in (300, 200, 100)] for name in ("a", "b")}
    gone = upkeep.prune(db, upkeep.Age(90 * DAY, keep_last=2))
    assert {one.id for one in gone.runs} == {made["a"][0], made["b"][0]}


def test_runs_that_schedules_need_are_kept(db: Database) -> None:
    first, second, third, fourth = (old_run(db, days) for days in (400, 300, 200, 100))
    for name in ("nightly", "weekly", "removed"):
        schedules.add(db, planned(name))
    fired(db, "nightly", 1.0, first)
    fired(db, "nightly", 2.0, second, previous=first)
    fired(db, "nightly", 3.0, None, previous=second)  # nothing had changed
    fired(db, "removed", 1.0, third)
    schedules.remove(db, "removed")
    fired(db, "weekly", 1.0, fourth)
    # cancelled: the next fire compares with the one before
    cancelled = start(db)
    runs.cancel(db, cancelled)
    age(db, cancelled, 95)
    fired(db, "weekly", 2.0, cancelled)
    gone = {one.id for one in upkeep.prune(db, upkeep.Age(90 * DAY)).runs}
    assert gone == {first, third, cancelled}
    assert schedules.last_run(db, "nightly") == second
    assert schedules.last_run(db, "weekly") == fourth


def test_runs_that_a_verdict_needs_are_kept(db: Database) -> None:
    compared, posting, before, latest = (old_run(db, days) for days in (400, 300, 200, 100))
    schedules.add(db, planned("nightly"))
    fired(db, "nightly", 1.0, posting, previous=compared)
    waiting(db, "nightly", 1.0)
    fired(db, "nightly", 2.0, latest)
    running = start(db)
    schedules.add(db, planned("weekly"))
    fired(db, "weekly", 1.0, running, previous=before)
    assert upkeep.prune(db, upkeep.Age(90 * DAY)).runs == []
    with db.begin() as connection:
        connection.execute(update(fire_delivery).values(state="posted"))
    assert {one.id for one in upkeep.prune(db, upkeep.Age(90 * DAY)).runs} == {compared, posting}
    assert ids(db) == {before, latest, running}


def test_a_run_that_was_reopened_meanwhile_stays(db: Database) -> None:
    old = old_run(db, 100)
    [seen] = upkeep.old_runs(db, upkeep.Age(90 * DAY))
    with db.begin() as connection:
        connection.execute(
            update(run).where(run.c.id == old).values(state="running", finished=None)
        )
    assert not upkeep._delete(db, seen)
    assert len(list(readers.iter_items(db, old))) == 12


def test_an_interrupted_deletion_is_finished_by_the_next(db, monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "_ROWS", 5)
    old = old_run(db, 100)
    deleted = 0

    def die(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal deleted
        deleted += statement.startswith("DELETE FROM attribution")
        if deleted == 2:
            raise KeyboardInterrupt

    event.listen(db.engine, "before_cursor_execute", die)
    with pytest.raises(KeyboardInterrupt):
        upkeep.prune(db, upkeep.Age(90 * DAY))
    event.remove(db.engine, "before_cursor_execute", die)
    assert runs.get(db, old).state == "cancelled"
    assert "item" not in rows_left(db, old)
    assert rows_left(db, old)["attribution"] == 12
    assert [one.id for one in upkeep.prune(db, upkeep.Age(90 * DAY)).runs] == [old]
    assert rows_left(db, old) == {}


def test_two_at_once_delete_each_run_once(db: Database) -> None:
    old = {old_run(db, days) for days in (100, 200, 300)}
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: upkeep.prune(db, upkeep.Age(90 * DAY)), range(2)))
    assert sorted(one.id for part in both for one in part.runs) == sorted(old)
    assert ids(db) == set()


@pytest.fixture
def months(postgres_url: str) -> Iterator[Database]:
    """A PostgreSQL database with runs of three past months in partitions."""
    from transexplain.store.revisions import open_database

    days = {"0105": 300.0, "0106": 300.0, "0205": 280.0, "0206": 10.0, "0305": 200.0}
    with open_database(postgres_url, upgrade=True) as database:
        for date, age_of in days.items():
            old_run(database, age_of, f"2026{date}-00000000")
        upkeep.maintain(database)
        yield database


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_whole_months_are_dropped_others_deleted_by_row(months: Database) -> None:
    old_hex = old_run(months, 500, "abcdefabcdef")
    gone = upkeep.prune(months, upkeep.Age(90 * DAY))
    assert [month.name for month in gone.months] == ["202601", "202603"]
    assert gone.freed > 0
    pruned = {f"2026{date}-00000000" for date in ("0105", "0106", "0205", "0305")}
    assert {run.id for run in gone.runs} == pruned | {old_hex}
    assert ids(months) == {"20260206-00000000"}
    left = rows_left(months, "20260206-00000000")
    assert (left["item"], left["failure"]) == (9, 3)
    with months.read() as connection:
        names = {month.name for month in upkeep.months(connection)}
    assert "202602" in names and not {"202601", "202603"} & names


@pytest.mark.postgres
@pytest.mark.exhaustive
def test_a_month_whose_run_is_needed_by_now_is_not_dropped(months: Database) -> None:
    """Between the look and the lock a schedule began to need the run."""
    drop = upkeep._drop_month

    def late(db: Database, month: upkeep.Month, *rest: float) -> upkeep.PruneResult | None:
        if month.name == "202603":
            schedules.add(db, planned("nightly"))
            fired(db, "nightly", 1.0, "20260305-00000000")
        return drop(db, month, *rest)

    with mock.patch.object(upkeep, "_drop_month", late):
        gone = upkeep.prune(months, upkeep.Age(90 * DAY))
    assert [month.name for month in gone.months] == ["202601"]
    assert rows_left(months, "20260305-00000000")["attribution"] == 18


@pytest.mark.postgres
@pytest.mark.exhaustive
def test_only_the_owner_prunes(months: Database, role) -> None:
    with (
        role(months, "SELECT, DELETE ON ALL TABLES IN SCHEMA public") as other,
        pytest.raises(ConfigurationError, match="belong"),
    ):
        upkeep.prune(other, upkeep.Age(90 * DAY))
    assert len(ids(months)) == 5
