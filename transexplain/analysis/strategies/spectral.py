"""Spectral clustering with the number of clusters from the eigengap (von Luxburg 2007).

As in spectral relevance analysis (Lapuschkin et al. 2019): a symmetrised graph of nearest
neighbours, the eigenvalues of its normalised Laplacian, and as many clusters as come before the
largest gap. A largest gap exists in any data and is often far up, so only those eigenvalues count
that are smaller than the ones at their place in samples of one normal distribution of the data's
covariance: parallel analysis (Horn 1965) with the null hypothesis of Liu et al. (2008). Where the
second is not, there is one cluster.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.cluster import spectral_clustering
from sklearn.manifold import TSNE
from sklearn.metrics import adjusted_rand_score, silhouette_samples
from sklearn.neighbors import kneighbors_graph

MOST = 7  #: clusters of a class
REFERENCES = 19  #: samples of one normal distribution: a false alarm in one of 20
_DENSE = 4  #: eigsh needs fewer eigenvalues than rows; a little room besides

_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Clustering:
    """The cluster of each point, and the reasons for their number."""

    labels: NDArray[np.intp]  #: (N,) from 0, the largest cluster first
    count: int
    eigenvalues: _Floats  #: ascending
    chance: _Floats  #: the smallest at each place in samples of one cluster


def cluster(points: _Floats, *, most: int = MOST, seed: int = 0) -> Clustering:
    """Cluster (N, D) points; N must be at least 2 (`most` + 1)."""
    graph = affinity(points)
    values = eigenvalues(graph, most + 1, seed)
    chance = _by_chance(points, most + 1, seed)
    # the largest gap among the first eigenvalues that are smaller than by chance
    small = values[1:-1] < chance[1:-1]
    allowed = 1 + int(np.argmin(np.append(small, False)))
    count = 1 + int(np.argmax(np.diff(values)[:allowed]))
    return Clustering(
        labels=assign(graph, count, seed),
        count=count,
        eigenvalues=values,
        chance=chance,
    )


def affinity(points: _Floats) -> csr_array:
    """(N, N) 1 where one of two points is among the other's nearest neighbours, else 0."""
    # of the order of log N, where such graphs begin to be connected (von Luxburg 2007, 8.3); with
    # fewer than ten, a small class falls into pieces of itself
    neighbours = min(len(points) - 1, max(10, round(2 * np.log(len(points)))))
    graph = csr_array(kneighbors_graph(points, neighbours, include_self=False))
    graph = csr_array(graph.maximum(graph.T))
    # scikit-learn makes 64-bit indices here and refuses them when it clusters
    indices, starts = graph.indices.astype(np.int32), graph.indptr.astype(np.int32)
    return csr_array((graph.data, indices, starts), shape=graph.shape)


def eigenvalues(graph: csr_array, count: int, seed: int = 0) -> _Floats:
    """The `count` smallest eigenvalues of 1 - D^-1/2 W D^-1/2, ascending, 0 or more."""
    scale = diags_array(1.0 / np.sqrt(graph.sum(axis=1)))
    start = np.random.default_rng(seed).standard_normal(graph.shape[0])
    largest = eigsh(
        csr_array(scale @ graph @ scale),
        k=count,
        which="LA",
        v0=start,
        ncv=min(graph.shape[0], 6 * count + _DENSE),
        return_eigenvectors=False,
    )
    return np.clip(np.sort(1.0 - largest), 0.0, None)


def assign(graph: csr_array, count: int, seed: int = 0) -> NDArray[np.intp]:
    """(N,) clusters from 0, the largest first; ties by their first member."""
    if count == 1:
        return np.zeros(graph.shape[0], dtype=np.intp)
    with warnings.catch_warnings():
        # parts without a link between them are what clusters look like at their clearest
        warnings.filterwarnings("ignore", "Graph is not fully connected", UserWarning)
        raw = spectral_clustering(
            graph, n_clusters=count, eigen_solver="arpack", assign_labels="kmeans",
            random_state=seed, n_init=10,
        )  # fmt: skip
    return ranked(raw)


def ranked(labels: NDArray[np.integer]) -> NDArray[np.intp]:
    """The same clusters, numbered from 0 by size, ties by their first member."""
    _, first, inverse, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -sizes))
    places = np.empty(len(order), dtype=np.intp)
    places[order] = np.arange(len(order))
    return places[inverse]


def _by_chance(points: _Floats, count: int, seed: int) -> _Floats:
    """(count,) the smallest eigenvalue at each place over samples of one cluster."""
    rng = np.random.default_rng(seed)
    centred = points - points.mean(axis=0)
    # rows of G X are normal with the covariance of X, but for a factor
    mixed = (rng.standard_normal((len(points), len(points))) @ centred for _ in range(REFERENCES))
    smallest = [eigenvalues(affinity(drawn), count, seed) for drawn in mixed]
    return np.asarray(np.min(smallest, axis=0))


HALVES = 10  #: random halves that are clustered again
_PERPLEXITY = 30.0

_Points = NDArray[np.float64]
_Labels = NDArray[np.intp]


def silhouettes(points: _Points, labels: _Labels) -> _Points:
    """(N,) -1 to 1: nearer to its own cluster than to the next (Rousseeuw 1987)."""
    return np.asarray(silhouette_samples(points, labels))


def stability(points: _Points, labels: _Labels, count: int, seed: int) -> float:
    """Mean adjusted Rand index (Hubert and Arabie 1985) of clustered halves with the whole.

    1: random halves fall into the same clusters; 0: no more alike than chance.
    """
    rng = np.random.default_rng(seed)
    indices = []
    for _ in range(HALVES):
        half = np.sort(rng.permutation(len(points))[: len(points) // 2])
        again = assign(affinity(points[half]), count, seed)
        indices.append(adjusted_rand_score(labels[half], again))
    return float(np.mean(indices))


def typical_first(points: _Points) -> NDArray[np.intp]:
    """(N,) places, those nearest to the mean first."""
    distances = np.linalg.norm(points - points.mean(axis=0), axis=1)
    return np.argsort(distances, kind="stable")


def picture(points: _Points, seed: int) -> _Points:
    """(N, 2) t-SNE (van der Maaten and Hinton 2008), -1 to 1: near stays near, far means little."""
    if not np.ptp(points, axis=0).any():
        return np.zeros((len(points), 2))
    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    # where all columns are few, principal components are too few to begin with
    start = "pca" if points.shape[1] >= 2 else "random"
    # half of the usual steps: for a picture, not for a measure
    tsne = TSNE(2, perplexity=perplexity, init=start, max_iter=500, random_state=seed)
    drawn = tsne.fit_transform(points)
    centred = drawn - (drawn.min(axis=0) + drawn.max(axis=0)) / 2
    return np.asarray(centred / max(float(np.abs(centred).max()), 1e-12), dtype=np.float64)
