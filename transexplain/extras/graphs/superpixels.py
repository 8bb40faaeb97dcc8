"""Pictures as graphs of superpixels (extra `superpixels`)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.extras.graphs.graph_files import structure
from transexplain.registry import require

#: makes the variance of an even spread from 0 to 1 one
EVEN = np.sqrt(12.0)


@dataclass(frozen=True, slots=True, eq=False)
class Superpixels:
    """One picture as a graph of T superpixels."""

    parts: NDArray[np.int64]  #: (rows, cols) the superpixel of every pixel, 0 to T - 1
    #: `node_features` (T, F), `distances` (T, T), `degrees` (T,), `edges` (E, 2),
    #: `node_positions` (T, 2)
    graph: dict[str, NDArray[Any]]


def superpixels(
    picture: NDArray[Any], *, segments: int = 75, compactness: float = 0.25, blur: float = 0.5
) -> Superpixels:
    """The graph of a picture's superpixels (SLIC, Achanta et al. 2012); neighbours are joined.

    A node's features are its mean colour and the row and column of its centre (Monti et al. 2017
    have 75 superpixels of a digit, their brightness, and the places beside it). All of them, from 0
    to 1, are shifted and scaled as if they were spread evenly: to mean 0 and variance 1.

    Args:
        picture: (rows, cols) or (rows, cols, channels), values from 0 to 1.
        segments: how many superpixels SLIC aims at; the graph has about as many.
        compactness: of the superpixels; larger: more like squares, smaller: along the colours.
        blur: standard deviation of the Gaussian before the search, in pixels.

    Raises ConfigurationError where scikit-image is missing or the picture is of another shape.
    """
    require("skimage", "superpixels")
    from skimage.segmentation import slic

    colours = np.asarray(picture, dtype=np.float64)
    if colours.ndim not in (2, 3) or not colours.size or not np.isfinite(colours).all():
        raise ConfigurationError(
            f"a picture is (rows, cols) or (rows, cols, channels) of finite numbers, not "
            f"{colours.shape}"
        )
    found = slic(
        colours,
        n_segments=segments,
        compactness=compactness,
        sigma=blur,
        start_label=0,
        channel_axis=None if colours.ndim == 2 else -1,
    )
    # SLIC may leave numbers out
    parts = np.unique(found, return_inverse=True)[1].reshape(found.shape).astype(np.int64)
    return Superpixels(parts, _graph(colours, parts))


def _graph(colours: NDArray[np.float64], parts: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    rows, cols = parts.shape
    sizes = np.bincount(parts.ravel())
    down, across = np.mgrid[:rows, :cols]
    channels = colours.reshape(rows * cols, -1).T
    values = [*channels, (down.ravel() + 0.5) / rows, (across.ravel() + 0.5) / cols]
    means = [np.bincount(parts.ravel(), weights=value) / sizes for value in values]
    beside = np.stack([parts[:, 1:].ravel(), parts[:, :-1].ravel()], axis=-1)
    below = np.stack([parts[1:].ravel(), parts[:-1].ravel()], axis=-1)
    return {
        "node_features": (EVEN * (np.stack(means, axis=-1) - 0.5)).astype(np.float32),
        "node_positions": np.stack([means[-1] * cols, means[-2] * rows], axis=-1).astype(
            np.float32
        ),
        **structure(np.concatenate([beside, below]), len(sizes)),
    }
