"""Class sensitivity: whether a method explains two classes of the same item differently."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.evaluating.metrics.metric_table import Bench, Case, Scored, unmeasured
from transexplain.rank_correlation import rank_similarity
from transexplain.types.items import Attribution, PatchGrid, own_positions

#: below this a method gives nearly the same map whatever class is explained
HARDLY = 0.05


def class_sensitivity_scores(bench: Bench, cases: Sequence[Case]) -> list[Scored]:
    """The class sensitivity of every case, explained again for its likeliest other class."""
    if len(bench.model.classes) < 2:
        return [unmeasured("the model has one class") for _ in cases]
    again = bench.again(cases, classes=[_likeliest_other(case) for case in cases])
    return [_scored(case, other) for case, other in zip(cases, again, strict=True)]


def class_sensitivity(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> float:
    """(1 - rho) / 2 with Spearman's rank correlation rho of two maps of one item, 0 to 1.

    0: the same ranking of positions for both classes; 0.5: rankings without relation; 1: the
    opposite ranking, as where two classes share one logit difference. Ranks, because a method's
    scale may differ by class. A map that is constant ranks nothing: against another constant 0,
    else 0.5. `one` and `other` have one shape.
    """
    return (1 - rank_similarity(one, other)) / 2


def sensitivity_between(one: Attribution, other: Attribution) -> float:
    """The class sensitivity of two attributions of one item, over its own content."""
    if isinstance(one.features, PatchGrid):
        return class_sensitivity(one.relevance, other.relevance)
    kept = own_positions(one.features)
    return class_sensitivity(one.relevance[kept], other.relevance[kept])


def _likeliest_other(case: Case) -> int:
    logits = case.logits.copy()
    logits[case.attribution.class_index] = -np.inf
    return int(logits.argmax())


def _scored(case: Case, other: Attribution | str) -> Scored:
    if isinstance(other, str):
        return unmeasured(other)
    if case.relevance.size < 2:
        return unmeasured("one position: there is no order")
    return Scored(value=sensitivity_between(case.attribution, other))
