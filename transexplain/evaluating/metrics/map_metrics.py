"""Conservation: whether relevance sums to the logit, and whether the ledger's books close."""

from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Bench, Case, Scored, unmeasured
from transexplain.evaluating.metrics.rationale import MarkedRegion, centres
from transexplain.rank_correlation import rank_similarity
from transexplain.types.items import Attribution, PatchGrid, own_positions


def conservation(case: Case) -> Scored:
    """|f - S| / |f|: f the explained logit, S the relevance of all positions, special ones too.

    Ali et al. 2022, section 6.1 and appendix D. It asks nothing of the method: what a rule or a
    bias takes is missing from S, and S of a method whose unit is no logit (attention) is compared
    as it is. The detail holds f and S, which the correlation over items is made of.
    """
    attribution = case.attribution
    summed = fsum([*attribution.relevance.reshape(-1).tolist(), *attribution.prefix_relevance])
    if attribution.logit == 0:
        return unmeasured("the explained logit is 0")
    return Scored(
        value=abs(attribution.logit - summed) / abs(attribution.logit),
        detail={"pair": [attribution.logit, summed]},
    )


def ledger_gap(case: Case) -> Scored:
    """|logit - sum of the ledger| as a share of the sum of |terms|: whether the books close.

    What a rule loses and biases take is booked, so that this judges the bookkeeping, not whether
    relevance is conserved. A method without a ledger is not measured.
    """
    ledger = case.attribution.ledger
    if ledger is None:
        return unmeasured("the method keeps no ledger")
    return Scored(value=ledger.relative_gap)


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


def runtime(case: Case) -> Scored:
    """Seconds of wall clock, the item's share of its batch (Ali et al. 2022, appendix E).

    The method has explained an item before, so that what it sets up once is in no time.
    """
    return Scored(value=case.seconds)


def pointing_game(case: Case, *, tolerance: float = 0.0) -> Scored:
    """1 where the position of the highest relevance lies in the marked region, else 0.

    Zhang et al. 2016, section 4.1. A patch stands for its centre; `tolerance` is the distance to
    the region that is still a hit, in shares of the picture's width and height. Where several
    positions share the highest relevance the value is the part of them that hits: what drawing
    one at random gives on average. Raises ConfigurationError for a tolerance outside 0 to 1.
    """
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not number or not 0 <= tolerance <= 1:
        raise ConfigurationError(f"tolerance is a number from 0 to 1, not {tolerance!r}")
    grid, evidence = case.attribution.features, case.item.evidence
    if not isinstance(grid, PatchGrid) or evidence is None:
        return unmeasured("no evidence is marked in the picture")
    region = MarkedRegion.of(evidence)
    if not region.share(grid).any():
        return unmeasured("nothing that the model saw of the picture is marked")
    relevance = case.relevance.reshape(grid.rows, grid.cols)
    down, across = centres(grid)
    within = region.at(down, across)
    hits = [
        within[row, col] or (tolerance and _distance(region, down[row], across[col]) <= tolerance)
        for row, col in np.argwhere(relevance == relevance.max())
    ]
    return Scored(value=float(np.mean(hits, dtype=np.float64)))


def _distance(region: MarkedRegion, down: float, across: float) -> float:
    """From a point to the nearest marked rectangle."""
    rows, cols = np.nonzero(region.inside)
    tall = _outside(down, region.down[rows], region.down[rows + 1])
    wide = _outside(across, region.across[cols], region.across[cols + 1])
    return float(np.hypot(tall, wide).min())


def _outside(place: float, begins: Array, ends: Array) -> Array:
    return np.asarray(np.maximum(np.maximum(begins - place, place - ends), 0.0))


#: below this a method gives nearly the same map whatever class is explained
HARDLY = 0.05


def class_sensitivity_scores(bench: Bench, cases: Sequence[Case]) -> list[Scored]:
    """The class sensitivity of every case, explained again for its likeliest other class."""
    if len(bench.model.classes) < 2:
        return [unmeasured("the model has one class") for _ in cases]
    again = bench.again(cases, classes=[_likeliest_other(case) for case in cases])
    return [_scored(case, other) for case, other in zip(cases, again, strict=True)]


def class_sensitivity(left: NDArray[np.floating[Any]], right: NDArray[np.floating[Any]]) -> float:
    """(1 - rho) / 2 with Spearman's rank correlation rho of two maps of one item, 0 to 1.

    0: the same ranking of positions for both classes; 0.5: rankings without relation; 1: the
    opposite ranking, as where two classes share one logit difference. Ranks, because a method's
    scale may differ by class. A map that is constant ranks nothing: against another constant 0,
    else 0.5. `one` and `other` have one shape.
    """
    return (1 - rank_similarity(left, right)) / 2


def sensitivity_between(attribution: Attribution, other: Attribution) -> float:
    """The class sensitivity of two attributions of one item, over its own content."""
    if isinstance(attribution.features, PatchGrid):
        return class_sensitivity(attribution.relevance, other.relevance)
    kept = own_positions(attribution.features)
    return class_sensitivity(attribution.relevance[kept], other.relevance[kept])


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
