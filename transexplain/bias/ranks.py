"""The rank of a mention among the other words of its item."""

from collections.abc import Sequence

import numpy as np

from transexplain.types import Attribution, Mention, PatchGrid


def ranks_in_item(attribution: Attribution, mentions: Sequence[Mention]) -> list[float | None]:
    """For each mention the share of the item's other words with a smaller |relevance|.

    Ties count half (a mid-rank percentile): 0.5 means "as relevant as any word", 1 "more than
    every other". A mention is one word however many it has; the words that it covers are no
    others. Punctuation is a word, as in `Attribution.words`. None where there is no other word
    (the mention is the whole item), and in pictures, whose regions and patches differ in size.

    Args:
        attribution: relevance (T,) or (rows, cols), in its unit.
        mentions: of this attribution.
    """
    if isinstance(attribution.features, PatchGrid):
        return [None] * len(mentions)
    words = np.array([-1 if t.word is None else t.word for t in attribution.features], np.int64)
    plain = words >= 0
    starts = np.array([token.start for token in attribution.features], np.int64)[plain]
    ends = np.array([token.end for token in attribution.features], np.int64)[plain]
    words = words[plain]
    relevance = np.asarray(attribution.relevance, dtype=np.float64)[plain]
    sizes, present = np.abs(np.bincount(words, weights=relevance)), np.bincount(words) > 0
    found: list[float | None] = []
    for one in mentions:
        other = present.copy()
        other[words[(starts < one.end) & (ends > one.start) & (ends > starts)]] = False
        found.append(_middle_rank(abs(one.relevance), sizes[other]))
    return found


def _middle_rank(size: float, others: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    if not len(others):
        return None
    below, equal = np.count_nonzero(others < size), np.count_nonzero(others == size)
    return float((below + 0.5 * equal) / len(others))
