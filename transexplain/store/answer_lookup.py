"""Looks up items of one run by the ids of another's, whatever the order of the two."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from transexplain.store import part_columns as col
from transexplain.store import parts
from transexplain.store.database import Database
from transexplain.store.part_reading import Key, Part

_HELD = 64  #: parts that are kept decoded: neighbours in one run are mostly neighbours in the other
Answer = TypeVar("Answer")


class AnswerLookup(Generic[Answer]):
    """The explained items of a run by id; 8 bytes an item are in memory, and some parts."""

    def __init__(
        self,
        db: Database,
        run_id: str,
        of_part: Callable[[Part], Mapping[str, Answer]],
    ) -> None:
        """Read the index of the run.

        Args:
            db: the store.
            run_id: the run.
            of_part: gives what is wanted of the items of a part, by their ids.
        """
        self._db, self._run_id = db, run_id
        self._of_part = of_part
        self._keys: list[Key] = []
        hashes, of = [np.zeros(0, dtype=np.uint32)], [np.zeros(0, dtype=np.int32)]
        for key, some in parts.hashes(db, run_id):
            hashes.append(some)
            of.append(np.full(len(some), len(self._keys), dtype=np.int32))
            self._keys.append(key)
        found = np.concatenate(hashes)
        order = np.argsort(found, kind="stable")
        self._hashes, self._of = found[order], np.concatenate(of)[order]
        self._held: OrderedDict[Key, Mapping[str, Answer]] = OrderedDict()

    def find(self, item_ids: Sequence[str]) -> dict[str, Answer]:
        """What is wanted of those of these items that the run explained."""
        found: dict[str, Answer] = {}
        for key in self._keys_of(item_ids):
            inside = self._part(key)
            found |= {name: inside[name] for name in item_ids if name in inside}
        return found

    def _keys_of(self, item_ids: Sequence[str]) -> list[Key]:
        """The parts that may hold one of these."""
        wanted = np.unique(col.hashes_of(item_ids))
        low = np.searchsorted(self._hashes, wanted, side="left")
        high = np.searchsorted(self._hashes, wanted, side="right")
        places = [self._of[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        return [self._keys[place] for place in np.unique(np.concatenate(places)).tolist()]

    def _part(self, key: Key) -> Mapping[str, Answer]:
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        found: Mapping[str, Answer] = {}
        for some in parts.read(self._db, self._run_id, self._of_part, [key]):
            found = some
        self._held[key] = found
        if len(self._held) > _HELD:
            self._held.popitem(last=False)
        return found
