"""Which items are drawn: the same ones however the dataset is read or cut into shards.

Every row has a number that follows from a seed and its place alone (SplitMix64, Steele et al. 2014,
Fig. 16), so that no version of a library changes a sample; the rows of smallest numbers are drawn,
so that samples of one seed are nested.
"""

import heapq
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from transexplain.data.records import Record

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL = 2**64


@lru_cache(maxsize=4)  # every shard of a run asks, and the order is of the whole dataset
def places(rows: int, seed: int) -> NDArray[np.intp]:
    """(`rows`,) the place of every row in a random order; places below n are a sample of n.

    The array is shared and cannot be written to.
    """
    found = np.empty(rows, dtype=np.intp)
    found[np.argsort(_numbers(rows, seed), kind="stable")] = np.arange(rows)
    found.flags.writeable = False
    return found


def sample(records: Iterable[Record], count: int, seed: int) -> list[Record]:
    """`count` of the records in their order, numbered anew; all where there are fewer.

    Only so many are held at a time.
    """
    kept: list[tuple[int, int, Record]] = []  # a heap: the largest number on top
    for row, record in enumerate(records):
        entry = (-number(row, seed), -row, record)
        if len(kept) < count:
            heapq.heappush(kept, entry)
        elif entry[:2] > kept[0][:2]:
            heapq.heapreplace(kept, entry)
    in_order = sorted(kept, key=lambda entry: -entry[1])
    return [replace(record, index=index) for index, (_, _, record) in enumerate(in_order)]


def number(row: int, seed: int) -> int:
    """The number of a row, 0 to 2**64 - 1."""
    found = (seed * _FIRST + (row + 1) * _STEP) % _ALL
    found = ((found ^ (found >> 30)) * _FIRST) % _ALL
    found = ((found ^ (found >> 27)) * _SECOND) % _ALL
    return found ^ (found >> 31)


def _numbers(rows: int, seed: int) -> NDArray[np.uint64]:
    """(`rows`,) `number` of every row."""
    first, second = np.uint64(_FIRST), np.uint64(_SECOND)
    with np.errstate(over="ignore"):  # modulo 2**64 is meant
        start = np.uint64(seed * _FIRST % _ALL)
        found = start + (np.arange(rows, dtype=np.uint64) + np.uint64(1)) * np.uint64(_STEP)
        found = (found ^ (found >> np.uint64(30))) * first
        found = (found ^ (found >> np.uint64(27))) * second
    return np.asarray(found ^ (found >> np.uint64(31)))
