"""Every line about a shard says which, of which run, at which attempt, by whom: whoever logs it."""

import contextlib
import io
import json
import logging
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fresh_stores import fresh_store
from logged_elsewhere import log_what_is_known
from poisonous_encoders import Poisonous
from tiny_audit import make_audit

from orchestrator.dispatch import local
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import DatabaseError
from transexplain.models.loaded_model import Encoded
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.types.items import Item, ItemFailure
from workers import claim_to_commit, heartbeat, logs, reader_pool
from workers.claim_to_commit import Workbench
from workers.device_worker import ShardTask
from workers.heartbeat import LeaseKeeper

ABOUT = ("run", "shard", "attempt", "worker")


class Written:
    """What a process with these logs has written."""

    def __init__(self, form: logs.Format) -> None:
        self.form = form
        self.stream = io.StringIO()

    def lines(self, text: str) -> list[dict[str, str]]:
        """The fields of the lines with this text."""
        found = [one for one in self.stream.getvalue().splitlines() if text in one]
        return [fields_of(one, self.form) for one in found]


def fields_of(line: str, form: logs.Format) -> dict[str, str]:
    if form == "json":
        return {name: str(value) for name, value in json.loads(line).items() if name in ABOUT}
    if not line.endswith("]"):
        return {}
    return dict(one.split("=", 1) for one in line[:-1].rpartition(" [")[2].split(" "))


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """Logs as `--log-format` sets them, written to memory."""
    found, root = Written(request.param), logging.getLogger()
    before, level = list(root.handlers), root.level
    root.handlers = []
    monkeypatch.setattr(logs, "_process", logs._Process())
    logs.configure(request.param)
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(found.stream)
    try:
        yield found
    finally:
        root.handlers, root.level = before, level


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("audit")
    spec = load_spec(make_audit(folder, evaluation={"items": 0}))
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snaps"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


def loud(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, text: str) -> None:
    """Have a function log when it is called, in whatever thread that is."""
    real = getattr(place, name)

    def call(*args: Any, **options: Any) -> Any:
        logging.getLogger("loud").warning("%s in %s", text, threading.current_thread().name)
        return real(*args, **options)

    monkeypatch.setattr(place, name, call)


