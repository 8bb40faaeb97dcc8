"""Spearman's rank correlation, defined also where one side is constant."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(array_like: ArrayLike, other: ArrayLike, *, fewest: int = 2) -> float | None:
    """Spearman's of two sequences (n,), -1 to 1; None where it is not defined.

    Ranks of a constant have no variance, so the correlation divides by zero there (scipy gives
    NaN). With two different values on a side it is defined, but only says how two groups differ.

    Args:
        one: of n things.
        other: of the same things.
        fewest: different values that either side needs.
    """
    left, right = np.ravel(array_like), np.ravel(other)
    if min(len(np.unique(left)), len(np.unique(right))) < max(fewest, 2):
        return None
    from scipy.stats import spearmanr  # slow to import, and few who import this module call it

    return float(spearmanr(left, right).statistic)


def rank_similarity(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> float:
    """Return how alike two maps of one shape rank their positions, -1 to 1; always defined.

    It is Spearman's. Two equal maps are alike, also where they are constant and Spearman's is not
    defined, and so are any two constant ones; a constant map and another have nothing in common: 0.
    """
    left, right = np.ravel(one), np.ravel(other)
    if np.array_equal(left, right):
        return 1.0
    correlation = rank_correlation(left, right)
    if correlation is not None:
        return correlation
    return 1.0 if is_constant(left) and is_constant(right) else 0.0


def is_constant(values: NDArray[np.floating[Any]]) -> bool:
    """Return whether a map (P,) gives all its positions one value, and so ranks none."""
    return bool((values == values[:1]).all())
