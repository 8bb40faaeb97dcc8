"""Who closes or reports a run has its rows written, and none of them fails because of that."""

import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from report_samples import biased_run
from sqlalchemy import func, select, update
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.dispatch import finish
from orchestrator.plan import prepare_audit
from orchestrator.schedule.tick import periodic_tasks
from orchestrator.spec import load_spec
from transexplain.reports import sql_results
from transexplain.reports.summary import summarised
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.result_tables import group_result, run_metric, run_result
from transexplain.store.revisions import open_database
from transexplain.store.schema import run
from workers import device_worker
from workers.claim_to_commit import Workbench


def written(db: Database) -> dict[str, float]:
    """Run -> when its rows were written."""
    with db.read() as connection:
        query = select(run_result.c.run_id, run_result.c.written)
        return {row.run_id: row.written for row in connection.execute(query)}


def metric(db: Database, run_id: str, name: str) -> float:
    query = select(run_metric.c.value).where(
        run_metric.c.run_id == run_id, run_metric.c.name == name
    )
    with db.read() as connection:
        return float(connection.execute(query).scalar_one())


def older(db: Database, run_id: str, seconds: float) -> None:
    with db.begin() as connection:
        over = DatabaseTime() - seconds
        connection.execute(update(run).where(run.c.id == run_id).values(finished=over))


def test_a_report_writes_them_whole_also_where_it_is_redacted(db: Database, tmp_path: Path) -> None:
    run_id, before = biased_run(db), 0.0
    redacted = finish.ReportOptions(fewest=20)
    for make in (
        lambda: finish.report(db, run_id, tmp_path, show=False),
        lambda: finish.as_json(db, run_id, redacted),
    ):
        make()
        assert before < written(db)[run_id]
        before = written(db)[run_id]
        with db.read() as connection:
            fewest = select(func.min(group_result.c.documents))
            assert connection.execute(fewest).scalar_one() < 20


def test_a_run_that_goes_on_and_an_evaluation_have_none(db: Database) -> None:
    run_id = biased_run(db, leave=1)
    finish.as_json(db, run_id)
    assert written(db) == {}
    assert not sql_results.close(db, run_id)
    assert not sql_results.write(db, biased_run(db, task="evaluation"))


