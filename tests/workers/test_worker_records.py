"""Every line about a shard says which, of which run, at which attempt, by whom: whoever logs it."""

import contextlib
import io
import json
import logging
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from chaos_groups import wait_for
from gallery import prepare as prepared_audit
from local_receivers import WebReceiver, web_receiver
from poisonous_encoders import Poisonous
from tiny_audit import make_audit

from orchestrator.dispatch import local
from orchestrator.plan import PreparedAudit
from transexplain.errors import DatabaseError
from transexplain.models.loaded_model import Encoded
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.types.device_time import STAGES, DeviceTime, together
from transexplain.types.items import Item, ItemFailure
from workers import claim_to_commit, heartbeat, logs, tracing, work_meter
from workers.claim_to_commit import Workbench
from workers.device_worker import ShardTask
from workers.heartbeat import LeaseKeeper
from workers.work_meter import WorkMeter, checks, in_hand

ABOUT = ("run", "shard", "attempt", "worker")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SECRET = "Zanzibar-4711"


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
    monkeypatch.setattr(logs, "_configured", [])
    monkeypatch.setattr(logs, "_fields_of_all", {})
    logs.begin()  # whatever tests of this process have worked on
    logs.configure(request.param)
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(found.stream)
    try:
        yield found
    finally:
        root.handlers, root.level = before, level


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedAudit:
    """An audit of which one text is a secret."""
    folder = tmp_path_factory.mktemp("audit")
    lines = {3: f'{{"text": "{SECRET} film", "label": "good"}}'}
    return prepared_audit(make_audit(folder, lines=lines, evaluation={"items": 0}), folder)


