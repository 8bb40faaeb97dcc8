"""What strategy discovery finds: frozen records of plain values."""

from dataclasses import dataclass

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
        """What stands out: the densest region, the heaviest word first."""
        spatial = [one for one in self.regions if one.stands_out]
        verbal = [one for one in self.words if one.stands_out]
        # a corner is part of two borders
        spatial.sort(key=lambda one: -one.share / one.area)
        return (*spatial, *sorted(verbal, key=lambda one: -one.share))


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
    """What discovery finds in one run."""

    run_id: str
    target: str
    modality: str
    sample: int  #: largest number of items of a class
    seed: int
    classes: tuple[ClassStrategies, ...]  #: most frequent first
    omitted: int  #: rarer classes that were not looked at
