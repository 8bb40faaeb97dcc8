"""Rows of results: replaced as a whole, gone with their run, and there of runs that are over."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select, update
from store_samples import claimed, make_result, make_rows, start, work

from transexplain.errors import ConfigurationError
from transexplain.store import result_rows, results, runs, shards, upkeep
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.result_tables import RESULT_TABLES, entity_result
from transexplain.store.schema import run


def worked(db: Database, *, failing: bool = False) -> str:
    """A run that is over; `failing`: one of its shards gave up."""
    run_id = start(db, max_attempts=1)
    if failing:
        assert shards.fail(db, claimed(db, run_id), "broken") == "dead"
    work(db, run_id)
    return run_id


def counts(db: Database, run_id: str) -> dict[str, int]:
    with db.read() as connection:
        return {
            table.name: connection.execute(
                select(func.count()).select_from(table).where(table.c.run_id == run_id)
            ).scalar_one()
            for table in RESULT_TABLES
        }


def filled(count: int) -> dict[str, int]:
    return {table.name: count if "ordinal" in table.c else 1 for table in RESULT_TABLES}


NONE = dict.fromkeys(filled(0), 0)


def test_rows_are_read_as_they_were_written_and_replaced_as_a_whole(db: Database) -> None:
    run_id = worked(db)
    for count in (3, 2, 2):
        assert result_rows.replace(db, run_id, make_rows(count))
        assert counts(db, run_id) == filled(count)
    wanted = make_rows(2)
    with db.read() as connection:
        for table in RESULT_TABLES:
            query = select(table).order_by(*table.primary_key)
            for place, row in enumerate(connection.execute(query).mappings()):
                kept = dict(row)
                assert kept.pop("run_id") == run_id
                assert kept.pop("ordinal", place) == place
                if "written" in kept:
                    assert kept.pop("written") > 1.7e9
                assert kept == wanted[table.name][place]


def test_a_table_may_have_no_row_and_any_text(db: Database) -> None:
    run_id = worked(db)
    rows = {name: found[:1] for name, found in make_rows().items()}
    rows["class_word"] = []
    rows["entity_result"] = [
        {**rows["entity_result"][0], "entity": "NUL \0 and \ud800", "place": None}
    ]
    assert result_rows.replace(db, run_id, rows)
    assert counts(db, run_id)["class_word"] == 0
    with db.read() as connection:
        query = select(entity_result.c["entity"], entity_result.c["place"])
        assert connection.execute(query).all() == [("NUL \0 and \ud800", None)]


def test_what_cannot_be_written_leaves_the_rows_before(db: Database) -> None:
    run_id = worked(db)
    result_rows.replace(db, run_id, make_rows())
    broken = make_rows(5)
    broken["run_metric"][4]["value"] = None
    with pytest.raises(Exception, match=r"(?i)not.null"):
        result_rows.replace(db, run_id, broken)
    assert counts(db, run_id) == filled(2)


def test_rows_are_those_of_the_last_end(db: Database) -> None:
    going, over = start(db), worked(db)
    ended = runs.get(db, over).finished
    assert not result_rows.replace(db, going, make_rows()), "it is not over"
    assert not result_rows.replace(db, over, make_rows(), ended - 1.0), "it was over before"
    assert counts(db, going) == counts(db, over) == NONE
    assert result_rows.replace(db, over, make_rows(), ended)
    with pytest.raises(ConfigurationError, match="no run 'x'"):
        result_rows.replace(db, "x", make_rows())


def test_a_run_that_is_reopened_or_deleted_loses_its_rows_and_others_keep_theirs(
    db: Database,
) -> None:
    whole, broken = worked(db), worked(db, failing=True)
    for one in (whole, broken):
        assert result_rows.replace(db, one, make_rows())
        shards.redrive(db, one)
    assert counts(db, whole) == filled(2), "nothing was to be done again"
    assert counts(db, broken) == NONE
    backdate(db, whole, 100.0)
    assert [one.id for one in upkeep.prune(db, upkeep.Age(50.0)).runs] == [whole]
    assert counts(db, whole) == NONE, "they go with their run"


def backdate(db: Database, run_id: str, seconds: float) -> None:
    with db.begin() as connection:
        connection.execute(
            update(run).where(run.c.id == run_id).values(finished=DatabaseTime() - seconds)
        )


def test_runs_that_are_over_and_have_no_rows(db: Database) -> None:
    done, cancelled, written, empty = worked(db), start(db), worked(db), start(db)
    claim = claimed(db, cancelled)
    results.save(db, claim, make_result(claim.shard))
    assert runs.cancel(db, cancelled) and runs.cancel(db, empty)
    result_rows.replace(db, written, make_rows())
    start(db)
    for place, one in enumerate((done, cancelled, written)):
        backdate(db, one, 300.0 - 100.0 * place)
    assert result_rows.over(db) == [done, cancelled]
    assert result_rows.over(db, again=True) == [done, cancelled, written]
    assert result_rows.over(db, at_least=250.0) == [done]
    assert result_rows.over(db, at_most=250.0) == [cancelled]


def test_writers_at_once_leave_the_rows_of_one(db: Database) -> None:
    run_id = worked(db)

    def write(count: int) -> Any:
        return [result_rows.replace(db, run_id, make_rows(count)) for _ in range(5)]

    with ThreadPoolExecutor(3) as pool:
        assert all(all(found) for found in pool.map(write, (2, 3, 4)))
    assert counts(db, run_id) in [filled(count) for count in (2, 3, 4)]


def test_no_name_of_a_column_needs_quotes() -> None:
    from sqlalchemy.dialects import postgresql, sqlite

    for dialect in (postgresql.dialect(), sqlite.dialect()):
        preparer = dialect.identifier_preparer
        for table in RESULT_TABLES:
            for name in (table.name, *table.c.keys()):
                assert preparer.quote(name) == name, f"{dialect.name}: {table.name}.{name}"
