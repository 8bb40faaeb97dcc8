"""Tests whether a cluster looks like a shortcut: a region of the picture, or a rare word, that sets
it apart from all other items.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import hypergeom

from transexplain.analysis.groups.verdict_rules import adjusted

Grid = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionEvidence:
    """One corner or border of the pictures, and how much of a cluster's evidence lies there."""

    region: str  #: e.g. `top left corner`
    area: float  #: share of the picture
    share: float  #: of the cluster's positive relevance, mean over its pictures
    elsewhere: float | None  #: the same over all other pictures; None: there are none
    adjusted_p: float | None  #: permutation, Holm over the regions of all clusters of the class
    stands_out: bool  #: beyond chance, and large


@dataclass(frozen=True, kw_only=True, slots=True)
class WordEvidence:
    """One word type, and how much of a cluster's evidence it is."""

    word: str
    share: float  #: of the cluster's positive relevance
    documents: int  #: of the cluster's texts
    corpus_share: float  #: of all sampled texts that hold it
    adjusted_p: float | None  #: hypergeometric, Holm over the listed words of all clusters
    stands_out: bool  #: beyond chance, large, and rare in the corpus


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Items of one class whose explanations are alike."""

    number: int  #: 1 is the largest
    size: int
    share: float  #: of the sampled items
    silhouette: float | None  #: mean over its items; None: the only cluster
    item_ids: tuple[str, ...]  #: all of them, most typical first
    heatmap: Grid | None  #: mean of the normalised heatmaps; None for texts
    regions: tuple[RegionEvidence, ...]
    words: tuple[WordEvidence, ...]  #: of the largest share; none for pictures

    @property
    def suspicions(self) -> tuple[RegionEvidence | WordEvidence, ...]:
        """The evidence that stands out: the densest region, the heaviest word first."""
        spatial = [region for region in self.regions if region.stands_out]
        verbal = [word for word in self.words if word.stands_out]
        # a corner is part of two borders
        spatial.sort(key=lambda region: -region.share / region.area)
        return (*spatial, *sorted(verbal, key=lambda word: -word.share))


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One item in the picture of a class."""

    item_id: str
    x: float
    y: float
    cluster: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassStrategies:
    """The clusters of one class."""

    target: str
    class_name: str
    items: int  #: explained for this class
    sampled: int
    clusters: tuple[Cluster, ...]  #: largest first; none: too few items
    eigenvalues: tuple[float, ...]  #: of the normalised Laplacian, smallest first
    chance: tuple[float, ...]  #: the smallest at their places in samples of one cluster
    silhouette: float | None  #: mean over the items; None where there is one cluster
    stability: float | None  #: of the split, mean adjusted Rand index of halves with the whole
    rejected: int  #: clusters of a split that was too unstable to be kept; 0: none was
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategies:
    """The strategies found in one run."""

    run_id: str
    target: str
    modality: str
    sample: int  #: largest number of items of a class
    seed: int
    classes: tuple[ClassStrategies, ...]  #: most frequent first
    omitted: int  #: rarer classes that were not looked at


#: of a cluster's positive relevance: most of it
LARGE = 0.5
FEWEST = 10  #: items of a cluster: fewer are a few odd ones
#: how many times its area, and how many times the share of all other pictures
TIMES_AREA, TIMES_ELSEWHERE = 3.0, 2.0
LEVEL = 0.01  #: adjusted p
PERMUTATIONS = 9_999
_CELLS = 4  #: cells of a side: below, corners are most of the picture

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GridRegion:
    """Some neighbouring cells of a grid."""

    name: str
    rows: slice
    cols: slice
    area: float  #: share of the grid


