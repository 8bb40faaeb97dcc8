"""Gallery pictures with their heatmaps, opened again from the dataset and embedded."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from transexplain.data.image_files import load_image
from transexplain.data.source_files import inside
from transexplain.errors import ItemError
from transexplain.reports.heatmap import data_uri, muted, overlay, resized, tile
from transexplain.reports.row_records import Explanation, GalleryItem, Grid

_SMALLEST, _LARGEST = 160, 256  # pixels of the longer side
_ALPHA = 0.85


@dataclass(frozen=True, slots=True)
class Drawn:
    """One explanation as pictures, each a `data:` address."""

    shared: str  #: on the scale that all examples share
    own: str  #: on its own scale


@dataclass(frozen=True, slots=True)
class Shown:
    """One gallery item as pictures."""

    original: str | None
    missing: str  #: why there is no original; heatmaps then stand alone
    drawn: tuple[Drawn, ...]


def show(item: GalleryItem, root: str, scale: float) -> Shown:
    """Open the picture of `item` and draw its explanations."""
    try:
        image = _open(item.source, root)
    except ItemError as error:
        drawn = tuple(_alone(one, scale) for one in item.explanations)
        return Shown(None, str(error), drawn)
    image = resized(image, smallest=_SMALLEST, largest=_LARGEST)
    ground = muted(image)
    drawn = tuple(_over(ground, one, scale) for one in item.explanations)
    return Shown(data_uri(image), "", drawn)


def mean_heatmap(grid: Grid, scale: float) -> str:
    """The mean heatmap of a class as a `data:` address."""
    return data_uri(tile(np.asarray(grid), width=208, scale=scale))


def _open(source: str | None, root: str) -> Image.Image:
    if source is None:
        raise ItemError("missing-image", "no file of this picture was recorded")
    if not root:
        raise ItemError("missing-image", "the dataset's folder was not recorded")
    return load_image(inside(Path(root), source), name=source)


def _over(image: Image.Image, one: Explanation, scale: float) -> Drawn:
    grid, box = np.asarray(one.grid or ((0.0,),)), one.box or (0.0, 0.0, 1.0, 1.0)
    return Drawn(
        shared=data_uri(overlay(image, grid, alpha=_ALPHA, scale=scale, box=box)),
        own=data_uri(overlay(image, grid, alpha=_ALPHA, box=box)),
    )


def _alone(one: Explanation, scale: float) -> Drawn:
    grid = np.asarray(one.grid or ((0.0,),))
    return Drawn(shared=data_uri(tile(grid, scale=scale)), own=data_uri(tile(grid)))
