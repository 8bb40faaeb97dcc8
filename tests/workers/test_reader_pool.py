"""Items that other processes read and encode: the same bits, and each death is found and blamed."""

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gallery import prepare as prepared_audit
from poisonous_encoders import Closure, Poisonous
from region_pictures import make_region_audit
from short_lives import ends_at_once
from tiny_audit import make_audit

from orchestrator.plan import PreparedAudit
from transexplain.data.shard_reader import read_shard
from transexplain.errors import ConfigurationError, DataSourceError, InfrastructureError
from transexplain.explaining.reading import (
    ReadingJob,
    ReadPart,
    packed,
    parts_of,
    read_part,
    unpacked,
)
from transexplain.models.loaded_model import Encoded
from transexplain.settings import Settings, processes_of
from transexplain.store import readers, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import Caution
from transexplain.types.tokens import Tokens
from workers import child_process, reader_pool
from workers.claim_to_commit import Workbench
from workers.reader_pool import ReadAhead, ReaderPool, host_processes
from workers.work_meter import WorkMeter


@pytest.fixture
def texts(tmp_path: Path) -> PreparedAudit:
    spec = make_audit(tmp_path, lines={10: '{"text": "", "label": "good"}'})
    return prepared_audit(spec, tmp_path)


@pytest.fixture
def pictures(tmp_path: Path) -> PreparedAudit:
    return prepared_audit(make_region_audit(tmp_path, items=6), tmp_path)


@pytest.fixture
def pool() -> Iterator[ReaderPool]:
    made = ReaderPool(1, item_deadline=60.0)
    yield made
    made.close()


def same(one: Any, other: Any) -> bool:
    """Whether two entries hold the same, to the bit."""
    if not isinstance(one, Encoded):
        return bool(one == other)
    windows = zip(one.windows, other.windows, strict=True)
    return (
        replace(one.item, content=None) == replace(other.item, content=None)
        and one.inputs.keys() == other.inputs.keys()
        and all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)
        and all(one.inputs[name].dtype == other.inputs[name].dtype for name in one.inputs)
        and one.features == other.features
        and (one.length, one.truncated) == (other.length, other.truncated)
        and all(same(a.encoded, b.encoded) and (a.places == b.places).all() for a, b in windows)
    )


def all_parts(prepared: PreparedAudit) -> list[ReadPart]:
    return [part for shard in prepared.shards for part in parts_of(prepared.plan, shard)]


def test_packed_texts_are_the_same_texts(texts: PreparedAudit) -> None:
    (part, *_) = all_parts(texts)
    entries = read_part(ReadingJob.of(texts.plan, texts.model), part)
    made = [one for one in entries if isinstance(one, Encoded)]
    columns = [replace(one, features=Tokens.of(one.features)) for one in made]  # type: ignore[arg-type]
    several = [
        columns[0],
        ItemFailure(item_id="x", index=7, kind="null", message="nothing"),
        *made,
        *columns[1:],
        Item(id="y", index=8, content="unread"),
        replace(columns[0], item=replace(columns[0].item, second_at=3)),
        replace(columns[1], inputs={"input_ids": columns[1].inputs["input_ids"]}),
    ]
    again = unpacked(*packed(several))
    assert len(again) == len(several)
    assert all(same(one, other) for one, other in zip(several, again, strict=True))
    assert isinstance(again[0], Encoded)
    again[0].inputs["input_ids"][0] = 5  # it can be written to, as torch expects
    assert [one.item.content for one in again if isinstance(one, Encoded)][:1] == [
        columns[0].item.content
    ]
    assert unpacked(*packed([])) == []


