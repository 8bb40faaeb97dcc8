"""A metric: how much of the relevance the most relevant positions hold."""

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Case, Scored, unmeasured


def top_share(case: Case, *, k: int = 3) -> Scored:
    """The share of |relevance| that the `k` positions of largest |relevance| hold.

    k/P: all P positions are alike; 1: k positions hold everything. Raises ConfigurationError
    where `k` is less than 1.
    """
    if k < 1:
        raise ConfigurationError(f"k is at least 1, not {k}")
    sizes = np.sort(np.abs(case.relevance))[::-1]
    total = sizes.sum()
    if not total:
        return unmeasured("no position has any relevance")
    return Scored(value=float(sizes[:k].sum() / total))
