"""How alike two maps of one item rank its positions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rank_correlation(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> float:
    """Spearman's rank correlation of two maps of one shape, -1 to 1.

    A map that is constant ranks nothing: against another constant 1, else 0.
    """
    left, right = np.ravel(one), np.ravel(other)
    if np.array_equal(left, right):
        return 1.0
    constant = [is_constant(values) for values in (left, right)]
    if any(constant):
        return 1.0 if all(constant) else 0.0
    from scipy.stats import spearmanr

    return float(spearmanr(left, right).statistic)


def is_constant(values: NDArray[np.floating[Any]]) -> bool:
    """Whether a map (P,) gives all its positions one value, and so ranks none."""
    return bool((values == values[:1]).all())
