"""Counts what one process does for a run: items explained, passes of checks, seconds by stage,
and what its device waited for.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager

from transexplain.types.device_time import BUSY, NO_WORK, STAGES

Cells = MutableSequence[float]  #: those of a meter, by the places below
_IN_HAND, _CHECKS, _EXPLAINING, _CHECKING = range(4)
_WAITING = {name: 4 + place for place, name in enumerate((*STAGES, NO_WORK))}
SIZE = 4 + len(_WAITING)
_, _READING, _FINISHING, _COMMIT = _BESIDE = tuple(_WAITING[name] for name in STAGES)


class WorkMeter:
    """Counts the work of one process in cells of numbers, which another process may share and read.

    A check is a pass over an item that finishes none: for a control of the model or the groups, or
    for a measure of faithfulness. `changed` is called after every count. Every moment from the
    first claim on is busy (explaining or checking) or waiting, whatever thread reports.
    """

    def __init__(
        self, cells: Cells | None = None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.cells: Cells = [0.0] * SIZE if cells is None else cells
        self._changed = changed
        self._purpose: int | None = None  # cell of the seconds that pass; None: before the first
        self._since = 0.0
        self._in_batch = 0
        self._idle = True  # the device has no shard
        self._on_device: int | None = None  # the thread that computes one
        self._blocks: Counter[int] = Counter()  # work that overlaps the device's
        self._taken = list(self.cells)
        self._run: str | None = None
        self._lock = threading.Lock()

    def batch_started(self, items: int = 0) -> None:
        """So many items are explained from now on; 0: nobody counts them."""
        with self._lock:
            self._in_batch = items
            self._spend(_EXPLAINING)

    def check_started(self, items: int) -> None:
        """So many items are passed once more for a check."""
        with self._lock:
            self._spend(_CHECKING)
            self.cells[_CHECKS] += items
        self._changed()

    def item_done(self, items: int = 1) -> None:
        """Count explained or failed items of the shard; the last ends its batch."""
        with self._lock:
            self._in_batch -= items
            over = self._purpose == _EXPLAINING and self._in_batch == 0
            self._spend(_FINISHING if over else self._purpose)
            self.cells[_IN_HAND] += items
        self._changed()

    def shard_begun(self, run_id: str) -> None:
        """The device has a shard: it waits for its first items."""
        with self._lock:
            self._idle, self._on_device = False, threading.get_ident()
            self._spend(self._purpose)
            if run_id != self._run:  # what passed between two runs is of neither
                self._run = run_id
                for cell in (_COMMIT, _WAITING[NO_WORK]):
                    self._taken[cell] = self.cells[cell]
            self._spend(_READING)

    def shard_ended(self) -> None:
        """Note that the shard is computed or given up: its items are saved or lost."""
        with self._lock:
            self._idle, self._on_device = True, None
            self._spend(None if self._purpose is None else self._beside())
            self.cells[_IN_HAND] = 0.0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block in which the shard that the device has waits for its next items.

        In another thread than the device's it changes nothing, see `beside`.
        """
        if threading.get_ident() != self._on_device:
            yield
            return
        with self._lock:
            self._spend(_READING)
        try:
            yield
        finally:
            with self._lock:
                self._spend(_FINISHING)

    @contextmanager
    def beside(self, stage: str) -> Iterator[None]:
        """A block of one of the `STAGES`, for which a device without a shard waits."""

        def change(by: int) -> None:
            with self._lock:
                self._blocks[_WAITING[stage]] += by
                if self._idle:
                    self._spend(self._beside())

        change(1)
        try:
            yield
        finally:
            change(-1)

    def device_seconds(self) -> dict[str, float]:
        """The seconds of the device since the last call, by `BUSY`, `STAGES` and `NO_WORK`."""
        with self._lock:
            self._spend(self._purpose)
            spent = [now - then for now, then in zip(self.cells, self._taken, strict=True)]
            self._taken = list(self.cells)
        waited = {name: spent[cell] for name, cell in _WAITING.items()}
        return {BUSY: spent[_EXPLAINING] + spent[_CHECKING], **waited}

    def _beside(self) -> int:
        under_way = (stage for stage in _BESIDE if self._blocks[stage])
        return next(under_way, _WAITING[NO_WORK])

    def _spend(self, purpose: int | None) -> None:
        now = time.monotonic()
        if self._purpose is not None:
            self.cells[self._purpose] += now - self._since
        self._purpose, self._since = purpose, now


def in_hand(cells: Iterable[Sequence[float]]) -> int:
    """Items that are explained and not saved yet, of all these meters."""
    return round(sum(cell[_IN_HAND] for cell in cells))


def checks(cells: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Passes of checks, and their share of the time that was spent computing, 0 to 1."""
    seconds = [sum(cell[place] for cell in cells) for place in (_EXPLAINING, _CHECKING)]
    passes = round(sum(cell[_CHECKS] for cell in cells))
    return passes, seconds[1] / sum(seconds) if any(seconds) else 0.0
