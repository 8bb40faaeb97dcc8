"""Traces of shards: sent to a real OTLP receiver, complete, and without any text."""

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fresh_stores import fresh_store
from tiny_audit import make_audit

from orchestrator.dispatch import local
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database
from workers import claim_to_commit, tracing
from workers.claim_to_commit import Workbench

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SECRET = "Zanzibar-4711"


class Receiver:
    """An OTLP receiver over HTTP: what it was sent, as it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def resources(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        found = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [one for request in found for one in request.resource_spans]

    def spans(self) -> list[Any]:
        return [s for r in self.resources() for scope in r.scope_spans for s in scope.spans]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    pytest.importorskip("opentelemetry.sdk")
    found = Receiver()
    monkeypatch.setenv(ENDPOINT, found.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setattr(tracing, "_tracing", tracing._Tracing())
    try:
        yield found
    finally:
        if tracing._tracing.provider is not None:
            tracing._tracing.provider.shutdown()
        found.close()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("audit")
    spec = load_spec(make_audit(folder, evaluation={"items": 0}, shard_size=20))
    path = folder / "texts.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[3] = f'{{"text": "{SECRET} film", "label": "good"}}'
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snaps"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


def bench_of(db: Database, prepared: Prepared, **more: Any) -> Workbench:
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
    db: Database, prepared: Prepared, receiver: Receiver, processes: int
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = bench_of(db, prepared, host_processes=processes)
    assert [bench.work(run_id) for _ in range(3)] == ["done", "done", "nothing"]
    bench.close()
    spans = receiver.spans()
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
            "run": run_id, "attempt": 1, "worker": "worker-1", "device": "cpu", "items": 20,
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
        assert explained == 20
        assert sum(attributes(one)["items"] for one in mine if one.name == "read") == 20
    (service,) = {
        value.value.string_value
        for one in receiver.resources()
        for value in one.resource.attributes
        if value.key == "service.name"
    }
    assert service == "transexplain-worker"


def test_no_text_of_an_item_is_sent_even_where_one_is_the_reason_of_a_failure(
    db: Database, prepared: Prepared, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = bench_of(db, prepared)
    assert bench.work(run_id, 0) == "done"

    def refuses(*_: object, **__: object) -> None:
        raise ValueError(f"cannot read {SECRET}")

    monkeypatch.setattr(claim_to_commit, "compute", refuses)
    assert bench.work(run_id, 1) == "failed"
    bench.close()
    assert SECRET in str(shards.list_shards(db, run_id)[1].error), "the store has it"
    words = {SECRET, "unbelievably", "so-so"}
    for body in receiver.bodies:
        assert not [word for word in words if word.encode() in body]
    failed = [one for one in receiver.spans() if one.status.code == 2]
    assert {one.name for one in failed} == {"shard", "explain"}
    assert not any(one.status.message or one.events for one in failed)
    (root,) = [one for one in failed if one.name == "shard"]
    assert attributes(root)["end"] == "failed"


def test_a_run_here_is_traced_through_its_threads(
    db: Database, prepared: Prepared, receiver: Receiver
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    local.run_here(db, run_id, Settings(), model=prepared.model)
    spans = receiver.spans()
    shard_of = {one.trace_id: one for one in spans if one.name == "shard"}
    assert len(shard_of) == 2
    assert {one.trace_id for one in spans} == set(shard_of)
    for name in ("read", "batch", "finish", "commit"):
        assert {one.trace_id for one in spans if one.name == name} == set(shard_of), name


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "false"}, True),
        ({ENDPOINT: "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://x", "OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({"OTEL_SERVICE_NAME": "a"}, False),
    ],
)
def test_the_standard_variables_switch_it(variables: dict[str, str], wanted: bool) -> None:
    assert tracing.is_wanted(variables) is wanted


@pytest.mark.exhaustive
def test_without_an_endpoint_nothing_is_made_or_imported(
    db: Database, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    monkeypatch.setattr(tracing, "_tracing", tracing._Tracing())
    run_id = runs.create(db, prepared.plan, prepared.shards[:1])
    bench = bench_of(db, prepared)
    assert bench.work(run_id) == "done"
    bench.close()
    assert not tracing.is_on() and tracing._tracing.provider is None
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
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setattr(tracing, "_tracing", tracing._Tracing())
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = bench_of(db, prepared)
    assert [bench.work(run_id) for _ in range(2)] == ["done", "done"]
    warned = [one for one in caplog.records if "'.[tracing]'" in one.getMessage()]
    assert len(warned) == 1
