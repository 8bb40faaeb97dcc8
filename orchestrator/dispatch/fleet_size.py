"""The number of workers that finish the runs by a time, from the rates in the store."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transexplain.store import queueing
from transexplain.store.database import Database
from transexplain.store.fleet_state import FigureReader, FleetFigures
from transexplain.types.device_time import NO_WORK
from transexplain.types.plans import DeviceClass, device_class

#: runs whose rates are looked at, those that run and the newest before them
_RUNS = 200
_RECENT = 14 * 86_400.0  #: seconds since the end of a run whose rate still holds


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkLeft:
    """The shards left of a run that hands them out."""

    run_id: str
    name: str
    shards: int  #: that wait or are claimed
    items: int  #: of these shards
    item_seconds: float | None  #: of one worker; None: neither it nor one of its name saved any
    cap: int | None = None  #: shards that may be claimed at once

    @property
    def shard_seconds(self) -> float | None:
        """The mean time of a worker for a shard."""
        if self.item_seconds is None:
            return None
        return self.item_seconds * self.items / self.shards


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetSize:
    """A number of workers, and what has to be said about it."""

    workers: int
    in_time: bool  #: whether all is done by then
    notes: tuple[str, ...] = ()


def work_left(db: Database, device: DeviceClass | None = None) -> list[WorkLeft]:
    """The work left of each run that hands out shards, for this class of device or all.

    A run that has saved no shard yet has the rate of the newest of its name that has. Raises
    DatabaseError as `Database.read`.
    """
    caps = queueing.handing_out(db)
    figures = FigureReader(db, _RECENT, _RUNS).read(items=False)
    paces = _paces(figures)
    named: dict[str, float] = {}
    for run in figures.runs:  # the newest first
        if run.id in paces:
            named.setdefault(run.name, paces[run.id])
    return [
        WorkLeft(
            run_id=run.id,
            name=run.name,
            shards=shards,
            items=run.pending,
            item_seconds=paces.get(run.id, named.get(run.name)),
            cap=caps[run.id],
        )
        for run in figures.runs
        if run.id in caps
        and (shards := run.shards["queued"] + run.shards["running"])
        and (device is None or device_class(run.device or "cpu") == device)
    ]


def fleet_size(left: Sequence[WorkLeft], seconds: float, *, start: float = 0.0) -> FleetSize:
    """The number of workers that finishes this work within so many seconds.

    Each begins `start` seconds from now. Shards are not divided, so a worker does a whole number of
    them in that time. Two numbers are enough, and the smaller is returned: workers for each run by
    itself; and those with which work that is taken in any order ends in time, the longest shard
    last (Graham 1969, Bounds on multiprocessing timing anomalies). A run without a rate counts as
    one worker.
    """
    room = seconds - start
    notes: list[str] = []
    by_run = [_for_run(work, room, notes) for work in left]
    in_time = all(fits for _, fits in by_run)
    separate = sum(count for count, _ in by_run)
    if not in_time or any(work.cap is not None for work in left):
        return FleetSize(workers=separate, in_time=in_time, notes=tuple(notes))
    together = _in_any_order(left, room)
    unknown = sum(work.item_seconds is None for work in left)
    return FleetSize(workers=min(separate, together + unknown), in_time=True, notes=tuple(notes))


def _for_run(work: WorkLeft, room: float, notes: list[str]) -> tuple[int, bool]:
    """Workers for one run by itself, and whether it is done in time with them."""
    if work.shard_seconds is None:
        notes.append(
            f"run {work.run_id} ({work.name}): no shard of it or of a run of its name was saved in "
            "the last two weeks; it counts as one worker until it has a rate"
        )
        return 1, True
    each = math.floor(room / work.shard_seconds) if work.shard_seconds else work.shards
    workers = work.shards if each < 1 else math.ceil(work.shards / each)
    if each < 1:
        notes.append(
            f"run {work.run_id} ({work.name}): a shard takes {work.shard_seconds:.0f} s and there "
            f"are {max(0.0, room):.0f}; it ends later, with any number of workers"
        )
        return min(workers, work.cap or workers), False
    if work.cap is not None and workers > work.cap:
        notes.append(
            f"run {work.run_id} ({work.name}): {workers} workers would do, but it may have "
            f"{work.cap}; `transexplain queue {work.run_id} --most-workers {workers}` raises that"
        )
        return work.cap, False
    return workers, True


def _in_any_order(left: Sequence[WorkLeft], room: float) -> int:
    """Workers that take the next shard, whichever it is, and are through in time."""
    known = [(work.shards, work.shard_seconds) for work in left if work.shard_seconds is not None]
    if not known:
        return 0
    longest = max(each for _, each in known)
    total = sum(shards * each for shards, each in known)
    if room <= longest:
        return sum(shards for shards, _ in known)
    return max(1, math.ceil((total - longest) / (room - longest)))


def _paces(figures: FleetFigures) -> dict[str, float]:
    """Run -> seconds of one worker for an item, waits for the host included."""
    spent: dict[str, tuple[float, int]] = {}
    for saved in figures.saved:
        seconds, items = spent.get(saved.run_id, (0.0, 0))
        device = sum(value for name, value in saved.seconds.items() if name != NO_WORK)
        seconds += max(device, saved.shard_seconds.total)
        spent[saved.run_id] = seconds, items + saved.items
    return {run_id: seconds / items for run_id, (seconds, items) in spent.items() if items}
