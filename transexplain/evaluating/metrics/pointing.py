"""Pointing game: whether the most relevant position of a picture lies inside its rationale."""

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Case, Scored, unmeasured
from transexplain.evaluating.metrics.rationale_regions import Region, centres
from transexplain.types.items import PatchGrid


def pointing_game(case: Case, *, tolerance: float = 0.0) -> Scored:
    """1 where the position of the highest relevance lies in the marked region, else 0.

    Zhang et al. 2016, section 4.1. A patch stands for its centre; `tolerance` is the distance to
    the region that is still a hit, in shares of the picture's width and height. Where several
    positions share the highest relevance the value is the part of them that hits: what drawing
    one at random gives on average. Raises ConfigurationError for a tolerance outside 0 to 1.
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise ConfigurationError(f"tolerance is a number from 0 to 1, not {tolerance!r}")
    if not 0 <= tolerance <= 1:
        raise ConfigurationError(f"tolerance is a number from 0 to 1, not {tolerance!r}")
    grid, evidence = case.attribution.features, case.item.evidence
    if not isinstance(grid, PatchGrid) or evidence is None:
        return unmeasured("no evidence is marked in the picture")
    region = Region.of(evidence)
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


def _distance(region: Region, down: float, across: float) -> float:
    """From a point to the nearest marked rectangle."""
    rows, cols = np.nonzero(region.inside)
    tall = _outside(down, region.down[rows], region.down[rows + 1])
    wide = _outside(across, region.across[cols], region.across[cols + 1])
    return float(np.hypot(tall, wide).min())


def _outside(place: float, begins: Array, ends: Array) -> Array:
    return np.asarray(np.maximum(np.maximum(begins - place, place - ends), 0.0))
