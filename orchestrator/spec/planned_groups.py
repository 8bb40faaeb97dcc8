"""The groups of a plan: those of lexicons and the recogniser, of the data, and where they meet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.spec.data_section import DataSection
from orchestrator.spec.groups_section import GroupsSection, is_in
from transexplain.analysis.groups.entity_finder import column_group, crossed, crossed_items
from transexplain.analysis.groups.group_cells import PlanReference, family
from transexplain.data.shard_reader import annotated_groups, value_counts
from transexplain.errors import SpecError, did_you_mean
from transexplain.types.items import EntityGroup
from transexplain.types.plans import DatasetRef

#: values of a column above which it is taken for an id and not for a group
MAX_VALUES = 100


def group_fields(
    section: GroupsSection | None,
    data: DataSection,
    dataset: DatasetRef,
    lexicons: Iterable[EntityGroup],
) -> dict[str, Any]:
    """The fields of a plan about groups; `lexicons`: the groups of the section's lexicons.

    Raises SpecError: a group comes from two places, or a key of the section names a group, family
    or column that is not there. Raises LexiconError for the files of pairs and of `second`.
    """
    groups = _groups_of(section, data, dataset, lexicons)
    if section is not None and section.impact is not None:
        section.impact.check(data, dataset)
    return {"groups": groups} if section is None else section.plan_fields(data, groups)


def _groups_of(
    section: GroupsSection | None,
    data: DataSection,
    dataset: DatasetRef,
    lexicons: Iterable[EntityGroup],
) -> tuple[EntityGroup, ...]:
    """The groups of lexicons and data, narrowed to those that are included, and meetings."""
    columns = section.columns if section else ()
    of_texts = (*lexicons, *_marked(data, dataset))
    _check_families(columns, of_texts)
    of_columns = (group for column in columns for group in _of_column(column, dataset))
    groups = (*of_texts, *of_columns)
    names = [group.name for group in groups]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(
            f"group {twice!r} comes from two places (lexicons, data.spans, groups.column); rename "
            "one"
        )
    if section is None:
        return groups
    if section.recogniser is not None and dataset.modality != "text":
        raise SpecError(f"groups.recogniser reads texts, and the data are {dataset.modality}s")
    for wanted in section.include:
        if not any(is_in(name, wanted) for name in names):
            raise SpecError(
                f"groups.include names {wanted!r}, but there are only: {', '.join(names)}"
            )
    groups = tuple(group for group in groups if section.includes(group.name))
    groups = (*groups, *_meetings(section, groups))
    _check_reference(section.reference, [group.name for group in groups])
    return groups


def _check_families(columns: Sequence[str], groups: Iterable[EntityGroup]) -> None:
    """Raise SpecError where groups of whole items would be in the family of others."""
    families = {family(group.name) for group in groups}
    for column in columns:
        where = f"groups.column: rename {column!r} in the data:"
        if column in families:
            raise SpecError(f"{where} other groups, {column}/..., are of a family of that name")
        if "/" in column:
            raise SpecError(f"{where} what stands before a slash is the family of a group")


def _check_reference(reference: PlanReference, names: Sequence[str]) -> None:
    given = reference if isinstance(reference, Mapping) else {None: reference}
    families = dict.fromkeys(filter(None, map(family, names)))
    for of, group in given.items():
        if of is not None and of not in families:
            raise SpecError(
                f"groups.reference names the family {of!r}, but the families of the groups used "
                f"are: {', '.join(families) or '(none: no name has a slash)'}"
            )
        if group is not None and group not in names:
            raise SpecError(
                f"groups.reference is {group!r}, which is not among the groups used"
                f"{did_you_mean(group, names) or ':'} {', '.join(names)}"
            )
        if of is not None and group is not None and family(group) != of:
            raise SpecError(
                f"groups.reference gives {group!r} to the family {of!r}, but it is not of that "
                f"family: {', '.join(name for name in names if family(name) == of)}"
            )


def _marked(data: DataSection, dataset: DatasetRef) -> list[EntityGroup]:
    if data.spans is None:
        return []
    names = annotated_groups(dataset)
    if not names:
        raise SpecError(
            f"data.spans is {data.spans!r}, but no readable item has an entity there; it "
            "holds [[start, end, group], ...]"
        )
    source = f"marked in the data, column {data.spans}"
    return [EntityGroup(name=name, terms=(), source=source) for name in names]


def _of_column(column: str, dataset: DatasetRef) -> list[EntityGroup]:
    values = sorted(filter(None, value_counts(dataset, column)))
    if not 1 <= len(values) <= MAX_VALUES:
        raise SpecError(
            f"groups.column is {column!r}, which has {len(values)} different values; a column of "
            f"groups has 1 to {MAX_VALUES}"
        )
    source = f"metadata of the items, column {column}"
    return [EntityGroup(name=column_group(column, v), terms=(), source=source) for v in values]


def column_warnings(section: GroupsSection | None, dataset: DatasetRef) -> Iterator[str]:
    """Items that a column of groups leaves out, and values that are perhaps one group."""
    for column in section.columns if section else ():
        counts = value_counts(dataset, column)
        if without := counts[None]:
            yield (
                f"{without:,} of {counts.total():,} items have no value in {column!r} "
                "(groups.column): they are in none of its groups, and none of their comparisons "
                "counts them"
            )
        alike: dict[str, list[str]] = {}
        for value in sorted(filter(None, counts)):
            alike.setdefault(value.strip().casefold(), []).append(value)
        for values in (values for values in alike.values() if len(values) > 1):
            yield (
                f"{', '.join(map(repr, values))} are separate groups of {column!r}: they differ "
                "by capitals or spaces alone. Write them the same in the data to compare them as "
                "one group"
            )


def _meetings(section: GroupsSection, groups: Sequence[EntityGroup]) -> Iterator[EntityGroup]:
    """The groups of groups.intersections."""
    known = dict.fromkeys(filter(None, (family(group.name) for group in groups)))
    given = [frozenset(families) for families in section.intersections]
    for families in section.intersections:
        where = f"groups.intersections: [{', '.join(families)}]"
        if len(set(families)) < max(2, len(families)) or given.count(frozenset(families)) > 1:
            raise SpecError(f"{where}: name two or more different families, each set of them once")
        if unknown := [one for one in families if one not in known]:
            raise SpecError(
                f"{where}: there is no family {unknown[0]!r}; those of the groups used are: "
                f"{', '.join(known) or '(none: no name has a slash)'}"
            )
        whole = [one for one in families if one in section.columns]
        if 0 < len(whole) < len(families):
            raise SpecError(
                f"{where}: {whole[0]} is a column of whole items, the rest is found in texts; "
                "name columns alone, or families of lexicons alone"
            )
        met = crossed_items(families, groups) if whole else crossed(families, groups)
        if not met:
            raise SpecError(
                f"{where}: no term is in a group of each; a term that is to count for several "
                "families stands in the lexicon of each"
            )
        if len(met) > MAX_VALUES:
            raise SpecError(f"{where}: {len(met)} meetings; at most {MAX_VALUES} can be compared")
        yield from met
