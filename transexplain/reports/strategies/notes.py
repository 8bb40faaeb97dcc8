"""How strategies were found and what they cannot say, in short."""

from collections.abc import Iterator

from transexplain.reports.strategies.wording import percent
from transexplain.strategies import regions, spectral, words
from transexplain.strategies.features import AXES, CELLS
from transexplain.strategies.one_class import STABLE
from transexplain.strategies.quality import HALVES
from transexplain.strategies.records import Strategies


def notes(found: Strategies) -> tuple[str, ...]:
    """One paragraph each on what was done and what it rests on."""
    return tuple(_notes(found))


def _notes(found: Strategies) -> Iterator[str]:
    yield (
        "Spectral relevance analysis (Lapuschkin et al. 2019): the explanations of each class are "
        "clustered, not its items, so a cluster is a way in which the model decides. No region and "
        "no word is named beforehand."
    )
    if found.modality == "image":
        yield (
            f"Each heatmap is pooled to at most {CELLS} x {CELLS} cells and divided by its sum of "
            "|relevance|; signs are kept."
        )
    else:
        yield (
            "Each text is its relevance summed over word types in lower case, brought to length 1 "
            f"and reduced to at most {AXES} directions (latent semantic analysis); signs are kept."
        )
    yield (
        "The number of clusters is where the largest gap of the eigenvalues of the normalised "
        f"Laplacian is (von Luxburg 2007), at most {spectral.MOST}, and only as far as the "
        f"eigenvalues are smaller than in {spectral.REFERENCES} samples of one normal distribution "
        "of the same covariance (parallel analysis, Horn 1965). Relevance is not normal, so that "
        "a second cluster is a reason to look and no proof."
    )
    yield (
        "Separation is the mean silhouette (Rousseeuw 1987), from \u22121 to 1. Stability is the "
        f"mean adjusted Rand index with the whole when {HALVES} random halves are clustered again: "
        f"1 is the same, 0 is chance; a split below {STABLE:g} is not kept. Places in the picture "
        "are t-SNE: neighbours mean something, distances between clusters little."
    )
    yield from _shortcuts(found)
    yield (
        "The clusters were made from the same relevance that they are compared by, so p says only "
        "that few items do not explain a difference. What makes a cluster stand out is its size, "
        "by limits of our own. A shortcut that covers the whole picture or a whole class alike, or "
        "that lies in the middle, is not pointed out: look at the clusters themselves."
    )


def _shortcuts(found: Strategies) -> Iterator[str]:
    if found.modality == "image":
        sides = "in one corner (a quarter of each side) or at one border (an eighth of a side)"
        yield (
            f"A cluster of at least {regions.FEWEST} pictures stands out where at least "
            f"{percent(regions.LARGE)} of its positive relevance lies {sides}, at least "
            f"{regions.TIMES_AREA:g} times the region's area and "
            f"{regions.TIMES_ELSEWHERE:g} times the share in all other pictures looked at, of "
            f"any class, with an adjusted p of at most {regions.LEVEL:g} "
            f"({regions.PERMUTATIONS:,} permutations, Holm over the regions and clusters of the "
            "class)."
        )
    else:
        yield (
            f"A cluster of at least {regions.FEWEST} texts stands out where one word type is at "
            f"least {percent(regions.LARGE)} of its positive relevance and in at least "
            f"{percent(words.COMMON)} of its texts, although at most "
            f"{percent(words.RARE)} of all sampled texts hold it, with an adjusted p of at "
            f"most {regions.LEVEL:g} (hypergeometric, Holm over the {words.LISTED} heaviest "
            "words of each cluster of the class)."
        )
