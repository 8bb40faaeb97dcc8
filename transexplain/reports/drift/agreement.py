"""How alike two explanations of one item rank its positions."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from transexplain.rank_correlation import rank_similarity
from transexplain.types import Attribution, PatchGrid, Token

#: positions in common below which ranks say nothing: two are either alike or opposite
FEWEST_POSITIONS = 3

_Place = tuple[int, int, str]


def agreement(before: Attribution, after: Attribution) -> float | None:
    """Spearman's correlation of relevance over the positions that are the same in both.

    Of texts those are tokens with the same characters at the same place, special tokens left out;
    of pictures the patches of equal grids. None: fewer than `FEWEST_POSITIONS` of them.
    """
    if isinstance(before.features, PatchGrid) or isinstance(after.features, PatchGrid):
        if before.features != after.features:
            return None
        old, new = before.relevance, after.relevance
    else:
        old, new = _common(before, before.features, after, after.features)
    return rank_similarity(old, new) if old.size >= FEWEST_POSITIONS else None


def _common(
    before: Attribution, old: tuple[Token, ...], after: Attribution, new: tuple[Token, ...]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    if old == new:
        plain = np.array([not token.special for token in new], dtype=bool)
        return before.relevance[plain], after.relevance[plain]
    left, right = _places(old), _places(new)
    common = [place for place in right if place in left]
    return (
        before.relevance[[left[place] for place in common]],
        after.relevance[[right[place] for place in common]],
    )


def _places(tokens: tuple[Token, ...]) -> Mapping[_Place, int]:
    return {
        (token.start, token.end, token.text): position
        for position, token in enumerate(tokens)
        if not token.special
    }
