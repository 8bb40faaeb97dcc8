"""What a process counts of its work: items in hand, passes of checks, and the time of either."""

import pytest

from workers import work_meter
from workers.work_meter import WorkMeter, checks, in_hand


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


def test_time_between_shards_is_nobodys(clock: Clock) -> None:
    meter = WorkMeter()
    work(meter, clock)
    meter.shard_ended()
    clock.now += 1000.0
    work(meter, clock)
    meter.shard_ended()
    assert checks([meter.cells]) == (10, pytest.approx(2 / 8))


def test_an_item_that_fails_before_the_first_batch_takes_no_time(clock: Clock) -> None:
    meter = WorkMeter()
    meter.item_done()
    clock.now += 50.0
    assert (in_hand([meter.cells]), checks([meter.cells])) == (1, (0, 0.0))


def test_meters_of_several_processes_add_up(clock: Clock) -> None:
    meters = [WorkMeter(), WorkMeter()]
    work(meters[0], clock)
    meters[0].shard_ended()
    meters[1].batch_started()
    clock.now += 2.0
    meters[1].item_done()
    cells = [one.cells for one in meters]
    assert (in_hand(cells), checks(cells)) == (1, (5, pytest.approx(2 / 10)))


def test_every_count_is_told(clock: Clock) -> None:
    told: list[tuple[int, int]] = []
    meter = WorkMeter(changed=lambda: told.append((in_hand([cells]), checks([cells])[0])))
    cells = meter.cells
    work(meter, clock)
    assert told == [(1, 0), (2, 0), (2, 3), (2, 5)]


def test_a_new_process_goes_on_with_the_counts_of_a_dead_one(clock: Clock) -> None:
    cells = [0.0] * work_meter.SIZE
    work(WorkMeter(cells), clock)
    WorkMeter(cells).shard_ended()  # by who found it dead
    assert (in_hand([cells]), checks([cells])[0]) == (0, 5)
    work(WorkMeter(cells), clock)
    assert (in_hand([cells]), checks([cells])[0]) == (2, 10)
