"""Finding texts that are nearly the same: copies, retweets, letters that differ in a name.

MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman 2020, section 3.4) proposes pairs,
their words decide.
"""

import re
import zlib

import numpy as np
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

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
        self._empty = MinHash(num_perm=_BANDS * _ROWS, hashfunc=int, scheme="affine32")
        self._index = MinHashLSH(num_perm=_BANDS * _ROWS, params=(_BANDS, _ROWS))
        self._words: dict[int, _Words] = {}

    def add(self, row: int, text: str) -> list[int]:
        """Rows of the texts that this one nearly repeats, in order; a text without words: none."""
        words = _words(text)
        if not len(words):
            return []
        sketch = self._empty.copy()
        sketch.update_batch(words)
        found = sorted(one for one in self._index.query(sketch) if self._alike(words, one))
        if not found:
            self._index.insert(row, sketch, check_duplication=False)
            self._words[row] = words
        return found

    def _alike(self, words: _Words, other: int) -> bool:
        theirs = self._words[other]
        shared = len(np.intersect1d(words, theirs, assume_unique=True))
        return shared >= LEAST * (len(words) + len(theirs) - shared)


def _words(text: str) -> _Words:
    """Hashes of the different words of a text, sorted."""
    found = {zlib.crc32(word.encode()) for word in _WORD.findall(text.casefold())}
    return np.array(sorted(found), dtype=np.uint32)
