"""Which items share a batch, and how large it may be: similar lengths, a budget of positions, the
memory of the device.
"""

import gc
import sys
from collections.abc import Sequence

import torch

from transexplain.models.loaded_model import Encoded, LoadedModel


def batches_of(model: LoadedModel, encoded: Sequence[Encoded], budget: int) -> list[list[int]]:
    """Indices of items that may share a batch without changing their logits.

    A model whose logits depend on padding gets batches of equal lengths, one whose logits depend
    on the other items gets every item alone. What the model does is measured once, and only when
    there is a batch that it matters for.
    """
    lengths = [one.length for one in encoded]
    batches = token_batches(lengths, budget)
    if all(len(batch) == 1 for batch in batches):
        return batches
    ragged = any(len({lengths[index] for index in batch}) > 1 for batch in batches)
    longest = max(encoded, key=lambda one: one.length)
    found = model.invariance(longest, ragged=ragged)
    if not found.batch:
        return [[index] for batch in batches for index in batch]
    if ragged and not found.padding:
        return token_batches(lengths, budget, equal=True)
    return batches


def token_batches(lengths: Sequence[int], budget: int, *, equal: bool = False) -> list[list[int]]:
    """Indices of items grouped so that (items x longest length) stays within `budget`.

    Items are sorted by length (stable), so that little is padded; an item longer than the
    budget is alone in its batch. With `equal` the items of a batch are of one length.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        fits = batches and (len(batches[-1]) + 1) * lengths[index] <= budget
        if fits and not (equal and lengths[batches[-1][0]] != lengths[index]):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


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
