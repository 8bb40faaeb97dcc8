"""What a process counts of its work: items in hand, passes of checks, and the time of either."""

import threading

import pytest

from transexplain.types.device_time import STAGES, DeviceTime, together
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
    with meter.loading():
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
    with meter.committing():
        clock.now += 2.0
    clock.now += 5.0
    explained(meter, clock, "run")
    found = meter.device_seconds()
    assert (found["commit"], found["no_work"], found["busy"]) == (2.0, 5.0, 4.0)


def test_what_goes_on_beside_a_busy_device_is_not_waited_for(clock: Clock) -> None:
    meter = WorkMeter()
    meter.shard_begun("run")
    meter.batch_started(1)
    with meter.committing(), meter.loading():
        clock.now += 4.0
    assert meter.device_seconds() == {"busy": 4.0, **dict.fromkeys(STAGES, 0.0), "no_work": 0.0}


def test_a_shard_that_is_prepared_is_waited_for_by_an_idle_device_alone(clock: Clock) -> None:
    meter = WorkMeter()
    explained(meter, clock, "run")
    meter.device_seconds()
    with meter.preparing():
        clock.now += 3.0
    meter.shard_begun("run")
    meter.batch_started(1)

    def prepares() -> None:
        with meter.preparing(), meter.reading():
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
    with meter.committing():
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
