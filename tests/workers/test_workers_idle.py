"""When a worker that is to end by itself ends, and with which status."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from transexplain.errors import BrokerError, DatabaseError
from workers.idle_watch import EXIT_AWAY, EXIT_IDLE, IdleWatch


def ends(**changed: Any) -> list[int]:
    """The statuses that a watch of half a second of patience ends its worker with in a second."""
    found: list[int] = []
    quiet: dict[str, Callable[[], object]] = {
        "in_hand": lambda: False,
        "connected": lambda: True,
        "waits": lambda: False,
        "sweep": lambda: None,
    }
    times = {"linger": 0.1, "every": 0.02, "patience": 0.5}
    watch = IdleWatch(end=found.append, **{**quiet, **times, **changed})
    watch.start()
    time.sleep(1.0)
    watch.stop()
    return found


def fails(error: Exception) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


@pytest.mark.parametrize(
    "away",
    [
        {"connected": lambda: False},
        {"waits": fails(DatabaseError("away"))},
        {"waits": lambda: True, "sweep": fails(BrokerError("away"))},
    ],
)
def test_a_server_that_stays_away_ends_the_worker_with_4(away: dict[str, Any]) -> None:
    assert ends(**away) == [EXIT_AWAY]


def test_one_that_comes_back_does_not() -> None:
    begun = time.monotonic()
    assert ends(connected=lambda: time.monotonic() - begun > 0.3) == [EXIT_IDLE]


def test_a_worker_with_work_stays() -> None:
    assert ends(in_hand=lambda: True, connected=lambda: False) == []
    assert ends(waits=lambda: True) == []
