"""How far apart clusters are, how stable they are, their typical items, and a map of them."""

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from transexplain.strategies.spectral import affinity, assign

HALVES = 10  #: random halves that are clustered again
_PERPLEXITY = 30.0

_Floats = NDArray[np.float64]
_Labels = NDArray[np.intp]


def silhouettes(points: _Floats, labels: _Labels) -> _Floats:
    """(N,) -1 to 1: nearer to its own cluster than to the next (Rousseeuw 1987)."""
    return np.asarray(silhouette_samples(points, labels))


def stability(points: _Floats, labels: _Labels, count: int, seed: int) -> float:
    """Mean adjusted Rand index (Hubert and Arabie 1985) of clustered halves with the whole.

    1: random halves fall into the same clusters; 0: no more alike than chance.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(HALVES):
        half = np.sort(rng.permutation(len(points))[: len(points) // 2])
        again = assign(affinity(points[half]), count, seed)
        found.append(adjusted_rand_score(labels[half], again))
    return float(np.mean(found))


def typical_first(points: _Floats) -> NDArray[np.intp]:
    """(N,) places, those nearest to the mean first."""
    distances = np.linalg.norm(points - points.mean(axis=0), axis=1)
    return np.argsort(distances, kind="stable")


def picture(points: _Floats, seed: int) -> _Floats:
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
