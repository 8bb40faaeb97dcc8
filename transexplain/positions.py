"""Which positions are an item's own: its words, patches or nodes, and nothing that frames them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transexplain.types import PatchGrid, Token


def own_positions(
    features: Sequence[Token] | PatchGrid, width: int | None = None
) -> NDArray[np.bool_]:
    """(T,) which positions are an item's own content: not special, not padding.

    Args:
        features: what the positions are; of a picture the prefix (class token, registers) comes
            first.
        width: T with padding; default: as many as there are features.
    """
    if isinstance(features, PatchGrid):
        end = features.prefix + features.rows * features.cols
        own = np.zeros(end if width is None else width, dtype=bool)
        own[features.prefix : end] = True
        return own
    own = np.zeros(len(features) if width is None else width, dtype=bool)
    own[: len(features)] = [not token.special for token in features]
    return own
