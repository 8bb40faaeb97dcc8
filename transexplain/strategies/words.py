"""Word types that carry a cluster: where a signature, a source's mark or a name would be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import hypergeom

from transexplain.bias.multiplicity import adjusted
from transexplain.strategies.records import WordEvidence
from transexplain.strategies.regions import FEWEST, LARGE, LEVEL

LISTED = 8  #: word types of a cluster
RARE = 0.05  #: largest share of the sampled texts that a rare word is in
COMMON = 0.5  #: smallest share of the cluster's texts that hold it


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Vocabulary:
    """In how many of a class's sampled texts each word type is."""

    texts: int
    documents: dict[str, int]


def vocabulary(bags: csr_array, words: Sequence[str]) -> Vocabulary:
    """Counts of the texts that hold each word type."""
    counts = np.diff(bags.tocsc().indptr)
    return Vocabulary(
        texts=bags.shape[0], documents=dict(zip(words, map(int, counts), strict=True))
    )


def merged(parts: Sequence[Vocabulary]) -> Vocabulary:
    """The counts of several classes together."""
    documents: dict[str, int] = {}
    for part in parts:
        for word, count in part.documents.items():
            documents[word] = documents.get(word, 0) + count
    return Vocabulary(texts=sum(part.texts for part in parts), documents=documents)


def heaviest(
    bags: csr_array, words: Sequence[str], labels: NDArray[np.intp], count: int
) -> list[list[WordEvidence]]:
    """Of each cluster the word types with most positive relevance, not judged yet."""
    return [_heaviest(bags[np.flatnonzero(labels == one)], words) for one in range(count)]


def _heaviest(bags: csr_array, words: Sequence[str]) -> list[WordEvidence]:
    sums = np.asarray(bags.maximum(0.0).sum(axis=0)).ravel()
    documents = np.diff(bags.tocsc().indptr)
    total = float(sums.sum())
    order = np.argsort(-sums, kind="stable")[:LISTED]
    return [
        WordEvidence(
            word=words[place],
            share=float(sums[place]) / total,
            documents=int(documents[place]),
            corpus_share=0.0,
            adjusted_p=None,
            stands_out=False,
        )
        for place in order
        if sums[place] > 0.0
    ]


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
        _p(one, size, corpus) if size < corpus.texts else None
        for row, size in zip(listed, sizes, strict=True)
        for one in row
    ]
    rest = iter(adjusted(tests, "holm"))
    return [
        tuple(
            _judged(
                replace(
                    one,
                    corpus_share=corpus.documents[one.word] / corpus.texts,
                    adjusted_p=next(rest),
                ),
                size,
            )
            for one in row
        )
        for row, size in zip(listed, sizes, strict=True)
    ]


def _p(one: WordEvidence, size: int, corpus: Vocabulary) -> float:
    """How often so many texts, sampled from all, hold the word as often."""
    held = corpus.documents[one.word]
    return float(hypergeom.sf(one.documents - 1, corpus.texts, held, size))


def _judged(one: WordEvidence, size: int) -> WordEvidence:
    out = (
        size >= FEWEST
        and one.adjusted_p is not None
        and one.adjusted_p <= LEVEL
        and one.share >= LARGE
        and one.corpus_share <= RARE
        and one.documents >= COMMON * size
    )
    return replace(one, stands_out=out)
