"""How much one process has done of a run, and for what: items explained, passes of checks, time."""

import time
from collections.abc import Callable, Iterable, MutableSequence, Sequence

Cells = MutableSequence[float]  #: those of a meter, by the places below
SIZE = 4
_IN_HAND, _CHECKS, _EXPLAINING, _CHECKING = range(SIZE)


class WorkMeter:
    """Counts the work of one process in cells of numbers, which another process may share and read.

    A check is a pass over an item that finishes none: for a control of the model or the groups, or
    for a measure of faithfulness. `changed` is called after every count.
    """

    def __init__(
        self, cells: Cells | None = None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.cells: Cells = [0.0] * SIZE if cells is None else cells
        self._changed = changed
        self._purpose: int | None = None  # cell of the seconds that pass; None: outside a shard
        self._since = 0.0

    def batch_started(self) -> None:
        """Items are explained from now on."""
        self._spend(_EXPLAINING)

    def check_started(self, items: int) -> None:
        """So many items are passed once more for a check."""
        self._spend(_CHECKING)
        self.cells[_CHECKS] += items
        self._changed()

    def item_done(self) -> None:
        """An item of the shard in hand is explained or failed."""
        self._spend(self._purpose)
        self.cells[_IN_HAND] += 1
        self._changed()

    def shard_ended(self) -> None:
        """The shard in hand is computed, or given up: what it holds is saved or lost."""
        self._spend(None)
        self.cells[_IN_HAND] = 0.0

    def _spend(self, purpose: int | None) -> None:
        now = time.monotonic()
        if self._purpose is not None:
            self.cells[self._purpose] += now - self._since
        self._purpose, self._since = purpose, now


def in_hand(cells: Iterable[Sequence[float]]) -> int:
    """Items that are explained and not saved yet, of all these meters."""
    return round(sum(one[_IN_HAND] for one in cells))


def checks(cells: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Passes of checks, and their share of the time that was spent computing, 0 to 1."""
    seconds = [sum(one[place] for one in cells) for place in (_EXPLAINING, _CHECKING)]
    passes = round(sum(one[_CHECKS] for one in cells))
    return passes, seconds[1] / sum(seconds) if any(seconds) else 0.0
