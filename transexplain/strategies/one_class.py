"""The clusters of one class, and what in them looks like a shortcut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.strategies import quality, regions, spectral, words
from transexplain.strategies.features import Sample
from transexplain.strategies.records import (
    ClassStrategies,
    Cluster,
    Grid,
    Point,
    RegionEvidence,
    WordEvidence,
)

FEWEST = 3 * (spectral.MOST + 1)  #: items of a class that can be clustered
STABLE = 0.3  #: stability below which a split is one of these items and not of the class

_Floats = NDArray[np.float64]
_Labels = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Reading:
    """One class, clustered but not judged: that needs the other classes."""

    found: ClassStrategies
    shares: tuple[_Floats, ...]  #: of each cluster: its pictures' relevance in each region
    shape: tuple[int, int]  #: of the pooled heatmaps
    vocabulary: words.Vocabulary | None  #: of texts


def read(sample: Sample, target: str, class_name: str, items: int, seed: int) -> Reading:
    """Cluster the sampled explanations of one class; fewer than `FEWEST` are left alone."""
    points = sample.points()
    found = ClassStrategies(
        target=target,
        class_name=class_name,
        items=items,
        sampled=len(points),
        clusters=(),
        eigenvalues=(),
        chance=(),
        silhouette=None,
        stability=None,
        rejected=0,
        points=(),
    )
    labels = np.zeros(len(points), dtype=np.intp)
    if len(points) >= FEWEST:
        clustering = spectral.cluster(points, seed=seed)
        found, labels = _with_clusters(found, sample, points, clustering, seed)
    grids = sample.grids
    shares = regions.shares(grids) if grids is not None else np.zeros((len(points), 0))
    return Reading(
        found=found,
        shares=tuple(shares[labels == one] for one in range(int(labels.max()) + 1)),
        shape=(0, 0) if grids is None else (grids.shape[1], grids.shape[2]),
        vocabulary=None if sample.bags is None else words.vocabulary(sample.bags, sample.words),
    )


def _with_clusters(
    found: ClassStrategies,
    sample: Sample,
    points: _Floats,
    clustering: spectral.Clustering,
    seed: int,
) -> tuple[ClassStrategies, _Labels]:
    """The class with its clusters: one, where several do not come again in halves of the items."""
    labels, count, rejected = clustering.labels, clustering.count, 0
    stability = quality.stability(points, labels, count, seed) if count > 1 else None
    if stability is not None and stability < STABLE:
        labels, count, rejected = np.zeros_like(labels), 1, count
    each = quality.silhouettes(points, labels) if count > 1 else None
    drawn = quality.picture(points, seed)
    clustered = replace(
        found,
        clusters=_clusters(sample, points, labels, each),
        eigenvalues=tuple(map(float, clustering.eigenvalues)),
        chance=tuple(map(float, clustering.chance)),
        silhouette=None if each is None else float(each.mean()),
        stability=stability,
        rejected=rejected,
        points=tuple(
            Point(item_id=item_id, x=float(x), y=float(y), cluster=int(label) + 1)
            for item_id, (x, y), label in zip(sample.item_ids, drawn, labels, strict=True)
        ),
    )
    return clustered, labels


def _clusters(
    sample: Sample, points: _Floats, labels: _Labels, each: _Floats | None
) -> tuple[Cluster, ...]:
    count = int(labels.max()) + 1
    heavy: list[list[WordEvidence]] = [[] for _ in range(count)]
    if sample.bags is not None:
        heavy = words.heaviest(sample.bags, sample.words, labels, count)
    found = []
    for one in range(count):
        inside = np.flatnonzero(labels == one)
        typical = inside[quality.typical_first(points[inside])]
        found.append(
            Cluster(
                number=one + 1,
                size=len(inside),
                share=len(inside) / len(labels),
                silhouette=None if each is None else float(each[inside].mean()),
                item_ids=tuple(sample.item_ids[place] for place in typical),
                heatmap=None if sample.grids is None else _mean(sample.grids[inside]),
                regions=(),
                words=tuple(heavy[one]),
            )
        )
    return tuple(found)


def _mean(grids: _Floats) -> Grid:
    return tuple(tuple(map(float, row)) for row in grids.mean(axis=0))


def judged(one: Reading, others: Sequence[Reading], seed: int) -> ClassStrategies:
    """The class with its evidence judged: each cluster against all other items looked at.

    Not against its own class alone: several clusters, or all of a class, may share a shortcut.
    """
    if not one.found.clusters:
        return one.found
    spatial, verbal = _regions(one, others, seed), _words(one, others)
    clusters = [
        replace(cluster, regions=spatial[place], words=verbal[place])
        for place, cluster in enumerate(one.found.clusters)
    ]
    return replace(one.found, clusters=tuple(clusters))


def _regions(
    one: Reading, others: Sequence[Reading], seed: int
) -> list[tuple[RegionEvidence, ...]]:
    # pictures of another grid have other regions
    same = [share for other in others if other.shape == one.shape for share in other.shares]
    outside = []
    for place, inside in enumerate(one.shares):
        rest = [share for other, share in enumerate(one.shares) if other != place] + same
        outside.append(np.concatenate([inside[:0], *rest]))
    return regions.evidence(one.shape, list(one.shares), outside, seed)


def _words(one: Reading, others: Sequence[Reading]) -> list[tuple[WordEvidence, ...]]:
    if one.vocabulary is None:
        return [()] * len(one.found.clusters)
    rest = [other.vocabulary for other in others if other.vocabulary is not None]
    return words.judged(
        [cluster.words for cluster in one.found.clusters],
        [cluster.size for cluster in one.found.clusters],
        words.merged([one.vocabulary, *rest]),
    )
