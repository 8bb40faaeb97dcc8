"""The digits of scikit-learn as graphs of superpixels, and batches of such graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import load_digits
from sklearn.feature_extraction.image import grid_to_graph
from torch import Tensor
from torch.nn import functional as F

SIDE = 16  # pixels that a digit of 8 x 8 is enlarged to
MERGE = 0.5  # superpixels grow until joining two would add this much to their spread
FEATURES = 7  # of a superpixel

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit as a picture and as a graph of its T superpixels."""

    picture: Array  #: (SIDE, SIDE), 0 to 1
    parts: Array  #: (SIDE, SIDE) the superpixel of every pixel, 0 to T - 1
    graph: dict[str, Array]  #: the inputs of the model
    label: int


def digits(count: int | None = None) -> list[Digit]:
    """The digits of scikit-learn, shuffled: every part of them is by every writer."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))[:count]
    grid = grid_to_graph(SIDE, SIDE)
    return [_digit(data.images[index] / 16.0, int(data.target[index]), grid) for index in order]


def _digit(image: Array, label: int, grid: Any) -> Digit:
    picture = cv2.resize(image.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    rows, cols = np.mgrid[:SIDE, :SIDE] / SIDE
    # Ward's clusters of neighbouring pixels that are alike in brightness and place
    points = np.stack([picture, rows, cols], axis=-1).reshape(-1, 3)
    ward = AgglomerativeClustering(
        n_clusters=None, distance_threshold=MERGE, connectivity=grid, linkage="ward"
    )
    parts = ward.fit_predict(points).reshape(SIDE, SIDE)
    return Digit(picture, parts, _graph(points, parts), label)


def _graph(points: Array, parts: Array) -> dict[str, Array]:
    """What every superpixel is like, and how far apart they are.

    Its features: brightness, row and column of its centre, its size, and its spread downward,
    across and along the diagonal, for a superpixel may be long and thin.
    """
    sizes = np.bincount(parts.ravel())
    brightness, down, across = points.T
    terms = (brightness, down, across, down * down, across * across, down * across)
    means = [np.bincount(parts.ravel(), weights=term) / sizes for term in terms]
    centre = means[1:3]
    spread = (
        means[3] - centre[0] ** 2,
        means[4] - centre[1] ** 2,
        means[5] - centre[0] * centre[1],
    )
    features = [means[0], *centre, 10 * sizes / parts.size, *(100 * term for term in spread)]
    touch = np.zeros((len(sizes), len(sizes)), dtype=bool)
    touch[parts[1:], parts[:-1]] = touch[parts[:, 1:], parts[:, :-1]] = True
    touch = (touch | touch.T) & ~np.eye(len(sizes), dtype=bool)
    return {
        "node_features": (2 * np.stack(features, axis=-1) - 1).astype(np.float32),
        "distances": shortest_path(touch, unweighted=True).astype(np.int64),
        "degrees": touch.sum(axis=1).astype(np.int64),
    }


def without(graph: Mapping[str, Array], gone: Sequence[int] | Array) -> dict[str, Array]:
    """The graph less some nodes; the others stay as far apart as they were."""
    kept = np.setdiff1d(np.arange(len(graph["degrees"])), gone)
    return {
        "node_features": graph["node_features"][kept],
        "distances": graph["distances"][np.ix_(kept, kept)],
        "degrees": graph["degrees"][kept],
    }


def stacked(graphs: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
    """A batch (B, ...), padded on the right; `attention_mask` (B, T) tells the nodes."""
    most = max(len(graph["degrees"]) for graph in graphs)
    batch: dict[str, list[Tensor]] = {}
    for graph in graphs:
        missing = most - len(graph["degrees"])
        mask = torch.ones(most - missing, dtype=torch.long)
        tensors = {name: torch.from_numpy(values) for name, values in graph.items()}
        for name, tensor in {**tensors, "attention_mask": mask}.items():
            pairs = name == "distances"
            margins = (
                (0, missing, 0, missing) if pairs else (*(0, 0) * (tensor.ndim - 1), 0, missing)
            )
            batch.setdefault(name, []).append(F.pad(tensor, margins))
    return {name: torch.stack(tensors) for name, tensors in batch.items()}
