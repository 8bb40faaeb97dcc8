"""Whether a method tells classes apart: the same item explained for two of its classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.types import Attribution

#: below this a method gives nearly the same map whatever class is asked
HARDLY = 0.05


def class_sensitivity(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> float:
    """(1 - rho) / 2 with Spearman's rank correlation rho of two maps of one item, 0 to 1.

    0: the same ranking of positions for both classes; 0.5: rankings without relation; 1: the
    opposite ranking, as where two classes share one logit difference. Ranks, because a method's
    scale may differ by class. A map that is constant ranks nothing: against another constant 0,
    else 0.5. `one` and `other` have one shape.
    """
    left, right = np.ravel(one), np.ravel(other)
    if np.array_equal(left, right):
        return 0.0
    constant = [bool((values == values[0]).all()) for values in (left, right)]
    if any(constant):
        return 0.0 if all(constant) else 0.5
    from scipy.stats import spearmanr

    return float((1 - spearmanr(left, right).statistic) / 2)


def of_attributions(one: Attribution, other: Attribution) -> float:
    """The class sensitivity of two attributions of one item, over its own content."""
    if not isinstance(one.features, tuple):
        return class_sensitivity(one.relevance, other.relevance)
    kept = np.array([not token.special for token in one.features], dtype=bool)
    return class_sensitivity(one.relevance[kept], other.relevance[kept])
