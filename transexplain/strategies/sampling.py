"""A random sample of a class's items: the same ones in whatever order a run was stored."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from transexplain.randomness import keyed_number


@dataclass(slots=True)
class Draw:
    """A seeded sample of each class's items, taken in one pass over a run.

    An item's place follows from the seed and its id alone, and the first `size` places are kept:
    memory grows with the classes and the sample, never with the run, and samples are nested.
    """

    size: int
    seed: int
    counts: Counter[str] = field(default_factory=Counter)  #: class -> items seen
    _kept: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def add_all(self, explained: Iterable[tuple[str, str]]) -> None:
        """Take (item id, class) pairs; an item is in a class once."""
        for item_id, class_name in explained:
            self.counts[class_name] += 1
            heap = self._kept.setdefault(class_name, [])
            entry = (-keyed_number(self.seed, item_id), item_id)
            if len(heap) < self.size:
                heapq.heappush(heap, entry)
            elif entry > heap[0]:
                heapq.heapreplace(heap, entry)

    def classes(self) -> Iterator[str]:
        """Class names, the most frequent first, ties by name."""
        yield from sorted(self.counts, key=lambda name: (-self.counts[name], name))

    def of(self, class_name: str) -> list[str]:
        """The ids sampled from one class, sorted."""
        return sorted(item_id for _, item_id in self._kept[class_name])
