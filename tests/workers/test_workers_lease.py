"""The lease keeper by a clock of its own: when it wakes, renews, notes and gives up."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from transexplain.store.runs import Claim
from transexplain.types.observer import NO_CAUTION
from transexplain.types.plans import Shard
from workers import heartbeat
from workers.heartbeat import LeaseKeeper


class Clock:
    """Time that passes while a thread waits, until `end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.end = 0.0, 0.0
        self.waits: list[float] = []
        self.thread: dict[str, Any] = {}
        threads = SimpleNamespace(
            Event=lambda: Alarm(self), Thread=self._thread, get_ident=lambda: 0
        )
        monkeypatch.setattr(heartbeat, "threading", threads)
        monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _thread(self, **options: Any) -> Any:
        self.thread = options
        return SimpleNamespace(start=lambda: None, join=lambda: None)

    def run(self, until: float) -> list[float]:
        """Let the keeper's thread work; how long it waited each time."""
        self.end, self.waits = until, []
        with suppress(OverError):
            self.thread["target"]()
        return self.waits


class OverError(Exception):
    """The clock's end is reached."""


class Alarm:
    """An event of `threading`; waiting for it takes time and raises at the clock's end."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._set = clock, False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        clock = self._clock
        clock.now = round(clock.now + seconds, 9)
        clock.waits.append(round(seconds, 9))
        if clock.now >= clock.end:
            raise OverError
        return self._set


class Store:
    """Records what the keeper requests of the database, with the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.requested: list[tuple[Any, ...]] = []
        self.held = True
        self._clock = clock
        for name in ("renew", "note", "hang"):
            monkeypatch.setattr(heartbeat.shards, name, self._recorded(name))

    def _recorded(self, name: str) -> Callable[..., bool]:
        def record(db: object, claim: Claim, *args: Any, **_: bool) -> bool:
            self.requested.append((self._clock.now, name, *args))
            return self.held

        return record


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Store:
    return Store(monkeypatch, clock)


def claimed(attempt: int = 1) -> Claim:
    shard = Shard(index=0, start=0, stop=4)
    return Claim(run_id="r", shard=shard, token=attempt, attempt=attempt, caution=NO_CAUTION)


def keeper(
    *, attempt: int = 1, batch: Sequence[str] = (), printed: list[str] | None = None, **times: float
) -> LeaseKeeper:
    seconds = {"lease_seconds": 9.0, "item_deadline": 100.0, **times}
    hung = printed.append if printed is not None else pytest.fail
    made = LeaseKeeper(None, claimed(attempt), on_hang=hung, **seconds)  # type: ignore[arg-type]
    made.__enter__()
    if batch:
        made.batch_started(batch)
    return made


def test_a_lease_is_renewed_at_a_third_of_its_length(clock: Clock, store: Store) -> None:
    keeper(item_deadline=2.5)
    assert clock.run(until=9.5) == [2.5, 0.5] * 3 + [2.5]
    assert store.requested == [(at, "renew", 9.0, ()) for at in (3.0, 6.0, 9.0)]
    assert clock.thread["daemon"] is True, "a process that ends does not wait for it"


def test_a_first_attempt_renews_with_the_batch_in_hand(clock: Clock, store: Store) -> None:
    keeper(batch=["a", "b"])
    clock.run(until=4.0)
    assert store.requested == [(0.0, "note", ("a", "b")), (3.0, "renew", 9.0, ("a", "b"))]


def test_a_later_attempt_notes_by_itself(clock: Clock, store: Store) -> None:
    held = keeper(attempt=2, batch=["a"])
    held.item_done("a")
    clock.run(until=4.0)
    assert store.requested == [
        (0.0, "note", ("a",)),
        (0.0, "note", ()),
        (3.0, "renew", 9.0, None),
    ]


def test_a_lost_lease_is_not_renewed_again(clock: Clock, store: Store) -> None:
    held, store.held = keeper(), False
    clock.run(until=10.0)
    assert [one[:2] for one in store.requested] == [(3.0, "renew")]
    assert held.lost
    assert held.should_stop()


def test_a_lease_is_not_renewed_and_not_lost_once_its_shard_is_saved(
    clock: Clock, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    held = keeper()
    clock.run(until=4.0)
    held.saved()
    store.held = False  # as the store answers about a shard that is done
    clock.run(until=20.0)
    assert [one[:2] for one in store.requested] == [(3.0, "renew")]
    assert not held.lost
    assert not caplog.records


def test_a_commit_under_way_decides_whether_the_lease_stood(
    clock: Clock, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    held = keeper()
    held.saving()
    store.held = False  # the row is done already, and `saved` is not called yet
    clock.run(until=7.0)
    assert [one[:2] for one in store.requested] == [(3.0, "renew"), (6.0, "renew")]
    assert not held.lost
    assert not caplog.records


def test_a_hang_is_found_right_after_the_deadline(clock: Clock, store: Store) -> None:
    printed: list[str] = []
    held = keeper(batch=["a", "b"], lease_seconds=60.0, item_deadline=5.0, printed=printed)
    assert clock.run(until=100.0) == [5.0, 0.01]
    cause = "attempt 1: it hung, no progress within 5 seconds"
    assert store.requested[-1] == (5.01, "hang", ("a", "b"), cause, "")
    assert printed == [
        "run r shard 0: items 'a', 'b' made no progress within 5 seconds; this process ends "
        "(status 70)"
    ]
    assert held.lost


def test_a_hang_before_the_first_batch_suspects_no_item(clock: Clock, store: Store) -> None:
    printed: list[str] = []
    keeper(lease_seconds=1e4, item_deadline=5.0, printed=printed)
    clock.run(until=1e4)
    cause = "attempt 1: it hung, no progress within 900 seconds"
    assert store.requested == [(900.01, "hang", (), cause, "")]
    assert "work outside a batch" in printed[0]


def test_a_note_tells_that_the_lease_is_gone(clock: Clock, store: Store) -> None:
    held = keeper()
    store.held = False
    held.batch_started(["a"])
    assert held.lost


def test_a_hang_ends_the_process_even_where_it_cannot_be_written_down(
    clock: Clock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat.shards, "hang", Mock(side_effect=MemoryError))
    printed: list[str] = []
    keeper(batch=["a", "b", "c"], lease_seconds=60.0, item_deadline=5.0, printed=printed)
    clock.run(until=100.0)
    assert "items 'a', 'b', 'c' made no progress" in printed[0]


def test_progress_puts_the_deadline_off(clock: Clock, store: Store) -> None:
    printed: list[str] = []
    held = keeper(batch=["a"], lease_seconds=60.0, item_deadline=5.0, printed=printed)
    clock.now = 4.0
    held.touch()
    assert clock.run(until=8.5) == [5.0]
    assert clock.run(until=10.0) == [0.01]
    assert printed


def test_a_first_attempt_notes_a_batch_every_quarter_of_a_second(
    clock: Clock, store: Store
) -> None:
    held = keeper(batch=["a"])
    for clock.now, name in ((0.125, "b"), (0.25, "c"), (0.375, "d")):
        held.batch_started([name])
    assert store.requested == [(0.0, "note", ("a",)), (0.25, "note", ("c",))]


@pytest.mark.parametrize("revoked", [True, False])
def test_work_stops_where_its_task_is_revoked(clock: Clock, store: Store, revoked: bool) -> None:
    made = LeaseKeeper(
        None,  # type: ignore[arg-type]
        claimed(),
        lease_seconds=9.0,
        item_deadline=100.0,
        revoked=lambda: revoked,
    )
    assert made.should_stop() == revoked
    assert not made.lost
