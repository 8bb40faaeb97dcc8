"""Chooses batches: items of similar length, a budget of positions, the memory of the device."""

import errno
import gc
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import torch

from transexplain.engine.steps import bucket_of, power_of_two
from transexplain.methods.at_input_layer import steps_of
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.plans import USUAL_BATCH


def batches_of(model: LoadedModel, encoded: Sequence[Encoded], budget: int) -> list[list[int]]:
    """Indices of items that may share a batch without changing their logits.

    A model whose logits depend on padding gets batches of equal lengths, one whose logits depend
    on the other items gets every item alone. What the model does is measured once, and only when
    there is a batch that it matters for.
    """
    lengths = [entry.length for entry in encoded]
    few = steps_of(model).buckets(model.ref.device)
    batches = token_batches(lengths, budget, few_shapes=few)
    if all(len(batch) == 1 for batch in batches):
        return batches
    ragged = any(lengths[batch[0]] != lengths[batch[-1]] for batch in batches)
    longest = encoded[lengths.index(max(lengths))]
    invariance = invariance_of(model, longest, ragged=ragged)
    if not invariance.batch:
        return [[index] for batch in batches for index in batch]
    if ragged and not invariance.padding:
        return token_batches(lengths, budget, equal=True, few_shapes=few)
    return batches


def token_batches(
    lengths: Sequence[int], budget: int, *, equal: bool = False, few_shapes: bool = False
) -> list[list[int]]:
    """Indices of items grouped so that (items x longest length) stays within `budget`.

    Items are sorted by length (stable), so that little is padded; an item longer than the
    budget is alone in its batch. With `equal` the items of a batch are of one length; for
    `few_shapes` lengths count as those of their buckets, and full batches have 2^n items.
    """
    batches: list[list[int]] = []
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, some in groupby(order, key=lengths.__getitem__):
        most = max(1, budget // (bucket_of(length) if few_shapes else length))
        if few_shapes:
            most = power_of_two(most)
        left = list(some)
        if batches and not equal and len(batches[-1]) < most:
            free = most - len(batches[-1])
            batches[-1] += left[:free]
            left = left[free:]
        batches += [left[at : at + most] for at in range(0, len(left), most)]
    return batches


#: what allocators, oneDNN and the system say where they raise no error of their own for it
_SIGNS = re.compile(
    r"(?:can't|cannot|unable to) allocate memory|not enough memory|out of memory|ALLOC_FAILED"
    r"|bad_alloc|could not (?:create|execute) a (?:primitive(?! desc)|memory)"
    r"|can't start new thread",
    re.IGNORECASE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a smaller batch, or a fresh process, may pass where this error was raised."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None


def free_caches() -> None:
    """Give back what nothing needs any more; to be called outside the `except` clause.

    Inside it the error's traceback still holds the frames, and these the tensors.
    """
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    if sys.platform == "darwin" and torch.backends.mps.is_available():
        torch.mps.empty_cache()


def give_back(model: LoadedModel) -> bool:
    """Free what is kept for speed only; whether traces were among it, without which more may fit.

    To be called as `free_caches`.
    """
    traces = steps_of(model).forget()
    free_caches()
    return traces


class BudgetSearch:
    """Searches the smallest budget of positions with the best throughput of a GPU, while it works.

    It is doubled from batch to batch, until a doubling gains less than 5 % or the next may need
    more than 80 % of the memory.
    """

    def __init__(self) -> None:
        self.positions = USUAL_BATCH
        self.done = False
        self._rates: list[float] = []  #: positions per second, at this budget
        self._before = 0.0  #: the best rate at half of it

    def took(self, positions: int, seconds: float, memory: float) -> None:
        """Record a batch: its positions, its seconds, and the share of the memory at its peak."""
        if self.done or positions <= self.positions // 2:
            return
        self._rates.append(positions / seconds)
        if len(self._rates) < _BATCHES_TIMED:
            return
        rate = max(self._rates[1:])  # the first is slow: libraries choose and load kernels
        if rate < _GAIN * self._before:
            self.positions //= 2
            self.done = True
        elif 2 * memory > _MEMORY or self.positions >= _MOST:
            self.done = True
        else:
            self.positions *= 2
        self._rates, self._before = [], rate


_BATCHES_TIMED, _GAIN, _MEMORY, _MOST = 4, 1.05, 0.8, 2**18


class Room:
    """The positions that a batch may have; less once one was too large, for the rest of the work.

    A shard therefore meets the same shortage once, not in every batch. Without a number it is
    2,048 on a CPU, and found by a search on a GPU, once for a model.
    """

    def __init__(self, positions: int | None, model: LoadedModel) -> None:
        self.model = model
        self.search: BudgetSearch | None = None
        if positions is None and model.ref.device.startswith("cuda"):
            self.search = model.steps.setdefault("budget", BudgetSearch())
            positions = self.search.positions
        self.positions = USUAL_BATCH if positions is None else positions

    @contextmanager
    def timed(self, batch: Sequence[Encoded]) -> Iterator[None]:
        """A block that explains a batch; its time shows whether larger batches are faster."""
        if self.search is None or self.search.done:
            yield
            return
        device = torch.device(self.model.ref.device)
        torch.cuda.reset_peak_memory_stats(device)
        begun = time.perf_counter()
        yield
        took = time.perf_counter() - begun  # results are in the host's memory by now
        peak = torch.cuda.max_memory_allocated(device)
        total = torch.cuda.get_device_properties(device).total_memory
        self.search.took(_size(batch), took, peak / total)
        self.positions = self.search.positions

    def holds(self, batch: Sequence[Encoded]) -> bool:
        """Whether no batch as large as this was too large; an item alone always has a try."""
        return len(batch) == 1 or _size(batch) <= self.positions

    def was_too_small_for(self, batch: Sequence[Encoded]) -> bool:
        """Allow half of this batch from now on, and free memory; what `give_back` says."""
        self.positions = min(self.positions, max(1, _size(batch) // 2))
        if self.search is not None:
            self.search.positions, self.search.done = self.positions, True
        return give_back(self.model)


def _size(batch: Sequence[Encoded]) -> int:
    return len(batch) * max([entry.length for entry in batch])