@pytest.mark.exhaustive
def test_all_threads_of_a_run_name_the_shard(
    db: Database, prepared: PreparedAudit, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transexplain.explaining import item_loop, reading

    def loud(place: Any, name: str, text: str) -> None:
        real = getattr(place, name)

        def call(*args: Any, **options: Any) -> Any:
            logging.getLogger("loud").warning("%s", text)
            return real(*args, **options)

        monkeypatch.setattr(place, name, call)

    loud(reading, "read_part", "reading")
    loud(claim_to_commit, "compute", "computing")
    loud(item_loop, "finished", "finishing")
    loud(results, "save", "committing")
    loud(LeaseKeeper, "_keep", "keeping")
    run_id = runs.create(db, prepared.plan, prepared.shards)
    local.run_here(db, run_id, Settings(), model=prepared.model)
    for text in ("reading", "computing", "finishing", "committing", "keeping"):
        found = written.lines(text)
        assert {one.get("shard") for one in found} == set("01234"), text
        assert {(one["run"], one["attempt"]) for one in found} == {(run_id, "1")}, text
        assert all(one["worker"].count(":") == 2 for one in found), text


def test_a_keeper_that_cannot_renew_says_so_by_its_shard(
    db: Database, prepared: PreparedAudit, written: Written, monkeypatch: pytest.MonkeyPatch
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
        wait_for(lambda: keeper.lost, "the end of the lease", 60)
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
@pytest.mark.parametrize("written", ["json"], indirect=True)
def test_processes_that_read_name_the_shard(
    db: Database, prepared: PreparedAudit, written: Written, tmp_path: Path
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
    db: Database, prepared: PreparedAudit, written: Written
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
    db: Database, prepared: PreparedAudit, written: Written
) -> None:
    logs.begin(run="old", shard=1, attempt=3)
    bench = Workbench(db=db, settings=Settings(), name="w")
    run_id = runs.create(db, prepared.plan, prepared.shards[:1])
    runs.cancel(db, run_id)
    assert bench.work(run_id) == "nothing"
    assert logs.known() == {"worker": "w", "run": run_id}
    logs.begin()


def resources(receiver: WebReceiver) -> list[Any]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    assert {path for path, _, _ in receiver.posts} == {"/v1/traces"}
    found = [ExportTraceServiceRequest.FromString(body) for _, _, body in receiver.posts]
    return [one for request in found for one in request.resource_spans]


def spans_of(receiver: WebReceiver) -> list[Any]:
    return [s for r in resources(receiver) for scope in r.scope_spans for s in scope.spans]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebReceiver]:
    """An OTLP receiver over HTTP."""
    pytest.importorskip("opentelemetry.sdk")
    with web_receiver() as found:
        monkeypatch.setenv(ENDPOINT, found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        tracing._tracing.cache_clear()
        try:
            yield found
        finally:
            if (begun := tracing._tracing()) is not None:
                begun[0].shutdown()
            tracing._tracing.cache_clear()


def bench_of(db: Database, prepared: PreparedAudit, **more: Any) -> Workbench:
    bench = Workbench(db=db, settings=Settings(**more), name="worker-1")
    bench.models.put(prepared.plan.model, prepared.model)
    return bench


def attributes(span: Any) -> dict[str, Any]:
    values = {one.key: one.value for one in span.attributes}
    return {
        key.removeprefix("transexplain."): getattr(value, value.WhichOneof("value"))
        for key, value in values.items()
    }


@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_shard_is_one_trace_from_claim_to_commit(
    db: Database, prepared: PreparedAudit, receiver: WebReceiver, processes: int
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards[:2])
    bench = bench_of(db, prepared, host_processes=processes)
    assert [bench.work(run_id) for _ in range(3)] == ["done", "done", "nothing"]
    bench.close()
    spans = spans_of(receiver)
    roots = [one for one in spans if one.name == "shard"]
    assert len(roots) == 2 and not any(one.parent_span_id for one in roots)
    assert len({one.trace_id for one in spans}) == 2, "one for each shard, none for no claim"
    for root in roots:
        mine = [one for one in spans if one.trace_id == root.trace_id]
        assert {one.name for one in mine} - {"check"} == {
            *("shard", "claim", "load", "read", "prepare"),
            *("explain", "batch", "finish", "commit"),
        }
        found = attributes(root)
        index = found.pop("shard")
        assert index in (0, 1)
        assert found == {
            "run": run_id, "attempt": 1, "worker": "worker-1", "device": "cpu", "items": 8,
            "end": "done",
        }  # fmt: skip
        by_id = {one.span_id: one for one in mine}
        explained = 0
        for one in mine:
            assert root.start_time_unix_nano <= one.start_time_unix_nano
            assert one.start_time_unix_nano <= one.end_time_unix_nano <= root.end_time_unix_nano
            assert one is root or one.parent_span_id in by_id
            assert not one.status.code and not one.status.message and not one.events
            if one.name == "batch":
                explained += attributes(one)["items"]
                assert by_id[one.parent_span_id].name == "explain"
        assert explained == 8
        assert sum(attributes(one)["items"] for one in mine if one.name == "read") == 8
    (service,) = {
        value.value.string_value
        for one in resources(receiver)
        for value in one.resource.attributes
        if value.key == "service.name"
    }
    assert service == "transexplain-worker"


def test_no_text_of_an_item_is_sent_even_where_one_is_the_reason_of_a_failure(
    db: Database, prepared: PreparedAudit, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards[:2])
    bench = bench_of(db, prepared)
    assert bench.work(run_id, 0) == "done"

    def refuses(*_: object, **__: object) -> None:
        raise ValueError(f"cannot read {SECRET}")

    monkeypatch.setattr(claim_to_commit, "compute", refuses)
    assert bench.work(run_id, 1) == "failed"
    bench.close()
    assert SECRET in str(shards.list_shards(db, run_id)[1].error), "the store has it"
    words = {SECRET, "unbelievably", "so-so"}
    for _, _, body in receiver.posts:
        assert not [word for word in words if word.encode() in body]
    failed = [one for one in spans_of(receiver) if one.status.code == 2]
    assert {one.name for one in failed} == {"shard", "explain"}
    assert not any(one.status.message or one.events for one in failed)
    (root,) = [one for one in failed if one.name == "shard"]
    assert attributes(root)["end"] == "failed"


def test_the_standard_variables_switch_it() -> None:
    here = {ENDPOINT: "http://x"}
    for variables in (
        here,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"},
        {**here, "OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "console, otlp"},
    ):
        assert tracing.is_wanted(variables), variables
    for variables in (
        *({}, {ENDPOINT: ""}, {"OTEL_SERVICE_NAME": "a"}),
        *({**here, "OTEL_SDK_DISABLED": "TRUE"}, {**here, "OTEL_TRACES_EXPORTER": "none"}),
    ):
        assert not tracing.is_wanted(variables), variables


@pytest.mark.exhaustive
def test_without_an_endpoint_nothing_is_made_or_imported(
    db: Database, prepared: PreparedAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    monkeypatch.setattr(tracing, "_tracing", cache(tracing._tracing.__wrapped__))
    run_id = runs.create(db, prepared.plan, prepared.shards[:1])
    bench = bench_of(db, prepared)
    assert bench.work(run_id) == "done"
    bench.close()
    assert not tracing.is_on() and tracing._tracing() is None
    assert tracing.span("a", items=1) is tracing.span("b"), "one object for all"
    watch = object()
    with tracing.batches(watch) as same:  # type: ignore[arg-type]
        assert same is watch
    check = "import sys, workers.claim_to_commit; print('opentelemetry' in sys.modules)"
    words = [sys.executable, "-c", check]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_without_the_extra_there_is_a_warning_and_work_goes_on(
    db: Database,
    prepared: PreparedAudit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setattr(tracing, "_tracing", cache(tracing._tracing.__wrapped__))
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    run_id = runs.create(db, prepared.plan, prepared.shards[:2])
    bench = bench_of(db, prepared)
    assert [bench.work(run_id) for _ in range(2)] == ["done", "done"]
    warned = [one for one in caplog.records if "'.[tracing]'" in one.getMessage()]
    assert len(warned) == 1


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(work_meter.time, "monotonic", made)
    return made


def work(meter: WorkMeter, clock: Clock) -> None:
    """Two items explained in 6 seconds, then five passes of checks in 2."""
    meter.batch_started()
    clock.now += 4.0
    meter.item_done()
    clock.now += 2.0
    meter.item_done()
    meter.check_started(3)
    clock.now += 1.0
    meter.check_started(2)
    clock.now += 1.0


def test_time_belongs_to_what_began_last(clock: Clock) -> None:
    meter = WorkMeter()
    work(meter, clock)
    assert in_hand([meter.cells]) == 2
    assert checks([meter.cells]) == (5, pytest.approx(1 / 7)), "the batch in hand is not over"
    meter.shard_ended()
    assert checks([meter.cells]) == (5, pytest.approx(2 / 8))
    assert in_hand([meter.cells]) == 0, "saved, or lost"


def test_an_item_that_fails_before_the_first_batch_takes_no_time(clock: Clock) -> None:
    meter = WorkMeter()
    meter.item_done()
    clock.now += 50.0
    assert (in_hand([meter.cells]), checks([meter.cells])) == (1, (0, 0.0))


def test_a_new_process_goes_on_with_the_counts_of_a_dead_one(clock: Clock) -> None:
    cells = [0.0] * work_meter.SIZE
    work(WorkMeter(cells), clock)
    WorkMeter(cells).shard_ended()  # by who found it dead
    assert (in_hand([cells]), checks([cells])[0]) == (0, 5)
    work(WorkMeter(cells), clock)
    assert (in_hand([cells]), checks([cells])[0]) == (2, 10)


def explained(meter: WorkMeter, clock: Clock, run: str, items: int = 2) -> None:
    """One shard: 3 s until its items are read, a batch of 4 s, and 1 s of counting its results."""
    meter.shard_begun(run)
    with meter.reading():
        clock.now += 3.0
    meter.batch_started(items)
    clock.now += 4.0
    for _ in range(items):
        meter.item_done()
    clock.now += 1.0
    meter.shard_ended()


def test_a_device_waits_for_what_goes_on_beside_it(clock: Clock) -> None:
    meter = WorkMeter()
    clock.now += 1000.0
    with meter.beside("loading"):
        clock.now += 7.0
    explained(meter, clock, "run")
    found = meter.device_seconds()
    assert found == {
        "busy": 4.0,
        "loading": 7.0,
        "reading": 3.0,
        "finishing": 1.0,
        "commit": 0.0,
        "no_work": 0.0,
    }, "what passed before there was work is nobody's"
    with meter.beside("commit"):
        clock.now += 2.0
    clock.now += 5.0
    explained(meter, clock, "run")
    found = meter.device_seconds()
    assert (found["commit"], found["no_work"], found["busy"]) == (2.0, 5.0, 4.0)


def test_what_goes_on_beside_a_busy_device_is_not_waited_for(clock: Clock) -> None:
    meter = WorkMeter()
    meter.shard_begun("run")
    meter.batch_started(1)
    with meter.beside("commit"), meter.beside("loading"):
        clock.now += 4.0
    assert meter.device_seconds() == {"busy": 4.0, **dict.fromkeys(STAGES, 0.0), "no_work": 0.0}


def test_a_shard_that_is_prepared_is_waited_for_by_an_idle_device_alone(clock: Clock) -> None:
    meter = WorkMeter()
    explained(meter, clock, "run")
    meter.device_seconds()
    with meter.beside("reading"):
        clock.now += 3.0
    meter.shard_begun("run")
    meter.batch_started(1)

    def prepares() -> None:
        with meter.beside("reading"), meter.reading():
            clock.now += 4.0

    other = threading.Thread(target=prepares)
    other.start()
    other.join()
    found = meter.device_seconds()
    assert (found["reading"], found["busy"]) == (3.0, 4.0)


def test_what_passes_between_two_runs_is_of_neither(clock: Clock) -> None:
    meter = WorkMeter()
    explained(meter, clock, "one")
    meter.device_seconds()
    with meter.beside("commit"):
        clock.now += 2.0
    clock.now += 3600.0
    explained(meter, clock, "other")
    found = meter.device_seconds()
    assert (found["commit"], found["no_work"], found["reading"]) == (0.0, 0.0, 3.0)


def test_the_share_that_was_waited_for_leaves_out_the_time_without_work(clock: Clock) -> None:
    seconds = {"busy": 6.0, "reading": 1.5, "commit": 0.5, "no_work": 100.0}
    time = DeviceTime(seconds=seconds, worker="w")
    assert time.waited == 0.25
    assert time.stages == {"reading": 1.5 / 8, "commit": 0.5 / 8}
    both = together([time, DeviceTime(seconds={"busy": 8.0})])
    assert (both.waited, both.worker) == (2.0 / 16.0, None)
    assert together([]).waited is None, "nobody noted it"
    assert time.document["waited"] == 0.25
    assert time.document["seconds"]["finishing"] == 0.0
