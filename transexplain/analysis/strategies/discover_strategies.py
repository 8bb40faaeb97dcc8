"""Clusters the stored relevance of each class of a run into strategies."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from transexplain.analysis.strategies import shortcuts, spectral
from transexplain.analysis.strategies.shortcuts import (
    ClassStrategies,
    Cluster,
    Grid,
    Point,
    RegionEvidence,
    Strategies,
    WordEvidence,
)
from transexplain.errors import ConfigurationError
from transexplain.randomness import keyed_number
from transexplain.store import readers, runs
from transexplain.store.database import Database
from transexplain.store.shard_digests import refuse_damaged
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.plans import AuditRun

CELLS = 16  #: largest number of rows and of columns of a pooled heatmap
AXES = 64  #: directions that relevance over word types is reduced to

_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """The explanations of N items for one class, in the order of their ids."""

    item_ids: tuple[str, ...]
    grids: _Floats | None  #: (N, rows, cols), sum |R| = 1; None for texts
    bags: csr_array | None  #: (N, words) relevance of each word type, in the method's unit
    words: tuple[str, ...] = ()  #: the columns of `bags`

    def points(self) -> _Floats:
        """(N, D) what is clustered, Euclidean."""
        if self.grids is not None:
            return self.grids.reshape(len(self.grids), -1)
        # leading directions (latent semantic analysis), again of length 1: neighbours in tens of
        # thousands of word types are mostly chance (Beyer et al. 1999)
        unit = normalize(self.bags)
        axes = min(AXES, *(side - 1 for side in unit.shape))
        if axes < 2:
            return np.asarray(unit.toarray())
        left, sizes, _ = randomized_svd(unit, axes, n_iter=8, random_state=0)
        return np.asarray(normalize(left * sizes))


def gather(attributions: Iterable[Attribution]) -> Sample:
    """Explanations of one modality, in any order, as points in the order of their ids."""
    grids: dict[str, _Floats] = {}
    texts: dict[str, dict[str, float]] = {}
    for attribution in attributions:
        if isinstance(attribution.features, PatchGrid):
            grids[attribution.item_id] = np.asarray(attribution.relevance, dtype=np.float64)
        else:
            texts[attribution.item_id] = word_types(attribution)
    ids = tuple(sorted(grids or texts))
    if grids:
        return Sample(item_ids=ids, grids=pooled([grids[name] for name in ids]), bags=None)
    words = tuple(sorted({word for held in texts.values() for word in held}))
    return Sample(
        item_ids=ids, grids=None, bags=_bags([texts[name] for name in ids], words), words=words
    )


def word_types(attribution: Attribution) -> dict[str, float]:
    """Relevance of each word type of a text: the sum over its occurrences, case folded."""
    types: dict[str, float] = {}
    for word in attribution.words():
        key = word.text.strip().casefold()
        if key:
            types[key] = types.get(key, 0.0) + word.relevance
    return types


def pooled(grids: Sequence[_Floats]) -> _Floats:
    """Heatmaps (rows, cols) of any sizes, pooled by sums to one: (N, rows, cols), sum |R| = 1.

    One without any relevance stays 0.
    """
    rows = min(CELLS, *(grid.shape[0] for grid in grids))
    cols = min(CELLS, *(grid.shape[1] for grid in grids))
    cells = np.stack([_pool(_pool(grid, rows, 0), cols, 1) for grid in grids])
    sizes = np.abs(cells).sum(axis=(1, 2), keepdims=True)
    return np.asarray(np.divide(cells, sizes, out=np.zeros_like(cells), where=sizes > 0.0))


def _pool(grid: _Floats, cells: int, axis: int) -> _Floats:
    """Sums over `cells` neighbouring, nearly equal stretches of an axis."""
    starts = np.arange(cells) * grid.shape[axis] // cells
    return np.asarray(np.add.reduceat(grid, starts, axis=axis))


def _bags(texts: Sequence[dict[str, float]], words: Sequence[str]) -> csr_array:
    column = {word: number for number, word in enumerate(words)}
    values = [value for text in texts for value in text.values()]
    columns = [column[word] for text in texts for word in text]
    starts = np.cumsum([0, *(len(text) for text in texts)])
    return csr_array((values, columns, starts), shape=(len(texts), len(words)))


@dataclass(slots=True)
class ClassSample:
    """A seeded sample of each class's items, taken in one pass over a run.

    An item's place follows from the seed and its id alone, and the first `size` places are kept:
    memory grows with the classes and the sample, never with the run, and samples are nested.
    """

    size: int
    seed: int
    counts: Counter[str] = field(default_factory=Counter)  #: class -> items seen
    _kept: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def add_all(self, explained: Iterable[tuple[str, str]]) -> None:
        """Take (item id, class) pairs; an item is in a class once."""
        for item_id, class_name in explained:
            self.counts[class_name] += 1
            heap = self._kept.setdefault(class_name, [])
            entry = (-keyed_number(self.seed, item_id), item_id)
            if len(heap) < self.size:
                heapq.heappush(heap, entry)
            elif entry > heap[0]:
                heapq.heapreplace(heap, entry)

    def classes(self) -> Iterator[str]:
        """Class names, the most frequent first, ties by name."""
        yield from sorted(self.counts, key=lambda name: (-self.counts[name], name))

    def of(self, class_name: str) -> list[str]:
        """The ids sampled from one class, sorted."""
        return sorted(item_id for _, item_id in self._kept[class_name])


FEWEST = 3 * (spectral.MOST + 1)  #: items of a class that can be clustered
STABLE = 0.3  #: stability below which a split is specific to these items

_Labels = NDArray[np.intp]


class ClassClusters(NamedTuple):
    """One class, clustered but not judged: that needs the other classes."""

    found: ClassStrategies
    shares: tuple[_Floats, ...]  #: of each cluster: its pictures' relevance in each region
    shape: tuple[int, int]  #: of the pooled heatmaps
    vocabulary: shortcuts.Vocabulary | None  #: of texts


def read(sample: Sample, target: str, class_name: str, items: int, seed: int) -> ClassClusters:
    """Cluster the sampled explanations of one class; fewer than `FEWEST` are left alone."""
    points = sample.points()
    class_strategies = ClassStrategies(
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
        class_strategies, labels = _with_clusters(
            class_strategies, sample, points, clustering, seed
        )
    grids = sample.grids
    shares = shortcuts.shares(grids) if grids is not None else np.zeros((len(points), 0))
    return ClassClusters(
        found=class_strategies,
        shares=tuple(shares[labels == number] for number in range(int(labels.max()) + 1)),
        shape=(0, 0) if grids is None else (grids.shape[1], grids.shape[2]),
        vocabulary=None if sample.bags is None else shortcuts.vocabulary(sample.bags, sample.words),
    )


def _with_clusters(
    class_strategies: ClassStrategies,
    sample: Sample,
    points: _Floats,
    clustering: spectral.Clustering,
    seed: int,
) -> tuple[ClassStrategies, _Labels]:
    """The class with its clusters; one where several are not found again in halves of the items."""
    labels, count, rejected = clustering.labels, clustering.count, 0
    stability = spectral.stability(points, labels, count, seed) if count > 1 else None
    if stability is not None and stability < STABLE:
        labels, count, rejected = np.zeros_like(labels), 1, count
    each = spectral.silhouettes(points, labels) if count > 1 else None
    drawn = spectral.picture(points, seed)
    clustered = replace(
        class_strategies,
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
        heavy = shortcuts.heaviest(sample.bags, sample.words, labels, count)
    clusters = []
    for number in range(count):
        inside = np.flatnonzero(labels == number)
        typical = inside[spectral.typical_first(points[inside])]
        clusters.append(
            Cluster(
                number=number + 1,
                size=len(inside),
                share=len(inside) / len(labels),
                silhouette=None if each is None else float(each[inside].mean()),
                item_ids=tuple(sample.item_ids[place] for place in typical),
                heatmap=None if sample.grids is None else _mean(sample.grids[inside]),
                regions=(),
                words=tuple(heavy[number]),
            )
        )
    return tuple(clusters)


def _mean(grids: _Floats) -> Grid:
    return tuple(tuple(map(float, row)) for row in grids.mean(axis=0))


def judged(reading: ClassClusters, others: Sequence[ClassClusters], seed: int) -> ClassStrategies:
    """The class with its evidence judged: each cluster against all other items looked at.

    Not against its own class alone: several clusters, or all of a class, may share a shortcut.
    """
    if not reading.found.clusters:
        return reading.found
    spatial, verbal = _regions(reading, others, seed), _words(reading, others)
    clusters = [
        replace(cluster, regions=spatial[place], words=verbal[place])
        for place, cluster in enumerate(reading.found.clusters)
    ]
    return replace(reading.found, clusters=tuple(clusters))


def _regions(
    reading: ClassClusters, others: Sequence[ClassClusters], seed: int
) -> list[tuple[RegionEvidence, ...]]:
    # pictures of another grid have other regions
    same = [share for other in others if other.shape == reading.shape for share in other.shares]
    outside = []
    for place, inside in enumerate(reading.shares):
        rest = [share for other, share in enumerate(reading.shares) if other != place] + same
        outside.append(np.concatenate([inside[:0], *rest]))
    return shortcuts.evidence(reading.shape, list(reading.shares), outside, seed)


def _words(
    reading: ClassClusters, others: Sequence[ClassClusters]
) -> list[tuple[WordEvidence, ...]]:
    if reading.vocabulary is None:
        return [()] * len(reading.found.clusters)
    rest = [other.vocabulary for other in others if other.vocabulary is not None]
    return shortcuts.judged(
        [cluster.words for cluster in reading.found.clusters],
        [cluster.size for cluster in reading.found.clusters],
        shortcuts.merged([reading.vocabulary, *rest]),
    )


SAMPLE = 2000  #: items of a class
CLASSES = 24  #: the most frequent


def discover(
    db: Database,
    run_id: str,
    *,
    target: str | None = None,
    class_name: str | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Strategies:
    """Cluster the explanations of each class and point out what looks like a shortcut.

    Memory holds the explanations of one class's sample at a time.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        target: one of the audit's; None: `predicted` where it is one of them, else the first.
        class_name: report this class alone (the others are still what it is compared with).
        sample: largest number of items of a class, sampled by a seeded hash of their ids.
        seed: of the sample, the clustering and the tests.

    Raises ConfigurationError for an unknown run, target or class, for a run without stored
    relevance or, of texts, without words, and for a sample that is too small.
    """
    if sample < FEWEST:
        raise ConfigurationError(f"a sample of {sample} cannot be clustered; give {FEWEST} or more")
    run = runs.get(db, run_id)
    refuse_damaged(db, run.id)
    privacy = run.plan.privacy
    wordless = privacy is not None and privacy.store_text == "none"
    if wordless and run.plan.dataset.modality == "text":
        raise ConfigurationError(
            f"run {run.id} was made with store_text: none, so its words, which strategies are "
            "made of, are not stored. Run the audit again with store_text: hashed, which "
            "distinguishes words without keeping them"
        )
    chosen = _target(run, target)
    draw = ClassSample(sample, seed)
    draw.add_all(readers.iter_explained(db, run.id, target=chosen))
    names = _names(run, draw, chosen, class_name)
    read = [_read(db, run.id, chosen, name, draw) for name in names]
    classes = [
        judged(reading, read[:place] + read[place + 1 :], seed)
        for place, reading in enumerate(read)
        if class_name in (None, reading.found.class_name)
    ]
    return Strategies(
        run_id=run.id,
        target=chosen,
        modality=run.plan.dataset.modality,
        sample=sample,
        seed=seed,
        classes=tuple(classes),
        omitted=len(draw.counts) - len(names),
    )


def _target(run: AuditRun, target: str | None) -> str:
    targets = run.plan.targets
    if target is None:
        return "predicted" if "predicted" in targets else targets[0]
    if target not in targets:
        raise ConfigurationError(
            f"run {run.id} did not explain target {target!r}; it has {', '.join(targets)}"
        )
    return target


def _names(run: AuditRun, draw: ClassSample, target: str, class_name: str | None) -> list[str]:
    """The classes to read: the most frequent ones, and the one that is named."""
    if not draw.counts:
        raise ConfigurationError(
            f"run {run.id} has no stored relevance for {target!r}: it is no audit, it has not "
            "begun, or all its items failed"
        )
    if class_name is not None and class_name not in draw.counts:
        raise ConfigurationError(
            f"no item of run {run.id} is explained for class {class_name!r} of target {target!r}; "
            f"there are {', '.join(list(draw.classes())[:CLASSES])}"
        )
    names = list(draw.classes())
    kept = names[:CLASSES]
    return kept if class_name is None or class_name in kept else [*kept[:-1], class_name]


def _read(
    db: Database, run_id: str, target: str, class_name: str, draw: ClassSample
) -> ClassClusters:
    attributions = readers.iter_attributions(
        db, run_id, item_ids=draw.of(class_name), target=target
    )
    sample = gather(row for row in attributions if row.class_name == class_name)
    return read(sample, target, class_name, draw.counts[class_name], draw.seed)
