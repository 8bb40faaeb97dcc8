"""A random sample of rows: the same ones however the dataset is read or cut into shards."""

import heapq
from collections.abc import Iterable
from dataclasses import replace

from transexplain.data.records import Record
from transexplain.randomness import row_number


def sample(records: Iterable[Record], count: int, seed: int) -> list[Record]:
    """`count` of the records in their order, numbered anew; all where there are fewer.

    Only so many are held at a time.
    """
    kept: list[tuple[int, int, Record]] = []  # a heap: the largest number on top
    for row, record in enumerate(records):
        entry = (-row_number(row, seed), -row, record)
        if len(kept) < count:
            heapq.heappush(kept, entry)
        elif entry[:2] > kept[0][:2]:
            heapq.heapreplace(kept, entry)
    in_order = sorted(kept, key=lambda entry: -entry[1])
    return [replace(record, index=index) for index, (_, _, record) in enumerate(in_order)]
