"""Agreement of a heatmap, read as a segmentation, with the human rationale of a picture.

Only the part of the picture that the model saw counts, at the resolution of the mask or, where
`pixels` is given, at so many places along each side; boxes have no resolution of their own and are
drawn at `PIXELS`. Relevance counts with its sign. `pixel_accuracy`, `segmentation_ap` and
`segmentation_miou` are of single pictures, and their mean weighs every picture alike;
`pooled_accuracy` and `pooled_miou` sum the pixels of all pictures first, as published figures do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.rationale import MarkedRegion
from transexplain.types.items import PatchGrid

Interpolation = Literal["bilinear", "nearest"]
#: places along each side at which boxes are sampled, by default
PIXELS = 224
_ROUNDING = 1e-12  #: differences up to this share of the largest relevance are none

#: of each pixel its relevance and whether it is marked, both flat; or why there is nothing
_Pixels = tuple[Array, Masks] | Scored


def pixel_accuracy(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = None
) -> Scored:
    """Share of pixels on the right side of the mean relevance (Chefer et al. 2021a, section 4).

    Raises ConfigurationError for an unknown interpolation or a number of pixels below 1.
    """
    drawn = _pixels(case, interpolation, pixels)
    if isinstance(drawn, Scored):
        return drawn
    relevance, truth = drawn
    return Scored(value=float((_above(relevance) == truth).mean()))


def segmentation_ap(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = None
) -> Scored:
    """Average precision of pixels ordered by relevance (Chefer et al. 2021a, section 4).

    Raises ConfigurationError for an unknown interpolation or a number of pixels below 1.
    """
    drawn = _pixels(case, interpolation, pixels)
    if isinstance(drawn, Scored):
        return drawn
    relevance, truth = drawn
    from sklearn.metrics import average_precision_score

    return Scored(value=float(average_precision_score(truth, relevance)))


def segmentation_miou(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = None
) -> Scored:
    """Mean of the intersections over unions of what is marked and what is not.

    Pixels above the mean relevance are taken to be marked (Chefer et al. 2021a, section 4).
    Raises ConfigurationError for an unknown interpolation or a number of pixels below 1.
    """
    drawn = _pixels(case, interpolation, pixels)
    if isinstance(drawn, Scored):
        return drawn
    relevance, truth = drawn
    # counting bytes is three times as fast as counting booleans
    sides = truth.astype(np.int8), _above(relevance).astype(np.int8)
    from sklearn.metrics import jaccard_score

    return Scored(value=float(jaccard_score(*sides, average="macro")))


def segmentation_map(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = PIXELS
) -> Scored:
    """Average precision of both sides together; its mean over pictures is mAP.

    Chefer et al. 2021a, section 4 and table 2, as the authors' code has it: every pixel is there
    twice, once with its relevance r between 0 and 1 (min-max over the picture) and right where it
    is marked, once with 1 - r and right where it is not. A map that is the same everywhere orders
    nothing: 1/2. Raises ConfigurationError as `segmentation_ap`.
    """
    drawn = _pixels(case, interpolation, pixels)
    if isinstance(drawn, Scored):
        return drawn
    relevance, truth = drawn
    low, width = relevance.min(), np.ptp(relevance)
    if width <= _ROUNDING * np.abs(relevance).max():
        return Scored(value=0.5)
    marked = (relevance - low) / width
    sides = np.concatenate([1 - marked, marked])
    from sklearn.metrics import average_precision_score

    return Scored(value=float(average_precision_score(np.concatenate([~truth, truth]), sides)))


def pixel_counts(
    case: Case, *, interpolation: Interpolation = "bilinear", pixels: int | None = PIXELS
) -> Scored:
    """The counts of one picture for `pooled_accuracy` and `pooled_miou`; alone it has no value.

    The detail counts its pixels, those on the right side of the mean relevance, and of what is
    not marked and what is marked the intersection and the union with what is taken to be so. A
    picture that is marked all over, or nowhere, counts too. By default a picture counts
    `PIXELS` x `PIXELS`, as in the authors' code; `pixels=None` counts those of its mask. Raises
    ConfigurationError as `pixel_accuracy`.
    """
    drawn = _drawn(case, interpolation, pixels)
    if isinstance(drawn, Scored):
        return drawn
    relevance, truth = drawn
    taken = _above(relevance)
    both = [int((~taken & ~truth).sum()), int((taken & truth).sum())]
    either = [int((~taken | ~truth).sum()), int((taken | truth).sum())]
    return Scored(
        value=None,
        detail={"pixels": len(truth), "right": sum(both), "both": both, "either": either},
    )


def pooled_accuracy(details: Sequence[Mapping[str, Any]]) -> Scored:
    """Share of all pixels of all pictures on the right side (Chefer et al. 2021a, table 2)."""
    given = [detail for detail in details if detail.get("pixels")]
    if not given:
        return unmeasured("no picture was measured")
    return Scored(
        value=sum(counts["right"] for counts in given) / sum(counts["pixels"] for counts in given)
    )


def pooled_miou(details: Sequence[Mapping[str, Any]]) -> Scored:
    """Mean over both sides of intersection over union, each summed over all pictures.

    Chefer et al. 2021a, table 2. A side that no picture has and no map takes is left out.
    """
    given = [detail for detail in details if detail.get("pixels")]
    if not given:
        return unmeasured("no picture was measured")
    both = np.sum([counts["both"] for counts in given], axis=0)
    either = np.sum([counts["either"] for counts in given], axis=0)
    there = either > 0
    return Scored(value=float((both[there] / either[there]).mean()))


def upsampled(relevance: Array, height: int, width: int) -> Array:
    """(height, width) relevance of pixels from that of patches (rows, cols), bilinear.

    Pixels and patches are taken at their centres (Chefer et al. 2021a, section 3).
    """
    tall, wide = (
        _weights((np.arange(side) + 0.5) / side * patches, patches, "bilinear")
        for side, patches in zip((height, width), relevance.shape, strict=True)
    )
    return np.asarray(tall @ relevance @ wide.T)


def _pixels(case: Case, interpolation: Interpolation, pixels: int | None) -> _Pixels:
    """As `_drawn`, where some is marked and some is not."""
    drawn = _drawn(case, interpolation, pixels)
    if isinstance(drawn, Scored):
        return drawn
    truth = drawn[1]
    if truth.all() or not truth.any():
        everything = "everything" if truth.any() else "nothing"
        return unmeasured(f"{everything} that the model saw of the picture is marked")
    return drawn


def _drawn(case: Case, interpolation: Interpolation, pixels: int | None) -> _Pixels:
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
    truth = MarkedRegion.of(evidence).at(down, across)
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
    """The pixels above the mean; none where all are alike but for rounding."""
    rounding = _ROUNDING * np.abs(relevance).max()
    return np.asarray(relevance - relevance.mean() > rounding)


def _check(interpolation: str, pixels: int | None) -> None:
    if interpolation not in ("bilinear", "nearest"):
        raise ConfigurationError(f"interpolation is bilinear or nearest, not {interpolation!r}")
    if pixels is None:
        return
    if isinstance(pixels, bool) or not isinstance(pixels, int) or pixels < 1:
        raise ConfigurationError(f"pixels is a whole number of at least 1, not {pixels!r}")
