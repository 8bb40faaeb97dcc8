"""Which items of a class are looked at: the same ones in whatever order a run was stored."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Draw:
    """A seeded sample of each class's items, drawn in one pass over a run.

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
            entry = (-place(item_id, self.seed), item_id)
            if len(heap) < self.size:
                heapq.heappush(heap, entry)
            elif entry > heap[0]:
                heapq.heapreplace(heap, entry)

    def classes(self) -> Iterator[str]:
        """Class names, the most frequent first, ties by name."""
        yield from sorted(self.counts, key=lambda name: (-self.counts[name], name))

    def of(self, class_name: str) -> list[str]:
        """The ids drawn from one class, sorted."""
        return sorted(item_id for _, item_id in self._kept[class_name])


def place(item_id: str, seed: int) -> int:
    """A number from 0 to 2**64 - 1 that belongs to an id and a seed."""
    text = f"{seed}\0{item_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
