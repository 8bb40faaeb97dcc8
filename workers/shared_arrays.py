"""Sends entries to another process: a pickle through a pipe, large arrays by shared memory.

Memory that the receiver no longer refers to is used again: new pages cost more than the copy.
"""

import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from transexplain.explaining.reading import Entry

_ALIGNED = 64  # bytes: where arrays begin
_SPARE = 2  #: free pieces of memory that are kept


class Sender:
    """Sends entries; large arrays go by memory that both map, where the system has it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._held: dict[int, tuple[int, int]] = {}  # number -> file descriptor, bytes
        self._free: set[int] = set()
        self._next = 0

    def released(self, numbers: Sequence[int]) -> None:
        """Take back pieces of memory, as `Receiver.free` names them."""
        self._free.update(numbers)

    def send(self, entries: "Sequence[Entry]") -> None:
        """Send entries, of which the large arrays are copied once."""
        from transexplain.explaining.packed_parts import packed

        document, buffers = packed(entries)
        raw = [buffer.raw() for buffer in buffers]
        sizes = [one.nbytes for one in raw]
        if not raw or not hasattr(os, "memfd_create"):
            self._connection.send(("done", document, sizes, None))
            for one in raw:
                self._connection.send_bytes(one)
            return
        places = list(_places(sizes))
        number, dropped = self._chosen(places[-1][1])
        fresh = number not in self._held
        descriptor = self._open(number, places[-1][1]) if fresh else self._held[number][0]
        for (begin, _), one in zip(places, raw, strict=True):
            left, at = one, begin
            while left:
                wrote = os.pwrite(descriptor, left, at)
                left, at = left[wrote:], at + wrote
        self._connection.send(("done", document, sizes, (number, fresh, dropped)))
        if fresh:
            reduction.send_handle(self._connection, descriptor, os.getppid())

    def _chosen(self, size: int) -> tuple[int, list[int]]:
        """The number of memory of at least `size` bytes, and those that are given up."""
        by_size = sorted(self._free, key=lambda one: self._held[one][1])
        chosen = next((one for one in by_size if self._held[one][1] >= size), None)
        others = [one for one in by_size if one != chosen]
        dropped = others if chosen is None else others[:-_SPARE]
        for one in dropped:
            os.close(self._held.pop(one)[0])
        self._free.difference_update([chosen, *dropped])
        if chosen is None:
            chosen, self._next = self._next, self._next + 1
        return chosen, dropped

    def _open(self, number: int, size: int) -> int:
        descriptor = os.memfd_create("transexplain", os.MFD_CLOEXEC)
        self._held[number] = descriptor, size
        os.ftruncate(descriptor, size)
        return descriptor


class Receiver:
    """Receives what a `Sender` at the other end of a pipe sends, and says what is free again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._maps: dict[int, mmap.mmap] = {}
        self._free: list[int] = []

    def free(self) -> list[int]:
        """Numbers of pieces of memory to which nothing that was received refers any more."""
        return [self._free.pop() for _ in range(len(self._free))]

    def received(
        self, document: bytes, sizes: list[int], memory: tuple[int, bool, list[int]] | None
    ) -> Any:
        """The entries that `Sender.send` sent after it sent these three."""
        from transexplain.explaining.packed_parts import unpacked

        if memory is None:
            return unpacked(document, [bytearray(self._connection.recv_bytes()) for _ in sizes])
        number, fresh, dropped = memory
        for one in dropped:
            del self._maps[one]
        places = list(_places(sizes))
        if fresh:
            descriptor = reduction.recv_handle(self._connection)
            try:
                self._maps[number] = mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)
        whole = np.frombuffer(self._maps[number], dtype=np.uint8)
        # every array that is made of a view of it keeps it alive
        weakref.finalize(whole, self._free.append, number).atexit = False
        view = whole.data
        return unpacked(document, [view[begin:stop] for begin, stop in places])


def _places(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where arrays of so many bytes begin and end, one behind the other."""
    stop = 0
    for size in sizes:
        begin = -(-stop // _ALIGNED) * _ALIGNED
        stop = begin + size
        yield begin, stop