@pytest.mark.parametrize("shared", [True, False])
def test_arrays_come_by_memory_that_lives_as_long_as_they(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    if not shared:
        monkeypatch.delattr("os.memfd_create")
    monkeypatch.setattr("transexplain.explaining.reading.LARGE", 1000)
    ours, theirs = multiprocessing.Pipe()
    several = [
        Encoded(
            item=Item(id=str(side), index=side, content=None),
            inputs={"pixel_values": torch.full((1, side, 251), float(side))},
            features=(),
            length=0,
            truncated=False,
        )
        for side in (90, 91, 400)
    ]
    for sent in (several, several[:1], []):
        child_process.send_entries(theirs, sent)
        kind, *rest = ours.recv()
        assert kind == "done"
        found = child_process.received_entries(ours, *rest)
        assert len(found) == len(sent)
        assert all(same(one, other) for one, other in zip(sent, found, strict=True))
        if found:
            kept = found[0].inputs["pixel_values"][:, 10:20]  # type: ignore[union-attr]
    kept += 1.0  # it can be written to, as torch expects
    assert torch.all(kept == 91.0)
    ours.close()
    theirs.close()


def bench_of(db: Database, prepared: PreparedAudit, **poison: Any) -> Workbench:
    """One that reads in a process, by an encoder that some items are poison for."""
    settings = Settings(host_processes=1, item_deadline=poison.pop("deadline", 60.0))
    bench = Workbench(db=db, settings=settings)
    encoder = Poisonous(prepared.model.encoder, **poison)
    bench.models.put(prepared.plan.model, replace(prepared.model, encoder=encoder))
    return bench


@pytest.mark.parametrize(
    ("poison", "cause"),
    [
        ({"kills": ["3"]}, "a process that read its items was killed by SIGKILL"),
        pytest.param(
            {"hangs": ["3"], "deadline": 3.0},
            "it hung, no progress within 3 seconds",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_text_that_ends_its_reader_is_found_and_goes_on_trial(
    db: Database, texts: PreparedAudit, poison: dict[str, Any], cause: str
) -> None:
    run_id = runs.create(db, texts.plan, texts.shards[:1])
    bench = bench_of(db, texts, **poison)
    try:
        assert bench.work(run_id) == "failed"
        (status,) = shards.list_shards(db, run_id)
        assert status.error == f"attempt 1: {cause}"
        assert status.caution.alone == frozenset(map(str, range(8))), "encoded by one call"
        assert bench.work(run_id) == "failed"
        (status,) = shards.list_shards(db, run_id)
        assert status.caution.accused == {"3"}
        assert bench.work(run_id) == "done", "a fresh process reads it"
    finally:
        bench.close()
    assert not list(readers.iter_items(db, run_id, only_failed=True))
    assert len({one.item_id for one in readers.iter_attributions(db, run_id)}) == 8


def test_an_item_in_quarantine_is_not_even_opened(pictures: PreparedAudit, tmp_path: Path) -> None:
    ref, shard = pictures.plan.dataset, pictures.shards[0]
    first, second = list(read_shard(ref, shard))[:2]
    assert isinstance(first, Item)
    (Path(ref.root) / str(first.source)).unlink()
    closed, *_ = read_shard(ref, shard, [first.id])
    assert isinstance(closed, Item)
    assert (closed.id, closed.content) == (first.id, None)
    caution = Caution(quarantined={first.id: "attempt 2: it died"})
    entries = read_part(ReadingJob.of(pictures.plan, pictures.model), ReadPart(shard, caution))
    assert entries[0] == closed
    assert isinstance(entries[1], Encoded)
    assert entries[1].item.id == second.id  # type: ignore[union-attr]


def test_an_error_in_a_process_is_the_error_of_its_shard(
    db: Database, texts: PreparedAudit, tmp_path: Path
) -> None:
    run_id = runs.create(db, texts.plan, texts.shards[:2])
    bench = bench_of(db, texts, fails=["3"])
    try:
        assert bench.work(run_id, 0) == "failed"
        snapshot = Path(texts.plan.dataset.snapshot)
        snapshot.write_bytes(snapshot.read_bytes() + b"x")
        assert bench.work(run_id, 1) == "failed"
    finally:
        bench.close()
    first, second = (one.error for one in shards.list_shards(db, run_id))
    assert first == "RuntimeError: UnsendableError: by hand, for the test"
    assert (second or "").startswith(f"{DataSourceError.__name__}: the dataset snapshot")


def test_what_cannot_be_sent_is_read_by_a_thread(
    texts: PreparedAudit, pool: ReaderPool, caplog: pytest.LogCaptureFixture
) -> None:
    model = replace(texts.model, encoder=Closure(texts.model.encoder))
    job = ReadingJob.of(texts.plan, model)
    assert not pool.prepare("run", job)
    assert not pool.prepare("run", job)
    assert "items are read by a thread" in caplog.text
    (part, *_) = all_parts(texts)
    found = pool.read("run", part).result(60)
    wanted = read_part(ReadingJob.of(texts.plan, texts.model), part)
    assert all(same(one, other) for one, other in zip(wanted, found, strict=True))


def test_processes_that_cannot_begin_are_given_up(
    texts: PreparedAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_pool, "_serve", ends_at_once)
    made = ReaderPool(1, item_deadline=60.0)
    made.prepare("run", ReadingJob.of(texts.plan, texts.model))
    (part, *_) = all_parts(texts)
    for message in (r"ended \(5\) before it read any", r"ended \(5\)", "--host-processes 0"):
        with pytest.raises(InfrastructureError, match=message):
            made.read("run", part).result(120)
    made.close()


class Slow:
    """A pool whose parts are read when the test says so."""

    processes = 2

    def __init__(self, *, watched: bool = True) -> None:
        self.asked: list[tuple[ReadPart, Future[list[Any]]]] = []
        self._watched = watched

    def prepare(self, key: str, job: ReadingJob) -> bool:
        self.job = job
        return self._watched

    def read(self, key: str, part: ReadPart) -> "Future[list[Any]]":
        self.asked.append((part, Future()))
        return self.asked[-1][1]


def claim_of(prepared: PreparedAudit, rows: int) -> Claim:
    shard = replace(prepared.shards[0], stop=rows)
    return Claim(run_id="r", shard=shard, token=1, attempt=1)


def test_what_is_read_and_not_taken_is_bounded(texts: PreparedAudit) -> None:
    slow = Slow()
    ahead = ReadAhead(slow, claim_of(texts, 256 * 9), texts.plan, texts.model, WorkMeter())  # type: ignore[arg-type]
    assert len(slow.asked) == 3, "what is explained together, and one for each process"
    entries = iter(ahead)
    for number in range(9):
        slow.asked[number][1].set_result([f"{number} a", f"{number} b"])
        assert [next(entries), next(entries)] == [f"{number} a", f"{number} b"]
        assert len(slow.asked) == min(9, number + 4)
    assert list(entries) == []
    spans = [(part.shard.start, part.shard.stop) for part, _ in slow.asked]
    assert spans == [(256 * number, 256 * (number + 1)) for number in range(9)]


@pytest.mark.exhaustive
def test_who_waits_for_items_sees_a_stop_and_does_not_hang(texts: PreparedAudit) -> None:
    from transexplain.explaining import Stopped

    stops = iter([False, False, True])
    moved: list[int] = []
    slow = Slow()
    claim = claim_of(texts, 8)
    waiting = {"should_stop": lambda: next(stops), "moved": lambda: moved.append(1)}
    ahead = ReadAhead(slow, claim, texts.plan, texts.model, WorkMeter(), **waiting)
    with pytest.raises(Stopped):
        list(ahead)
    assert len(moved) == 2
    thread = Slow(watched=False)
    stops = iter([False, True])
    ahead = ReadAhead(thread, claim, texts.plan, texts.model, WorkMeter(), **waiting)  # type: ignore[arg-type]
    with pytest.raises(Stopped):
        list(ahead)
    assert len(moved) == 2, "a thread that hangs is for the deadline of the shard"


def test_a_batch_begins_as_soon_as_its_items_are_there() -> None:
    from transexplain.explaining.explain_request import portions

    taken: list[int] = []

    def entries() -> Iterator[Item]:
        for number in range(5):
            taken.append(number)
            yield Item(id=str(number), index=number, content="")

    found = []
    for portion in portions(entries(), 2, {"3"}):
        found.append([one.id for one in portion])  # type: ignore[union-attr]
        assert len(taken) == sum(map(len, found)) or found[-1] == ["2"]
    assert found == [["0", "1"], ["2"], ["3"], ["4"]]


def test_how_many_processes_read_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_pool.os, "sched_getaffinity", lambda _: range(16), raising=False)
    assert host_processes(None, "cpu") == 0
    assert host_processes(3, "cpu") == 3
    assert host_processes(None, "cuda:0") == reader_pool.MOST == 12
    assert host_processes(None, "cuda:1", devices=4) == 3
    assert host_processes(None, "mps", devices=16) == 1
    assert host_processes(0, "cuda") == 0


def test_a_number_of_processes_is_read_as_a_person_writes_it() -> None:
    assert processes_of("auto", "X") is None
    assert processes_of("0", "X") == 0
    assert processes_of("12", "X") == 12
    for wrong in ("-1", "all", "1.5", "257", "²"):
        with pytest.raises(ConfigurationError, match="X="):
            processes_of(wrong, "X")


def test_the_shard_of_a_reader_that_a_signal_for_all_ended_is_given_back(
    db: Database, texts: PreparedAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, texts.plan, texts.shards[:1])
    bench = bench_of(db, texts, kills=["3"])
    signal = threading.Timer(0.1, bench.stop.set)
    real = Workbench._died

    def blamed(one: Workbench, *args: Any) -> Any:
        signal.start()
        return real(one, *args)

    monkeypatch.setattr(Workbench, "_died", blamed)
    try:
        assert bench.work(run_id) == "stopped"
    finally:
        bench.close()
    (status,) = shards.list_shards(db, run_id)
    assert (status.state, status.attempt, status.caution.alone) == ("queued", 0, frozenset())
