"""A region of a picture hidden in three ways: filled, blurred and in-painted."""

import math
from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from transexplain.metrics.evidence import Region
from transexplain.types import Annotation, Evidence

Pixels = NDArray[np.uint8]  #: (H, W, 3), 0 to 255
Inside = NDArray[np.bool_]  #: (H, W)

_SIGMA = 0.5  #: of the blur, as a share of the side of a square as large as the region
_RADIUS = 3  #: pixels around each that in-painting looks at
_LARGEST = 512  #: pixels of a side; what is larger is blurred and in-painted at this size


def region_pixels(region: Annotation, height: int, width: int) -> Inside:
    """(H, W) which pixels of a picture have their centre in a region, whatever a mask's size."""
    boxes = (region.box,) if region.box is not None else ()
    marked = Region.of(Evidence(boxes=boxes, mask=region.mask))
    down, across = ((np.arange(side) + 0.5) / side for side in (height, width))
    return np.asarray(marked.at(down, across), dtype=np.bool_)


def filled(picture: Pixels, inside: Inside) -> Pixels:
    """The picture with its mean colour where `inside`."""
    found = picture.copy()
    found[inside] = _mean(picture)
    return found


def blurred(picture: Pixels, inside: Inside) -> Pixels:
    """The picture blurred where `inside`, by a Gaussian as wide as half of the region."""

    def blur(part: Pixels, where: Inside) -> Pixels:
        sigma = max(1.0, _SIGMA * math.sqrt(int(where.sum())))
        return np.asarray(cv2.GaussianBlur(part, (0, 0), sigma), dtype=np.uint8)

    return _within(picture, inside, blur)


def inpainted(picture: Pixels, inside: Inside) -> Pixels:
    """The picture continued into `inside` from around it (Telea 2004)."""

    def paint(part: Pixels, where: Inside) -> Pixels:
        if where.all():  # of a scaled part nothing is left to begin from
            return filled(part, where)
        painted = cv2.inpaint(part, where.astype(np.uint8), _RADIUS, cv2.INPAINT_TELEA)
        return np.asarray(painted, dtype=np.uint8)

    return _within(picture, inside, paint)


#: in the order in which observations hold what was answered
WAYS: tuple[Callable[[Pixels, Inside], Pixels], ...] = (filled, blurred, inpainted)


def _mean(picture: Pixels) -> Pixels:
    """(3,) the mean colour."""
    return np.asarray(np.rint(picture.mean(axis=(0, 1))), dtype=np.uint8)


def _within(picture: Pixels, inside: Inside, change: Callable[[Pixels, Inside], Pixels]) -> Pixels:
    """The picture with `inside` taken from `change` of the part around it.

    The part reaches as far as the blur does, so cutting it out changes nothing. A large one is
    scaled down before and up afterwards: what hides a region has no detail to lose.
    """
    part = _around(inside)
    pixels, where = np.ascontiguousarray(picture[part]), inside[part]
    height, width = where.shape
    scale = _LARGEST / max(height, width)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        small = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        shares = cv2.resize(where.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        done = change(small, np.asarray(shares > 0))
        new = np.asarray(cv2.resize(done, (width, height), interpolation=cv2.INTER_LINEAR))
    else:
        new = change(pixels, where)
    found = picture.copy()
    found[part][where] = new[where]
    return found


def _around(inside: Inside) -> tuple[slice, slice]:
    """The rows and columns of a region, and on every side what its blur reaches."""
    margin = math.ceil(4 * max(1.0, _SIGMA * math.sqrt(int(inside.sum())))) + _RADIUS
    rows, cols = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    return (
        slice(max(0, int(rows[0]) - margin), int(rows[-1]) + 1 + margin),
        slice(max(0, int(cols[0]) - margin), int(cols[-1]) + 1 + margin),
    )