@pytest.mark.exhaustive
def test_all_threads_of_a_run_name_the_shard(
    db: Database, prepared: Prepared, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transexplain.explaining import item_loop, reading

    loud(monkeypatch, reading, "read_part", "reading")
    loud(monkeypatch, claim_to_commit, "compute", "computing")
    loud(monkeypatch, item_loop, "finished", "finishing")
    loud(monkeypatch, results, "save", "committing")
    loud(monkeypatch, LeaseKeeper, "_keep", "keeping")
    run_id = runs.create(db, prepared.plan, prepared.shards)
    local.run_here(db, run_id, Settings(), model=prepared.model)
    threads = {
        "reading": "shard-reader", "computing": "device", "finishing": "finishing",
        "committing": "shard_", "keeping": "lease-keeper",
    }  # fmt: skip
    for text, thread in threads.items():
        found = written.lines(f"{text} in {thread}")
        assert {one.get("shard") for one in found} == set("01234"), text
        for one in found:
            assert (one["run"], one["attempt"]) == (run_id, "1"), text
            assert one["worker"].count(":") == 2, text


def test_a_keeper_that_cannot_renew_says_so_by_its_shard(
    db: Database, prepared: Prepared, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    answers: list[bool | Exception] = [DatabaseError("it is away"), ValueError("secret"), False]

    def renew(*_: object) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(heartbeat.shards, "renew", renew)
    claim = shards.claim(db, run_id, "w", 60.0)
    assert claim is not None
    logs.begin(worker="w", run=run_id, shard=0, attempt=1)
    with LeaseKeeper(db, claim, lease_seconds=0.03, item_deadline=60.0) as keeper:
        deadline = time.monotonic() + 60
        while not keeper.lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    logs.begin()
    wanted = {"worker": "w", "run": run_id, "shard": "0", "attempt": "1"}
    assert written.lines("is not renewed") == [wanted, wanted]
    assert written.lines("is lost") == [wanted]
    assert "it is away" in written.stream.getvalue() and "secret" not in written.stream.getvalue()


class Telling(Poisonous):
    """Writes, in another process than this, what its logs would: a line of each call."""

    def __init__(self, encoder: Any, path: Path) -> None:
        super().__init__(encoder)
        self.path = path

    def encode(self, items: Sequence[Item], **options: Any) -> list[Encoded | ItemFailure]:
        if multiprocessing.parent_process() is not None:
            (handler,) = logging.getLogger().handlers
            record = logging.makeLogRecord({"msg": "encoding", "levelname": "WARNING"})
            assert handler.filter(record)
            with self.path.open("a", encoding="utf-8") as out:
                out.write(f"{handler.format(record)}\n")
        return super().encode(items, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "written", [pytest.param("text", marks=pytest.mark.exhaustive), "json"], indirect=True
)
def test_processes_that_read_name_the_shard(
    db: Database, prepared: Prepared, written: Written, tmp_path: Path
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = Workbench(db=db, settings=Settings(host_processes=1), name="reads")
    encoder = Telling(prepared.model.encoder, tmp_path / "told")
    bench.models.put(prepared.plan.model, replace(prepared.model, encoder=encoder))
    with contextlib.closing(bench):
        assert [bench.work(run_id, index) for index in (3, 1)] == ["done", "done"]
    logs.begin()
    told = (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    wanted = {"worker": "reads", "run": run_id, "attempt": "1"}
    assert [fields_of(one, written.form) for one in told] == [
        {**wanted, "shard": "3"},
        {**wanted, "shard": "1"},
    ]


def test_the_process_that_closes_a_run_logs_as_its_worker(written: Written, tmp_path: Path) -> None:
    logs.for_process(worker="w")
    logs.begin(run="r", shard=4, attempt=2)
    prepare = partial(logs.join, logs.carried())
    logs.begin()
    path = tmp_path / "told"
    process = multiprocessing.get_context("spawn").Process(
        target=log_what_is_known, args=(prepare, str(path))
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0
    wanted = {"worker": "w", "run": "r", "shard": "4", "attempt": "2"}
    assert fields_of(path.read_text(encoding="utf-8"), written.form) == wanted


def test_lines_of_celery_name_the_shard_of_their_task(written: Written) -> None:
    logs.for_process(worker="w")
    log = logging.getLogger("celery.worker.strategy")
    log.info("received", extra={"data": {"args": "('20261125-0a1b2c3d', 7)", "name": "x"}})
    assert written.lines("received") == [{"worker": "w", "run": "20261125-0a1b2c3d", "shard": "7"}]
    for odd in ("()", "('a b', 7)", "('x', 7, 8)", None):
        log.info("odd", extra={"data": {"args": odd}})
    log.info("odd", extra={"data": "no mapping"})
    about = {} if written.form == "text" else {"worker": "w"}
    assert written.lines("odd") == [about] * 5, "text names the worker of lines about shards alone"


def test_a_task_keeps_its_fields_until_celery_has_reported_it(
    db: Database, prepared: Prepared, written: Written
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = Workbench(db=db, settings=Settings(), name="w")
    bench.models.put(prepared.plan.model, prepared.model)
    from celery import Celery

    task = ShardTask(Celery("x"), bench, lambda: None, 0)
    from unittest.mock import Mock

    def traced() -> None:
        assert task.run(Mock(), run_id, 2)["end"] == "done"
        logging.getLogger("celery.app.trace").info("succeeded")

    copy_context().run(traced)
    wanted = {"worker": "w", "run": run_id, "shard": "2", "attempt": "1"}
    assert written.lines("shard ended: done") == written.lines("succeeded") == [wanted]
    logging.getLogger("x").info("afterwards")
    assert written.lines("afterwards") == [{}], "of the next task's thread"


def test_the_last_line_of_a_process_that_hangs_is_a_line_of_its_log(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    out = io.StringIO()
    monkeypatch.setattr(heartbeat.sys, "__stderr__", out)
    monkeypatch.setattr(heartbeat.faulthandler, "dump_traceback", lambda _: None)
    monkeypatch.setattr(heartbeat.os, "_exit", ended.append)
    logs.for_process(worker="w")
    logs.begin(run="r", shard=4, attempt=2)
    held = logging.getLogger().handlers[0].lock
    assert held is not None
    with held:  # by a thread that hangs, too
        thread = threading.Thread(target=copy_context().run, args=(heartbeat.end_process, "hung"))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    logs.begin()
    assert ended == [heartbeat.EXIT_HUNG]
    (line,) = out.getvalue().splitlines()
    assert "hung" in line
    wanted = {"worker": "w", "run": "r", "shard": "4", "attempt": "2"}
    assert fields_of(line, written.form) == wanted


def test_a_shard_leaves_no_fields_to_the_next(
    db: Database, prepared: Prepared, written: Written
) -> None:
    logs.begin(run="old", shard=1, attempt=3)
    bench = Workbench(db=db, settings=Settings(), name="w")
    run_id = runs.create(db, prepared.plan, prepared.shards[:1])
    runs.cancel(db, run_id)
    assert bench.work(run_id) == "nothing"
    assert logs.known() == {"worker": "w", "run": run_id}
    logs.begin()


def test_a_pool_that_reads_in_a_thread_takes_the_context_of_who_asks(written: Written) -> None:
    pool = reader_pool.ReaderPool(0, 60.0)
    try:
        logs.begin(run="r", shard=4)
        future = pool._thread.submit(copy_context().run, logs.known)
        assert future.result(30) == {"run": "r", "shard": 4}
    finally:
        logs.begin()
        pool.close()
