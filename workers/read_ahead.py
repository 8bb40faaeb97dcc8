"""Reads and encodes the items of a shard before the device needs them."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from transexplain.store.runs import Claim
from transexplain.types.plans import AuditPlan
from workers.reader_pool import ReaderPool
from workers.work_meter import WorkMeter

if TYPE_CHECKING:
    from transexplain.explaining.reading import Entry
    from transexplain.models.loaded_model import LoadedModel

_POLL = 0.25  # seconds between two looks whether to stop


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """What is called while the device waits for items."""

    should_stop: Callable[[], bool] = lambda: False
    moved: Callable[[], None] = lambda: None  #: it waits for a process that is watched


class ReadAhead:
    """The entries of a shard in order; a pool reads the next ones while the device computes.

    At most as many entries are read before they are needed as are explained together, and one
    part more for each process, so memory is bounded. How a shard is cut into parts does not
    change its result.
    """

    def __init__(
        self,
        readers: ReaderPool,
        claim: Claim,
        plan: AuditPlan,
        model: "LoadedModel",
        meter: WorkMeter,
        *,
        waiting: "Waiting | None" = None,
    ) -> None:
        from transexplain.explaining.portions import read_together
        from transexplain.explaining.reading import PART, ReadingJob, parts_of

        self._readers, self._meter, self._key = readers, meter, claim.run_id
        self._waiting = waiting or Waiting()
        job = ReadingJob.of(plan, model, by_reference=readers.processes > 0)
        readers.prepare(self._key, job)
        self._watched = readers.watches(self._key)
        self._left = parts_of(plan, claim.shard, claim.caution)
        together = -(-read_together(model) // PART[plan.dataset.modality])
        self._ahead: deque[Future[list[Entry]]] = deque()
        self._most = together + max(1, readers.processes)
        self._fill()

    def __iter__(self) -> "Iterator[Entry]":
        return chain.from_iterable(self._parts())

    def _parts(self) -> "Iterator[list[Entry]]":
        while self._ahead:
            entries = self._awaited(self._ahead.popleft())
            self._fill()
            yield entries

    def close(self) -> None:
        """Read no further; a thread that has begun with a part is waited for."""
        for future in self._ahead:
            if not future.cancel() and not self._watched:
                future.exception()
        self._ahead.clear()

    def _fill(self) -> None:
        while len(self._ahead) < self._most and (part := next(self._left, None)) is not None:
            self._ahead.append(self._readers.read(self._key, part))

    def _awaited(self, future: "Future[list[Entry]]") -> "list[Entry]":
        """Raises as `ReaderPool.read`, and Stopped where the work shall end."""
        from transexplain.explaining import Stopped

        with self._meter.reading():
            while True:
                try:
                    return future.result(_POLL)
                except TimeoutError:
                    if future.done():
                        raise
                if self._waiting.should_stop():
                    raise Stopped
                if self._watched:  # what hangs is found by who watches the process
                    self._waiting.moved()
