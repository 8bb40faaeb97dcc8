"""How many workers finish by a time: from rates that were measured, checked by simulation."""

import heapq
import random
from datetime import datetime, timedelta, timezone

import pytest

from orchestrator.cli.fleet_commands import _seconds_until
from orchestrator.dispatch.fleet_size import FleetSize, WorkLeft, fleet_size
from transexplain.errors import ConfigurationError

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 25, 21, 30, tzinfo=ZONE)


def left(run_id: str, shards: int, seconds: float | None, cap: int | None = None) -> WorkLeft:
    """A run with shards of 10 items, each of so many seconds."""
    return WorkLeft(
        run_id=run_id,
        name="a",
        shards=shards,
        items=10 * shards,
        item_seconds=None if seconds is None else seconds / 10,
        cap=cap,
    )


def ends(work: list[WorkLeft], workers: int, order: random.Random) -> float:
    """When so many workers are through that each take the next shard, in any order."""
    shards = [one.shard_seconds or 0.0 for one in work for _ in range(one.shards)]
    order.shuffle(shards)
    free = [0.0] * workers
    for seconds in shards:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def test_a_worker_does_whole_shards() -> None:
    # 20 s: two shards of 10 s each; 19 s: one
    assert fleet_size([left("r", 10, 10.0)], 20.0).workers == 5
    assert fleet_size([left("r", 10, 10.0)], 19.0).workers == 10
    assert fleet_size([left("r", 10, 10.0)], 80.0, start=60.0).workers == 5
    assert fleet_size([], 1.0) == FleetSize(workers=0, in_time=True)


def test_many_small_runs_share_workers() -> None:
    assert fleet_size([left(f"r{i}", 1, 1.0) for i in range(100)], 3600.0).workers == 1


@pytest.mark.parametrize("seed", range(20))
def test_so_many_are_enough_whatever_comes_first(seed: int) -> None:
    order = random.Random(seed)
    work = [
        left(f"r{i}", order.randint(1, 40), order.uniform(0.5, 9.0))
        for i in range(order.randint(1, 5))
    ]
    room = order.uniform(9.0, 60.0)
    found = fleet_size(work, room)
    assert found.in_time and not found.notes
    alone = [fleet_size([one], room).workers for one in work]
    if found.workers < sum(alone):  # else each run has workers of its own
        assert ends(work, found.workers, order) <= room + 1e-9
    for one, workers in zip(work, alone, strict=True):
        assert ends([one], workers, order) <= room + 1e-9
        if workers > 1:
            assert ends([one], workers - 1, order) > room, "one fewer would do"


def test_what_no_number_can_do_is_said() -> None:
    found = fleet_size([left("r", 8, 30.0)], 20.0)
    assert not found.in_time and found.workers == 8
    assert "a shard takes 30 s and there are 20" in found.notes[0]
    found = fleet_size([left("r", 8, 10.0, cap=2)], 20.0)
    assert not found.in_time and found.workers == 2
    assert "`transexplain queue r --most-workers 4`" in found.notes[0]


def test_a_run_without_a_rate_counts_as_one_worker() -> None:
    found = fleet_size([left("r", 8, None), left("s", 10, 10.0)], 20.0)
    assert found.workers == 6 and found.in_time
    assert "no shard of it" in found.notes[0]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("90s", 90.0),
        ("45min", 2700.0),
        ("2h", 7200.0),
        ("1d", 86_400.0),
        ("22:00", 1800.0),
        ("06:00", 8.5 * 3600),
        ("21:30", 86_400.0),
        ("2026-11-26T06:00", 8.5 * 3600),
        ("2026-11-25T20:00+00:00", 1800.0),
    ],
)
def test_times_are_read(given: str, seconds: float) -> None:
    assert _seconds_until(given, NOW) == seconds


@pytest.mark.parametrize("given", ["soon", "25:00", "2026-13-01", "-2h", "2026-11-25T21:00"])
def test_what_is_no_time_to_come_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is no time|is past"):
        _seconds_until(given, NOW)