def regions(rows: int, cols: int) -> tuple[GridRegion, ...]:
    """Four corners, a quarter of each side long, and four borders, an eighth of a side wide."""
    if min(rows, cols) < _CELLS:
        return ()
    tall, wide = -(-rows // 4), -(-cols // 4)
    thick, broad = -(-rows // 8), -(-cols // 8)
    whole = slice(None)
    top, bottom = slice(0, tall), slice(rows - tall, rows)
    left, right = slice(0, wide), slice(cols - wide, cols)
    corner = tall * wide / (rows * cols)
    return (
        GridRegion("top left corner", top, left, corner),
        GridRegion("top right corner", top, right, corner),
        GridRegion("bottom left corner", bottom, left, corner),
        GridRegion("bottom right corner", bottom, right, corner),
        GridRegion("top border", slice(0, thick), whole, thick / rows),
        GridRegion("bottom border", slice(rows - thick, rows), whole, thick / rows),
        GridRegion("left border", whole, slice(0, broad), broad / cols),
        GridRegion("right border", whole, slice(cols - broad, cols), broad / cols),
    )


def shares(grids: _Floats) -> _Floats:
    """(N, regions) the share of each picture's positive relevance that lies in each region."""
    positive = np.clip(grids, 0.0, None)
    totals = positive.sum(axis=(1, 2))
    inside = [
        positive[:, mark.rows, mark.cols].sum(axis=(1, 2)) for mark in regions(*grids.shape[1:])
    ]
    if not inside:
        return np.zeros((len(grids), 0))
    sums, whole = np.stack(inside, axis=1), totals[:, None]
    return np.asarray(np.divide(sums, whole, out=np.zeros_like(sums), where=whole > 0.0))


def evidence(
    shape: tuple[int, int], members: list[_Floats], others: list[_Floats], seed: int
) -> list[tuple[RegionEvidence, ...]]:
    """Return what lies in each region for each cluster of one class.

    Args:
        shape: rows and columns of the grid.
        members: of each cluster its `shares`.
        others: of each cluster the shares of all other pictures; may be empty.
        seed: of the permutations.
    """
    rng = np.random.default_rng(seed)
    tests = [_p_values(inside, rest, rng) for inside, rest in zip(members, others, strict=True)]
    flat = adjusted([p for row in tests for p in row], "holm")
    kinds = regions(*shape)
    tested = []
    for number, (inside, rest) in enumerate(zip(members, others, strict=True)):
        row = flat[number * len(kinds) : (number + 1) * len(kinds)]
        evidence_here = []
        for place, (kind, p) in enumerate(zip(kinds, row, strict=True)):
            share = float(inside[:, place].mean())
            elsewhere = float(rest[:, place].mean()) if len(rest) else None
            large = max(LARGE, TIMES_AREA * kind.area, TIMES_ELSEWHERE * (elsewhere or 0.0))
            known = len(inside) >= FEWEST and p is not None and elsewhere is not None
            evidence_here.append(
                RegionEvidence(
                    region=kind.name,
                    area=kind.area,
                    share=share,
                    elsewhere=elsewhere,
                    adjusted_p=p,
                    stands_out=known and (p or 0.0) <= LEVEL and share >= large,
                )
            )
        tested.append(tuple(evidence_here))
    return tested


def _p_values(inside: _Floats, rest: _Floats, rng: np.random.Generator) -> list[float | None]:
    """Return the one-sided p that as many pictures, sampled from both, share as much."""
    if not len(rest):
        return [None] * inside.shape[1]
    everything = np.concatenate([inside, rest])
    reached = np.zeros(inside.shape[1])
    target = inside.sum(axis=0) * (1.0 - 1e-12)
    for _ in range(PERMUTATIONS):
        chosen = rng.permutation(len(everything))[: len(inside)]
        reached += everything[chosen].sum(axis=0) >= target
    return [float(p) for p in (1.0 + reached) / (1.0 + PERMUTATIONS)]


LISTED = 8  #: word types of a cluster
RARE = 0.05  #: largest share of the sampled texts that a rare word is in
COMMON = 0.5  #: smallest share of the cluster's texts that hold it


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Vocabulary:
    """In how many of a class's sampled texts each word type is."""

    texts: int
    documents: Counter[str]


def vocabulary(bags: csr_array, words: Sequence[str]) -> Vocabulary:
    """Counts of the texts that hold each word type."""
    counts = np.diff(bags.tocsc().indptr)
    documents = Counter(dict(zip(words, map(int, counts), strict=True)))
    return Vocabulary(texts=bags.shape[0], documents=documents)


def merged(parts: Sequence[Vocabulary]) -> Vocabulary:
    """The counts of several classes together."""
    documents: Counter[str] = Counter()
    for part in parts:
        documents.update(part.documents)
    return Vocabulary(texts=sum(part.texts for part in parts), documents=documents)


def heaviest(
    bags: csr_array, words: Sequence[str], labels: NDArray[np.intp], count: int
) -> list[list[WordEvidence]]:
    """Of each cluster the word types with most positive relevance, not judged yet."""
    listed = []
    for number in range(count):
        own = bags[np.flatnonzero(labels == number)]
        sums = np.asarray(own.maximum(0.0).sum(axis=0)).ravel()
        documents, total = np.diff(own.tocsc().indptr), float(sums.sum())
        listed.append(
            [
                WordEvidence(
                    word=words[place],
                    share=float(sums[place]) / total,
                    documents=int(documents[place]),
                    corpus_share=0.0,
                    adjusted_p=None,
                    stands_out=False,
                )
                for place in np.argsort(-sums, kind="stable")[:LISTED]
                if sums[place] > 0.0
            ]
        )
    return listed


def judged(
    listed: Sequence[Sequence[WordEvidence]],
    sizes: Sequence[int],
    corpus: Vocabulary,
) -> list[tuple[WordEvidence, ...]]:
    """The same words with their share of the corpus, their p, and whether they stand out.

    Args:
        listed: of each cluster of one class its heaviest words.
        sizes: of each cluster the number of its texts.
        corpus: all sampled texts, of this class and of the others.
    """
    tests = [
        _p(word, size, corpus) if size < corpus.texts else None
        for row, size in zip(listed, sizes, strict=True)
        for word in row
    ]
    rest = iter(adjusted(tests, "holm"))
    return [
        tuple(
            _tested_word(
                replace(
                    word,
                    corpus_share=corpus.documents[word.word] / corpus.texts,
                    adjusted_p=next(rest),
                ),
                size,
            )
            for word in row
        )
        for row, size in zip(listed, sizes, strict=True)
    ]


def _p(evidence: WordEvidence, size: int, corpus: Vocabulary) -> float:
    """Return how often so many texts, sampled from all, hold the word as often."""
    held = corpus.documents[evidence.word]
    return float(hypergeom.sf(evidence.documents - 1, corpus.texts, held, size))


def _tested_word(word: WordEvidence, size: int) -> WordEvidence:
    out = (
        size >= FEWEST
        and word.adjusted_p is not None
        and word.adjusted_p <= LEVEL
        and word.share >= LARGE
        and word.corpus_share <= RARE
        and word.documents >= COMMON * size
    )
    return replace(word, stands_out=out)