@pytest.mark.parametrize("how", ["keep", "close"])
def test_what_goes_wrong_is_logged_and_nothing_fails(
    db: Database, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = biased_run(db)

    def broken(*_: object) -> None:
        raise ValueError("quotes a text")

    monkeypatch.setattr("transexplain.store.result_rows.replace", broken)
    with caplog.at_level(logging.WARNING):
        if how == "keep":
            assert run_id in finish.as_json(db, run_id)[0]
        else:
            assert not sql_results.close(db, run_id)
    [record] = caplog.records
    assert "ValueError" in record.getMessage() and "quotes" not in record.getMessage()
    assert f"transexplain report {run_id}" in record.getMessage()
    monkeypatch.undo()
    assert sql_results.close(db, run_id)


def test_a_report_from_a_file_that_cannot_be_written_is_made(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = biased_run(db)
    assert db.path is not None
    url = f"sqlite:///file:{db.path}?mode=ro&uri=true"
    with Database(url) as reader:
        summary, total = summarised(reader, run_id)
        sql_results.keep(reader, summary, total)
    assert "not in the SQL tables" in caplog.text
    assert written(db) == {}


def test_those_that_nobody_wrote_are_written_once_by_the_tick_of_beat(
    db: Database, tmp_path: Path
) -> None:
    fresh, forgotten, ancient = (biased_run(db) for _ in range(3))
    older(db, forgotten, sql_results.PATIENCE + 60)
    older(db, ancient, sql_results.GIVEN_UP + 60)
    settings = Settings(snapshot_dir=tmp_path, broker_url="redis://127.0.0.1:1/0")
    tick, _ = periodic_tasks(db, settings, 30.0)["transexplain.tick"]
    tick()
    assert set(written(db)) == {forgotten}
    older(db, fresh, sql_results.PATIENCE + 60)
    assert sql_results.close_forgotten(db) == [], "another process looked a moment ago"


# ---- by verbs, and by a worker --------------------------------------------------------------


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.mark.exhaustive
def test_run_cancel_and_db_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    spec = make_audit(tmp_path, items=24, evaluation={"items": 0})
    assert call("run", str(spec), "--db", url, "--quiet").exit_code == 0
    with open_database(url) as db:
        [done] = written(db)
        assert metric(db, done, "items_explained") == 24
        prepared = prepare_audit(load_spec(spec), Settings(database_url=url))
        half = runs.create(db, prepared.plan, prepared.shards)
        bench = Workbench(db=db, settings=Settings(database_url=url))
        bench.models.put(prepared.plan.model, prepared.model)
        assert bench.work(half) == "done"
        empty = runs.create(db, prepared.plan, prepared.shards)
        for one in (half, empty):
            assert "cancelled" in call("cancel", one, "--db", url).output
        assert written(db).keys() == {done, half}
        assert metric(db, half, "items_explained") == 8
        assert metric(db, half, "items_pending") == 16
        first = written(db)
        assert "0 runs written" in call("db", "results", "--db", url).output
        assert "2 runs written" in call("db", "results", "--again", "--db", url).output
        assert all(written(db)[one] > first[one] for one in first)


Bench = Callable[..., tuple[Workbench, str]]


@pytest.fixture
def bench(tmp_path: Path, db: Database) -> Bench:
    """A workbench and a run of three shards; its closing call is given."""

    def make(closing: Callable[[str, threading.Event], None] | None) -> tuple[Workbench, str]:
        settings = Settings(database_url=f"sqlite:///{db.path}", snapshot_dir=tmp_path / "snaps")
        spec = load_spec(make_audit(tmp_path, items=24, evaluation={"items": 0}))
        prepared = prepare_audit(spec, settings)
        run_id = runs.create(db, prepared.plan, prepared.shards)
        made = Workbench(db=db, settings=settings, closing=closing)
        made.models.put(prepared.plan.model, prepared.model)
        return made, run_id

    return make


def test_a_worker_that_closes_a_run_calls_once_without_a_lease(db: Database, bench: Bench) -> None:
    calls: list[tuple[str, str, list[str], int]] = []

    def closing(run_id: str, stop: threading.Event) -> None:
        assert not stop.is_set()
        keepers = [one for one in threading.enumerate() if one.name == "lease-keeper"]
        states = [one.state for one in shards.list_shards(db, run_id)]
        calls.append((run_id, runs.get(db, run_id).state, states, len(keepers)))
        assert made.device.room == 2, "the device may go on with another shard"

    made, run_id = bench(closing)
    assert [made.work(run_id) for _ in range(4)] == ["done"] * 3 + ["nothing"]
    assert calls == [(run_id, "done", ["done"] * 3, 0)]


def test_a_worker_that_is_to_end_leaves_them_to_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closing(*_: object) -> None:
        raise AssertionError("it is to end")

    made, run_id = bench(closing)
    assert [made.work(run_id) for _ in range(2)] == ["done"] * 2
    finalise = runs.finalise

    def finalise_then_stop(db: Database, run_id: str) -> bool:
        made.stop.set()
        return finalise(db, run_id)

    monkeypatch.setattr(runs, "finalise", finalise_then_stop)
    assert made.work(run_id) == "done"
    assert runs.get(made.db, run_id).state == "done"


@pytest.mark.exhaustive
def test_a_process_of_its_own_writes_them(db: Database, bench: Bench) -> None:
    made, run_id = bench(partial(device_worker._close, f"sqlite:///{db.path}"))
    assert [made.work(run_id) for _ in range(3)] == ["done"] * 3
    assert metric(db, run_id, "items_explained") == 24
    assert multiprocessing.active_children() == []


def test_a_worker_that_ends_waits_for_no_process(db: Database) -> None:
    run_id = biased_run(db)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    begun = time.monotonic()
    sql_results.close_apart(f"sqlite:///{db.path}", run_id, stop)
    assert time.monotonic() - begun < 10.0
    assert multiprocessing.active_children() == []
