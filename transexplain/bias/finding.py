"""All entities of an item: of the lexicon, marked in the data, and the item as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.intersections import crossed_family
from transexplain.bias.matching import Match, Matcher
from transexplain.bias.mentions import mention_of_item, mention_of_region, mentions_of
from transexplain.plans import AuditPlan
from transexplain.types import Annotation, Attribution, Mention, PatchGrid

#: a region of a picture and (rows, cols) which share of every patch lies in it
Region = tuple[Annotation, NDArray[np.float64]]


def column_group(column: str, value: str) -> str:
    """The name of the group of items whose metadata `column` holds `value`."""
    return f"{column}/{value}"


def whole_families(plan: AuditPlan) -> tuple[str, ...]:
    """The families whose groups are of whole items: columns of the metadata, and their meetings."""
    columns = plan.matching.columns
    met = (crossed_family(one) for one in plan.intersections if set(one) <= set(columns))
    return (*columns, *met)


def is_whole(plan: AuditPlan, group: str) -> bool:
    """Whether `group` is one of whole items."""
    return any(group.startswith(f"{one}/") for one in whole_families(plan))


@dataclass(frozen=True, slots=True)
class Found:
    """The entities of one item, before any target is looked at."""

    matches: tuple[Match, ...] = ()  #: in its text
    dropped: tuple[Match, ...] = ()  #: ambiguous terms without a cue
    #: groups of the whole item, each with the value that puts it there
    whole: tuple[tuple[str, str], ...] = ()


class EntityFinder:
    """Finds the entities of a plan's groups; `annotations` of other groups do not count."""

    def __init__(self, plan: AuditPlan) -> None:
        self._matcher = Matcher(plan.groups, plan.matching)
        self._groups = {group.name for group in plan.groups}
        columns = plan.matching.columns
        met = (one for one in plan.intersections if set(one) <= set(columns))
        self._columns = (*((one,) for one in columns), *met)

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
        mentions += [mention_of_item(attribution, *one) for one in found.whole]
        return mentions

    def _whole(self, meta: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The groups of the item by each column, and by those that meet."""
        found = []
        for columns in self._columns:
            if any(meta.get(column) is None for column in columns):
                continue
            values = [meta[column] for column in columns]
            group = column_group(crossed_family(columns), crossed_family(values))
            if group in self._groups:
                found.append((group, crossed_family(values)))
        return tuple(found)
