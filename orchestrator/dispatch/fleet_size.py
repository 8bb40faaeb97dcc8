"""How many workers finish the runs by a time, from the rates that the store has measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transexplain.store import queueing
from transexplain.store.database import Database
from transexplain.store.fleet_figures import FigureReader, FleetFigures, RunFigures, SavedShards
from transexplain.types.device_time import NO_WORK
from transexplain.types.plans import DeviceClass, device_class

#: runs whose rates are looked at, those that run and the newest before them
_RUNS = 200
_RECENT = 14 * 86_400.0  #: seconds since the end of a run whose rate still holds


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkLeft:
    """What is left of one run that hands out shards."""

    run_id: str
    name: str
    shards: int  #: that wait or are in hand
    items: int  #: of these shards
    item_seconds: float | None  #: of one worker; None: neither it nor one of its name saved any
    cap: int | None = None  #: shards that may be in hand at once

    @property
    def shard_seconds(self) -> float | None:
        """What one worker takes for a shard, on average."""
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
    """What is left of each run that hands out shards, of plans for this class of device or all.

    A run that has saved no shard yet has the rate of the newest of its name that has. Raises
    DatabaseError as `Database.read`.
    """
    caps = queueing.handing_out(db)
    figures = FigureReader(db, _RECENT, _RUNS).read(items=False)
    paces = _paces(figures)
    named: dict[str, float] = {}
    for one in figures.runs:  # the newest first
        if one.id in paces:
            named.setdefault(one.name, paces[one.id])
    return [
        WorkLeft(
            run_id=one.id,
            name=one.name,
            shards=shards,
            items=one.pending,
            item_seconds=paces.get(one.id, named.get(one.name)),
            cap=caps[one.id],
        )
        for one in figures.runs
        if one.id in caps and (shards := _open(one)) and _is_for(one, device)
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
    by_run = [_for_run(one, room, notes) for one in left]
    in_time = all(fits for _, fits in by_run)
    separate = sum(count for count, _ in by_run)
    if not in_time or any(one.cap is not None for one in left):
        return FleetSize(workers=separate, in_time=in_time, notes=tuple(notes))
    together = _in_any_order(left, room)
    unknown = sum(one.item_seconds is None for one in left)
    return FleetSize(workers=min(separate, together + unknown), in_time=True, notes=tuple(notes))


def _for_run(one: WorkLeft, room: float, notes: list[str]) -> tuple[int, bool]:
    """Workers for one run by itself, and whether it is done in time with them."""
    if one.shard_seconds is None:
        notes.append(
            f"run {one.run_id} ({one.name}): no shard of it or of a run of its name was saved in "
            "the last two weeks; it counts as one worker until it has a rate"
        )
        return 1, True
    each = math.floor(room / one.shard_seconds) if one.shard_seconds else one.shards
    wanted = one.shards if each < 1 else math.ceil(one.shards / each)
    if each < 1:
        notes.append(
            f"run {one.run_id} ({one.name}): a shard takes {one.shard_seconds:.0f} s and there are "
            f"{max(0.0, room):.0f}; it ends later, with any number of workers"
        )
        return min(wanted, one.cap or wanted), False
    if one.cap is not None and wanted > one.cap:
        notes.append(
            f"run {one.run_id} ({one.name}): {wanted} workers would do, but it may have "
            f"{one.cap}; `transexplain queue {one.run_id} --most-workers {wanted}` raises that"
        )
        return one.cap, False
    return wanted, True


def _in_any_order(left: Sequence[WorkLeft], room: float) -> int:
    """Workers that take the next shard, whichever it is, and are through in time."""
    known = [(one.shards, one.shard_seconds) for one in left if one.shard_seconds is not None]
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
    for one in figures.saved:
        seconds, items = spent.get(one.run_id, (0.0, 0))
        spent[one.run_id] = seconds + _seconds(one), items + one.items
    return {run_id: seconds / items for run_id, (seconds, items) in spent.items() if items}


def _seconds(saved: SavedShards) -> float:
    """What a worker spent on shards; of older versions' only the computing is known."""
    device = sum(value for name, value in saved.seconds.items() if name != NO_WORK)
    return max(device, saved.shard_seconds.total)


def _open(one: RunFigures) -> int:
    return one.shards["queued"] + one.shards["running"]


def _is_for(one: RunFigures, device: DeviceClass | None) -> bool:
    return device is None or device_class(one.device or "cpu") == device
