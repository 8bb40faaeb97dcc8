"""From matches in a text to mentions with their relevance."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.matching import Match
from transexplain.types import Annotation, Attribution, Mention, PatchGrid, own_positions


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
    plain = own_positions(attribution.features)
    starts = np.array([token.start for token in attribution.features], dtype=np.int64)
    ends = np.array([token.end for token in attribution.features], dtype=np.int64)
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    found: list[Mention] = []
    for match in matches:
        inside = plain & (starts < match.end) & (ends > match.start) & (ends > starts)
        if inside.any():
            found.append(_mention(attribution, match, float(relevance[inside].sum())))
    return found


def mention_of_item(attribution: Attribution, group: str, value: str) -> Mention:
    """An item that belongs to a group as a whole: its relevance is the sum over its positions.

    Special positions never count. The item is the entity, because nothing smaller is in the
    group; its span is the whole text (0 to 0 in a picture), and its surface is `value`, from
    the data.
    """
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    end = 0
    if not isinstance(attribution.features, PatchGrid):
        plain = own_positions(attribution.features)
        relevance, end = relevance[plain], len(attribution.text or "")
    whole = Match(group=group, entity=attribution.item_id, surface=value, start=0, end=end)
    return _mention(attribution, whole, float(relevance.sum()))


def mention_of_region(
    attribution: Attribution, region: Annotation, share: NDArray[np.float64]
) -> Mention:
    """A region of a picture: each patch counts by the share of it that lies inside.

    The entity is the one that the region names, else the picture: two regions of a picture
    share whatever is particular about it.

    Args:
        attribution: of a picture; relevance (rows, cols), in its unit.
        region: what was marked.
        share: (rows, cols), 0 to 1.
    """
    name = region.entity or attribution.item_id
    match = Match(group=region.group, entity=name, surface=region.entity, start=0, end=0)
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    return _mention(attribution, match, float((relevance * share).sum()))


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
