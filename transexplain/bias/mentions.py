"""From matches in a text to mentions with their relevance."""

from collections.abc import Sequence

import numpy as np

from transexplain.bias.matching import Match
from transexplain.types import Attribution, Mention, PatchGrid


def mentions_of(attribution: Attribution, matches: Sequence[Match]) -> list[Mention]:
    """One mention per match, its relevance the sum over the tokens that overlap its span.

    Special tokens never count. A match of which no token was measured (it lies in the part of a
    long text that the model did not read) is no mention.

    Args:
        attribution: of a text; relevance (T,), in its unit.
        matches: found in the text that the attribution's token offsets refer to.

    Raises:
        TypeError: the attribution is of an image.
    """
    if isinstance(attribution.features, PatchGrid):
        raise TypeError("mentions are found in texts; this attribution is of an image")
    plain = np.array([not token.special for token in attribution.features], dtype=bool)
    starts = np.array([token.start for token in attribution.features], dtype=np.int64)
    ends = np.array([token.end for token in attribution.features], dtype=np.int64)
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    found: list[Mention] = []
    for match in matches:
        inside = plain & (starts < match.end) & (ends > match.start) & (ends > starts)
        if inside.any():
            found.append(_mention(attribution, match, float(relevance[inside].sum())))
    return found


def _mention(attribution: Attribution, match: Match, relevance: float) -> Mention:
    return Mention(
        item_id=attribution.item_id,
        target=attribution.target,
        rank=attribution.rank,
        class_name=attribution.class_name,
        group=match.group,
        entity=match.entity,
        surface=match.surface,
        start=match.start,
        end=match.end,
        relevance=relevance,
    )
