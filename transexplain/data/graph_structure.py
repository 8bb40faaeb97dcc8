"""What a graph transformer reads of the edges of a graph."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def structure(edges: ArrayLike, nodes: int) -> dict[str, NDArray[Any]]:
    """The inputs of a graph transformer that follow from undirected edges, and the edges.

    Args:
        edges: (E, 2) pairs of nodes, counted from 0.
        nodes: T.

    Returns:
        `distances` (T, T) int64: edges on the shortest path, T where no path joins two nodes;
        `degrees` (T,) int64: edges of each node; `edges` (E, 2) int64, each once.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    pairs = np.sort(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    joined = coo_array((np.ones(len(pairs)), pairs.T), shape=(nodes, nodes))
    paths = shortest_path(joined.tocsr(), directed=False, unweighted=True)
    return {
        "distances": np.where(np.isinf(paths), nodes, paths).astype(np.int64),
        "degrees": np.bincount(pairs.ravel(), minlength=nodes).astype(np.int64),
        "edges": pairs,
    }
