"""Reads and encodes the items of a shard ahead of who takes them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from transexplain.data.shard_reader import read_shard
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import AuditPlan, Shard
from workers.work_meter import WorkMeter

if TYPE_CHECKING:
    from transexplain.models.loaded_model import Encoded, LoadedModel


class ReadAhead:
    """The items of a shard, read and encoded in a thread one chunk ahead of who takes them.

    Chunks are those that `explain_items` reads together, so the batches, and with them every bit
    of the result, are the same as without.
    """

    def __init__(
        self,
        reader: ThreadPoolExecutor,
        plan: AuditPlan,
        shard: Shard,
        model: "LoadedModel",
        meter: WorkMeter,
    ) -> None:
        self._meter = meter
        self._reader = reader
        self._plan = plan
        self._model = model
        self._items: Iterator[Item | ItemFailure] = iter(())
        self._next = reader.submit(self._open, shard)

    def __iter__(self) -> "Iterator[Item | ItemFailure | Encoded]":
        while chunk := self._awaited():
            self._next = self._reader.submit(self._chunk)
            yield from chunk

    def _awaited(self) -> "Sequence[Item | ItemFailure | Encoded]":
        with self._meter.reading():
            return self._next.result()

    def close(self) -> None:
        """Read no further; a chunk that is begun is waited for."""
        if not self._next.cancel():
            self._next.exception()

    def _open(self, shard: Shard) -> "Sequence[Item | ItemFailure | Encoded]":
        self._items = iter(read_shard(self._plan.dataset, shard))
        return self._chunk()

    def _chunk(self) -> "Sequence[Item | ItemFailure | Encoded]":
        from transexplain.explaining import Request
        from transexplain.explaining.item_loop import read_together

        given = list(islice(self._items, read_together(self._model)))
        if self._plan.task == "evaluation":  # measures encode perturbed items themselves
            return given
        readable = [one for one in given if isinstance(one, Item)]
        encoded = iter(Request.from_plan(self._plan).encode(self._model, readable))
        return [next(encoded) if isinstance(one, Item) else one for one in given]
