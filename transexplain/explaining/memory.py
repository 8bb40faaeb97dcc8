"""A device or a machine short of memory: how it shows, and how large batches may still be."""

import gc
import sys
from collections.abc import Sequence

import torch

from transexplain.models.base import Encoded

#: what torch's allocators say where they raise no OutOfMemoryError
_SIGNS = ("can't allocate memory", "out of memory", "ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch may pass where this error was raised."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def free_caches() -> None:
    """Give back what nothing needs any more; to be called outside the `except` clause.

    Inside it the error's traceback still holds the frames, and these the tensors.
    """
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    if sys.platform == "darwin" and torch.backends.mps.is_available():
        torch.mps.empty_cache()


class Room:
    """The positions that a batch may have; less once one was too large, for the rest of the work.

    A shard therefore meets the same shortage once, not in every batch.
    """

    def __init__(self, positions: int) -> None:
        self.positions = positions

    def holds(self, batch: Sequence[Encoded]) -> bool:
        """Whether no batch as large as this was too large; an item alone always has a try."""
        return len(batch) == 1 or _size(batch) <= self.positions

    def was_too_small_for(self, batch: Sequence[Encoded]) -> None:
        """Allow half of this batch from now on."""
        self.positions = min(self.positions, max(1, _size(batch) // 2))
        free_caches()


def _size(batch: Sequence[Encoded]) -> int:
    return len(batch) * max(one.length for one in batch)
