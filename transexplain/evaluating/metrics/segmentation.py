"""Agreement of a heatmap, read as a segmentation, with the human rationale of a picture.

Only the part of the picture that the model saw counts, at the resolution of the mask or, where
`pixels` is given, at so many places along each side; boxes have no resolution of their own and are
drawn at `PIXELS`. Relevance counts with its sign. Values are of single pictures; where a
published figure sums pixels over a data set, the mean over pictures weighs small ones more.
"""

from typing import Literal

import numpy as np
from sklearn.metrics import average_precision_score, jaccard_score

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.rationale_regions import Region
from transexplain.types.items import PatchGrid

Interpolation = Literal["bilinear", "nearest"]
#: places along each side at which boxes are sampled, by default
PIXELS = 224

#: of each pixel its relevance and whether it is marked, both flat; or why there is nothing
_Pixels = tuple[Array, Masks] | Scored


def pixel_accuracy(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = None
) -> Scored:
    """Share of pixels on the right side of the mean relevance (Chefer et al. 2021a, section 4).

    Raises ConfigurationError for an unknown interpolation or a number of pixels below 1.
    """
    found = _pixels(case, interpolation, pixels)
    if isinstance(found, Scored):
        return found
    relevance, truth = found
    return Scored(value=float((_above(relevance) == truth).mean()))


def segmentation_ap(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = None
) -> Scored:
    """Average precision of pixels ordered by relevance (Chefer et al. 2021a, section 4).

    Raises ConfigurationError for an unknown interpolation or a number of pixels below 1.
    """
    found = _pixels(case, interpolation, pixels)
    if isinstance(found, Scored):
        return found
    relevance, truth = found
    return Scored(value=float(average_precision_score(truth, relevance)))


def segmentation_miou(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = None
) -> Scored:
    """Mean of the intersections over unions of what is marked and what is not.

    Pixels above the mean relevance are taken to be marked (Chefer et al. 2021a, section 4).
    Raises ConfigurationError for an unknown interpolation or a number of pixels below 1.
    """
    found = _pixels(case, interpolation, pixels)
    if isinstance(found, Scored):
        return found
    relevance, truth = found
    # counting bytes is three times as fast as counting booleans
    sides = truth.astype(np.int8), _above(relevance).astype(np.int8)
    return Scored(value=float(jaccard_score(*sides, average="macro")))


def _pixels(case: Case, interpolation: Interpolation, pixels: int | None) -> _Pixels:
    _check(interpolation, pixels)
    grid, evidence = case.attribution.features, case.item.evidence
    if not isinstance(grid, PatchGrid) or evidence is None:
        return unmeasured("no evidence is marked in the picture")
    left, top, right, bottom = grid.box
    if evidence.mask is None or pixels is not None:
        down, across = _evenly(top, bottom, pixels), _evenly(left, right, pixels)
    else:
        rows, cols = evidence.mask.shape
        down, across = _centres(top, bottom, rows), _centres(left, right, cols)
    truth = Region.of(evidence).at(down, across)
    if truth.all() or not truth.any():
        everything = "everything" if truth.any() else "nothing"
        return unmeasured(f"{everything} that the model saw of the picture is marked")
    tall = _weights((down - top) / (bottom - top) * grid.rows, grid.rows, interpolation)
    wide = _weights((across - left) / (right - left) * grid.cols, grid.cols, interpolation)
    relevance = case.relevance.reshape(grid.rows, grid.cols)
    return (tall @ relevance @ wide.T).reshape(-1), truth.reshape(-1)


def _evenly(start: float, stop: float, count: int | None) -> Array:
    """Centres of `count` equal parts from `start` to `stop`."""
    parts = PIXELS if count is None else count
    return np.asarray(start + (np.arange(parts) + 0.5) / parts * (stop - start))


def _centres(start: float, stop: float, side: int) -> Array:
    """Centres from `start` to `stop` of the pixels of a mask's side."""
    own = (np.arange(side) + 0.5) / side
    within = own[(own >= start) & (own < stop)]
    # a mask so coarse that no pixel's centre is within: the pixel in the middle
    return within if len(within) else _evenly(start, stop, 1)


def _weights(places: Array, patches: int, interpolation: Interpolation) -> Array:
    """(N, patches) how N places, in patches from the first one's edge, are mixed of the patches."""
    shifted = places - 0.5 if interpolation == "bilinear" else np.floor(places)
    low = np.floor(shifted).astype(np.intp)
    high_part = shifted - low
    weights = np.zeros((len(places), patches))
    rows = np.arange(len(places))
    weights[rows, low.clip(0, patches - 1)] += 1 - high_part
    weights[rows, (low + 1).clip(0, patches - 1)] += high_part
    return weights


def _above(relevance: Array) -> Masks:
    """Which pixels lie above the mean; none where all are alike but for rounding."""
    rounding = 1e-12 * np.abs(relevance).max()
    return np.asarray(relevance - relevance.mean() > rounding)


def _check(interpolation: str, pixels: int | None) -> None:
    if interpolation not in ("bilinear", "nearest"):
        raise ConfigurationError(f"interpolation is bilinear or nearest, not {interpolation!r}")
    if pixels is None:
        return
    if isinstance(pixels, bool) or not isinstance(pixels, int) or pixels < 1:
        raise ConfigurationError(f"pixels is a whole number of at least 1, not {pixels!r}")
