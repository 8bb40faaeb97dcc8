"""Every entity of an item: of the lexicon, marked in the data, and the item as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.matching import Match, Matcher
from transexplain.bias.mentions import mention_of_item, mention_of_region, mentions_of
from transexplain.plans import AuditPlan
from transexplain.types import Annotation, Attribution, Mention, PatchGrid

#: a region of a picture and (rows, cols) which share of every patch lies in it
Region = tuple[Annotation, NDArray[np.float64]]


def column_group(column: str, value: str) -> str:
    """The name of the group of items whose metadata `column` holds `value`."""
    return f"{column}/{value}"


@dataclass(frozen=True, slots=True)
class Found:
    """The entities of one item, before any target is looked at."""

    matches: tuple[Match, ...] = ()  #: in its text
    dropped: tuple[Match, ...] = ()  #: ambiguous terms without a cue
    whole: tuple[str, str] | None = None  #: group of the whole item, and the value that says so


class EntityFinder:
    """Finds the entities of a plan's groups; `annotations` of other groups do not count."""

    def __init__(self, plan: AuditPlan) -> None:
        self._matcher = Matcher(plan.groups, plan.matching)
        self._groups = {group.name for group in plan.groups}
        self._column = plan.matching.column

    def find(
        self, text: str | None, annotations: Sequence[Annotation], meta: Mapping[str, str]
    ) -> Found:
        """The entities of one item; `text` is None for a picture."""
        if text is None:
            return Found(whole=self._whole(meta))
        found = self._matcher.search(text)
        marked = [
            Match(
                group=one.group,
                entity=one.entity,
                surface=text[slice(*one.span)],
                start=one.span[0],
                end=one.span[1],
            )
            for one in annotations
            if one.span is not None and one.group in self._groups
        ]
        return Found((*found.kept, *marked), found.dropped, self._whole(meta))

    def mentions(
        self, attribution: Attribution, found: Found, regions: Sequence[Region] = ()
    ) -> list[Mention]:
        """The entities of an item with their relevance for one of its targets."""
        mentions: list[Mention] = []
        if not isinstance(attribution.features, PatchGrid):
            mentions += mentions_of(attribution, found.matches)
        mentions += [
            mention_of_region(attribution, region, share)
            for region, share in regions
            if region.group in self._groups and share.any()
        ]
        if found.whole is not None:
            mentions.append(mention_of_item(attribution, *found.whole))
        return mentions

    def _whole(self, meta: Mapping[str, str]) -> tuple[str, str] | None:
        value = meta.get(self._column) if self._column is not None else None
        if self._column is None or value is None:
            return None
        group = column_group(self._column, value)
        return (group, value) if group in self._groups else None
