"""Finds texts that are nearly the same: copies, retweets, letters that differ in a name.

MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman 2020, section 3.4) proposes pairs,
their words decide.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transexplain.data.source_files import Record
from transexplain.types.plans import DatasetSpec, Modality

if TYPE_CHECKING:
    from datasketch import MinHash, MinHashLSH

MOST = 50_000  #: rows up to which near-duplicates are looked for: some 10 seconds and 200 MB
LEAST = 0.8  #: Jaccard index of two texts' words: one of nine or more words is another one
_WORD = re.compile(r"\w+")
#: 60 values in bands of 6: a pair at 0.8 is proposed with a chance of 95 %, one at 0.9 always
_BANDS, _ROWS = 10, 6

_Words = NDArray[np.uint32]


class NearDuplicates:
    """Finds, for each text, the earlier ones that it repeats.

    Words count and not their order or how often they occur: runs of words would miss short texts
    that differ in one name. A text is compared with texts that repeat no other one, so clusters
    do not grow along chains, and a thousand copies cost a thousand comparisons.
    """

    def __init__(self) -> None:
        self._words: dict[int, _Words] = {}

    @cached_property
    def _empty(self) -> "MinHash":
        from datasketch import MinHash  # slow to import, and a wrong request comes first

        return MinHash(num_perm=_BANDS * _ROWS, hashfunc=int, scheme="affine32")

    @cached_property
    def _index(self) -> "MinHashLSH":
        from datasketch import MinHashLSH

        return MinHashLSH(num_perm=_BANDS * _ROWS, params=(_BANDS, _ROWS))

    def add(self, row: int, text: str) -> list[int]:
        """Rows of the texts that this one nearly repeats, in order; a text without words: none."""
        words = _words(text)
        if not len(words):
            return []
        sketch = self._empty.copy()
        sketch.update_batch(words)
        near = sorted(
            row for row in self._index.query(sketch) if self._is_near_duplicate(words, row)
        )
        if not near:
            self._index.insert(row, sketch, check_duplication=False)
            self._words[row] = words
        return near

    def _is_near_duplicate(self, words: _Words, other: int) -> bool:
        theirs = self._words[other]
        shared = len(np.intersect1d(words, theirs, assume_unique=True))
        return shared >= LEAST * (len(words) + len(theirs) - shared)


def _words(text: str) -> _Words:
    """Hashes of the different words of a text, sorted."""
    words = {zlib.crc32(word.encode()) for word in _WORD.findall(text.casefold())}
    return np.array(sorted(words), dtype=np.uint32)


#: share of the rows above which texts that repeat one text are taken for a template's
_TEMPLATE = 0.5


@dataclass(slots=True)
class Clusters:
    """Collects the rows of a data set in order, then finds which belong together."""

    named: bool  #: whether by a column
    near: NearDuplicates | None
    _rows: int = 0
    _named: dict[str, list[int]] = field(default_factory=dict)
    #: row -> the rows whose text it nearly repeats
    _repeats: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: DatasetSpec, modality: Modality) -> "Clusters | None":
        """The collector that a data set needs; None where it needs none."""
        looked = modality == "text" and spec.duplicates == "auto" and spec.template is None
        if not (looked or spec.cluster):
            return None
        return cls(named=spec.cluster is not None, near=NearDuplicates() if looked else None)

    def add(self, records: Iterable[Record]) -> None:
        """Add some rows, in order."""
        for record in records:
            if record.cluster is not None:
                self._named.setdefault(record.cluster, []).append(self._rows)
            if self._rows == MOST:
                self.near, self._repeats = None, {}
            if self.near is not None and record.content is not None:
                self._repeats[self._rows] = self.near.add(self._rows, record.content)
            self._rows += 1

    def found(self) -> tuple[list[int | None], dict[str, int]] | None:
        """Every row's cluster, and what was found in the texts, which a snapshot stores beside it.

        A cluster is the number of its first row; None: the row is alone. `repeating` are rows whose
        text nearly repeats another's, `repeated` the clusters that they make up, `template` rows
        that nearly repeat one text and are no cluster, as they are too many. None where no column
        names clusters and no text repeats another.
        """
        near = _first_rows(
            [(row, repeat) for row, of in self._repeats.items() for repeat in of], self._rows
        )
        sizes = np.bincount(near, minlength=1)
        template = int(sizes.max())
        if template <= max(1.0, _TEMPLATE * self._rows):
            template = 0
        alike = sizes[(sizes > 1) & (sizes != template)]
        if not (self.named or template or len(alike)):
            return None
        links = [
            (first, row) for row, first in enumerate(near.tolist()) if sizes[first] != template
        ]
        links += [(rows[0], row) for rows in self._named.values() for row in rows]
        whole = _first_rows(links, self._rows)
        together = np.bincount(whole)[whole] > 1
        together[[row for rows in self._named.values() for row in rows]] = True
        rows = zip(whole.tolist(), together.tolist(), strict=True)
        firsts = [first if joined else None for first, joined in rows]
        facts = {"repeating": int(alike.sum()), "repeated": len(alike), "template": template}
        return firsts, facts


def _first_rows(links: Sequence[tuple[int, int]], rows: int) -> NDArray[np.intp]:
    """(rows,) for every row the first one that `links` join it with, itself where none do."""
    from scipy.sparse import coo_array  # slow to import, and a wrong request comes first
    from scipy.sparse.csgraph import connected_components

    left, right = np.array(links, dtype=np.intp).reshape(-1, 2).T
    graph = coo_array((np.ones(len(links), dtype=bool), (left, right)), shape=(rows, rows))
    labels = connected_components(graph, directed=False)[1]
    first = np.unique(labels, return_index=True)[1]
    return np.asarray(first[labels], dtype=np.intp)
