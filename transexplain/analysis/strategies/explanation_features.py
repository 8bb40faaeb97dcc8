"""Turns an explanation into a feature vector: a pooled heatmap, or relevance over word types.

Only the shape of an explanation counts, not its size, so every item is normalised: heatmaps to
sum |R| = 1, texts to length 1. Signs are kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from transexplain.types.items import Attribution, PatchGrid

CELLS = 16  #: largest number of rows and of columns of a pooled heatmap
AXES = 64  #: directions that relevance over word types is reduced to

_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """The explanations of N items for one class, in the order of their ids."""

    item_ids: tuple[str, ...]
    grids: _Floats | None  #: (N, rows, cols), sum |R| = 1; None for texts
    bags: csr_array | None  #: (N, words) relevance of each word type, in the method's unit
    words: tuple[str, ...] = ()  #: the columns of `bags`

    def points(self) -> _Floats:
        """(N, D) what is clustered, Euclidean."""
        if self.grids is not None:
            return self.grids.reshape(len(self.grids), -1)
        return _reduced(normalize(self.bags))


def gather(attributions: Iterable[Attribution]) -> Sample:
    """Explanations of one modality, in any order, as points in the order of their ids."""
    grids: dict[str, _Floats] = {}
    texts: dict[str, dict[str, float]] = {}
    for one in attributions:
        if isinstance(one.features, PatchGrid):
            grids[one.item_id] = np.asarray(one.relevance, dtype=np.float64)
        else:
            texts[one.item_id] = word_types(one)
    ids = tuple(sorted(grids or texts))
    if grids:
        return Sample(item_ids=ids, grids=pooled([grids[name] for name in ids]), bags=None)
    words = tuple(sorted({word for held in texts.values() for word in held}))
    return Sample(
        item_ids=ids, grids=None, bags=_bags([texts[name] for name in ids], words), words=words
    )


def word_types(attribution: Attribution) -> dict[str, float]:
    """Relevance of each word type of a text: the sum over its occurrences, case folded."""
    found: dict[str, float] = {}
    for word in attribution.words():
        key = word.text.strip().casefold()
        if key:
            found[key] = found.get(key, 0.0) + word.relevance
    return found


def pooled(grids: Sequence[_Floats]) -> _Floats:
    """Heatmaps (rows, cols) of any sizes, pooled by sums to one: (N, rows, cols), sum |R| = 1.

    One without any relevance stays 0.
    """
    rows = min(CELLS, *(grid.shape[0] for grid in grids))
    cols = min(CELLS, *(grid.shape[1] for grid in grids))
    found = np.stack([_pool(_pool(grid, rows, 0), cols, 1) for grid in grids])
    sizes = np.abs(found).sum(axis=(1, 2), keepdims=True)
    return np.asarray(np.divide(found, sizes, out=np.zeros_like(found), where=sizes > 0.0))


def _pool(grid: _Floats, cells: int, axis: int) -> _Floats:
    """Sums over `cells` neighbouring, nearly equal stretches of an axis."""
    starts = np.arange(cells) * grid.shape[axis] // cells
    return np.asarray(np.add.reduceat(grid, starts, axis=axis))


def _bags(texts: Sequence[dict[str, float]], words: Sequence[str]) -> csr_array:
    column = {word: number for number, word in enumerate(words)}
    values = [value for text in texts for value in text.values()]
    columns = [column[word] for text in texts for word in text]
    starts = np.cumsum([0, *(len(text) for text in texts)])
    return csr_array((values, columns, starts), shape=(len(texts), len(words)))


def _reduced(unit: csr_array) -> _Floats:
    """Rows of length 1 in their leading directions (latent semantic analysis), again of length 1.

    Neighbours in tens of thousands of word types are mostly chance (Beyer et al. 1999).
    """
    axes = min(AXES, *(side - 1 for side in unit.shape))
    if axes < 2:
        return np.asarray(unit.toarray())
    left, sizes, _ = randomized_svd(unit, axes, n_iter=8, random_state=0)
    return np.asarray(normalize(left * sizes))
