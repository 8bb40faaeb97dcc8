"""Finds all entities in an item: those of lexicons, of a recogniser, of the data's marks and
columns, and crossed groups.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.group_cells import family
from transexplain.analysis.groups.mention_matching import (
    Match,
    matcher_of,
    mention_of_item,
    mention_of_region,
    mentions_of,
    within_texts,
)
from transexplain.analysis.groups.word_pieces import pieces
from transexplain.errors import ItemError
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import (
    Annotation,
    Attribution,
    EntityGroup,
    Item,
    ItemFailure,
    Mention,
    PatchGrid,
)
from transexplain.types.plans import AuditPlan, RecogniserPlan

if TYPE_CHECKING:
    from transexplain.analysis.groups.entity_recogniser import Recognised, Recogniser

TOGETHER = 64  #: texts that a recogniser gets at once
BETWEEN = " x "
#: of the mentions of its family, below which a group is left out of comparisons
LEAST_SHARE = 0.02


def crossed_family(families: Iterable[str]) -> str:
    """The family of the groups that are in one group of each of `families`."""
    return BETWEEN.join(families)


def crossed_group(groups: Sequence[str]) -> str:
    """The name of what several groups, of one family each, have in common."""
    members = (group.partition("/")[2] for group in groups)
    return f"{crossed_family(map(family, groups))}/{BETWEEN.join(members)}"


def crossed_items(families: Sequence[str], groups: Sequence[EntityGroup]) -> list[EntityGroup]:
    """One group for every choice of a group of whole items from each family."""
    source = f"metadata of the items, columns {' and '.join(families)}"
    return [
        EntityGroup(name=crossed_group([group.name for group in chosen]), terms=(), source=source)
        for chosen in _choices(families, groups)
    ]


def crossed(families: Sequence[str], groups: Sequence[EntityGroup]) -> list[EntityGroup]:
    """One group for every choice of a group from each family whose lexicons share a term.

    Its terms are those that all of them have, whatever their capitals, and its entities are those
    of the first family. A term is ambiguous where one of the lexicons has it so.
    """
    joint = []
    for chosen in _choices(families, groups):
        common = set.intersection(*({_key(term) for term in group.terms} for group in chosen))
        terms = tuple(term for term in chosen[0].terms if _key(term) in common)
        if terms:
            first = chosen[0]
            kinds = {_key(term): kind for group in chosen for term, kind in group.ambiguous.items()}
            joint.append(
                EntityGroup(
                    name=crossed_group([group.name for group in chosen]),
                    terms=terms,
                    source=f"terms of {' that are of '.join(group.name for group in chosen)}",
                    entities={
                        term: first.entities[term] for term in terms if term in first.entities
                    },
                    ambiguous={term: kinds[_key(term)] for term in terms if _key(term) in kinds},
                )
            )
    return joint


def _choices(
    families: Sequence[str], groups: Sequence[EntityGroup]
) -> Iterator[tuple[EntityGroup, ...]]:
    return product(*([group for group in groups if family(group.name) == of] for of in families))


def _key(term: str) -> tuple[str, ...]:
    return tuple(piece.key for piece in pieces(term))


#: a region of a picture and (rows, cols) which share of every patch lies in it; a substructure of a
#: graph and (T,) which positions are its nodes
Region = tuple[Annotation, NDArray[np.float64]]


def column_group(column: str, value: str) -> str:
    """The name of the group of items whose metadata `column` holds `value`."""
    return f"{column}/{value}"


def whole_families(plan: AuditPlan) -> tuple[str, ...]:
    """The families whose groups are of whole items: columns of the metadata, and their meetings."""
    columns = plan.matching.columns
    met = (crossed_family(pair) for pair in plan.intersections if set(pair) <= set(columns))
    return (*columns, *met)


def is_whole(plan: AuditPlan, group: str) -> bool:
    """Return whether `group` is one of whole items."""
    return any(group.startswith(f"{name}/") for name in whole_families(plan))


class FoundEntities(NamedTuple):
    """The entities of one item, before any target is looked at."""

    matches: tuple[Match, ...] = ()  #: in its text
    dropped: tuple[Match, ...] = ()  #: ambiguous terms without a cue
    #: groups of the whole item, each with the value that puts it there
    whole: tuple[tuple[str, str], ...] = ()
    #: (start, end) of everything that the recogniser found
    recognised: tuple[tuple[int, int], ...] = ()


def unrecognised(item_id: str, index: int, error: ItemError) -> ItemFailure:
    """The failure of an item whose text the recogniser fails on."""
    message = f"item {item_id!r}: {error}"
    return ItemFailure(
        item_id=item_id,
        index=index,
        kind=error.kind,
        message=message,
        traceback=traceback_of(error),
    )


def _recogniser(plan: RecogniserPlan) -> "Recogniser":
    from transexplain.analysis.groups.entity_recogniser import recogniser_of

    return recogniser_of(plan)


class EntityFinder:
    """Finds the entities of a plan's groups; `annotations` of other groups do not count."""

    def __init__(self, plan: AuditPlan) -> None:
        self._matcher = matcher_of(plan.groups, plan.matching)
        self._groups = {group.name for group in plan.groups}
        columns = plan.matching.columns
        met = (pair for pair in plan.intersections if set(pair) <= set(columns))
        self._columns = (*((column,) for column in columns), *met)
        self._recogniser = _recogniser(plan.recogniser) if plan.recogniser else None
        self._read: dict[str, list[Recognised]] = {}

    def read(self, texts: Sequence[str | None]) -> list[ItemError | None]:
        """Recognise entities in some texts together, for the `find` of each that comes next.

        Returns for each text why the recogniser failed on it, or None.
        """
        self._read.clear()
        if self._recogniser is None:
            return [None for _ in texts]
        known = list(dict.fromkeys(text for text in texts if text is not None))
        read = dict(zip(known, self._recogniser.entities_of(known), strict=True))
        errors = {text: names for text, names in read.items() if isinstance(names, ItemError)}
        self._read |= {
            text: entities for text, entities in read.items() if not isinstance(entities, ItemError)
        }
        return [None if text is None else errors.get(text) for text in texts]

    def in_turn(self, items: Iterable[Item]) -> Iterator[Item | ItemFailure]:
        """The items, with texts recognised together, for a `find` of each before the next.

        In the place of one whose text the recogniser fails on comes its failure.
        """
        stream = iter(items)
        while some := list(islice(stream, TOGETHER)):
            for entry, error in zip(some, self.read([item.text for item in some]), strict=True):
                yield entry if error is None else unrecognised(entry.id, entry.index, error)

    def find(
        self,
        text: str | None,
        annotations: Sequence[Annotation],
        meta: Mapping[str, str],
        second_at: int | None = None,
    ) -> FoundEntities:
        """The entities of one item; `text` is None for a picture or graph.

        `second_at`: where the second text of a pair begins in it.

        Raises ItemError `recogniser-error` where the recogniser fails on the text.
        """
        if text is None:
            return FoundEntities(whole=self._whole(meta))
        entities = self._recognised(text)
        spans = tuple((entity.start, entity.end) for entity in entities)
        match = self._matcher.search(text, spans)
        named = [
            Match(
                group=entity.group,
                entity=entity.entity,
                surface=text[entity.start : entity.end],
                start=entity.start,
                end=entity.end,
            )
            for entity in entities
            if entity.group in self._groups
        ]
        marked = [
            Match(
                group=annotation.group,
                entity=annotation.entity,
                surface=text[slice(*annotation.span)],
                start=annotation.span[0],
                end=annotation.span[1],
            )
            for annotation in annotations
            if annotation.span is not None and annotation.group in self._groups
        ]
        matches = within_texts((*match.kept, *named, *marked), second_at)
        return FoundEntities(matches, match.dropped, self._whole(meta), spans)

    def _recognised(self, text: str) -> "list[Recognised]":
        if self._recogniser is None:
            return []
        return self._read[text] if text in self._read else self._recogniser.entities(text)

    def groups_in(
        self,
        text: str | None,
        annotations: Sequence[Annotation],
        meta: Mapping[str, str],
        second_at: int | None = None,
    ) -> set[str]:
        """The groups of one item, in whatever way it is in them; arguments and errors of `find`."""
        entities = self.find(text, annotations, meta, second_at)
        marked = {annotation.group for annotation in annotations} & self._groups
        return (
            {match.group for match in entities.matches}
            | {group for group, _ in entities.whole}
            | marked
        )

    def mentions(
        self,
        attribution: Attribution,
        entities: FoundEntities,
        regions: Sequence[Region] = (),
    ) -> list[Mention]:
        """The entities of an item with their relevance for one of its targets."""
        mentions: list[Mention] = []
        if entities.matches and not isinstance(attribution.features, PatchGrid):
            mentions += mentions_of(attribution, entities.matches)
        mentions += [
            mention_of_region(attribution, region, share)
            for region, share in regions
            if region.group in self._groups and share.any()
        ]
        mentions += [mention_of_item(attribution, *whole) for whole in entities.whole]
        return mentions

    def _whole(self, meta: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The groups of the item by each column, and by those that meet."""
        groups = []
        for columns in self._columns:
            if any(meta.get(column) is None for column in columns):
                continue
            values = [meta[column] for column in columns]
            group = column_group(crossed_family(columns), crossed_family(values))
            if group in self._groups:
                groups.append((group, crossed_family(values)))
        return tuple(groups)
