"""Sparsity: over how few positions the relevance is spread."""

import numpy as np

from transexplain.evaluating.metrics.metric_table import Case, Scored, unmeasured


def sparsity(case: Case) -> Scored:
    """Gini index of |relevance| over an item's own positions (Hurley and Rickard 2009, Table I).

    0: all positions alike; 1 - 1/P: one of P positions holds everything. The paper of
    TransExplain, section 4.2, names sparsity and gives no formula; this is ours.
    """
    sizes = np.sort(np.abs(case.relevance))
    total = sizes.sum()
    if not total:
        return unmeasured("no position has any relevance")
    ranks = np.arange(1, len(sizes) + 1)
    weights = (len(sizes) - ranks + 0.5) / len(sizes)
    return Scored(value=float(1 - 2 * (sizes / total) @ weights))
