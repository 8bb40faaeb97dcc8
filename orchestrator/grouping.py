"""The groups of an audit: from lexicons, from what is marked in the data, from a column."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.spec import AuditSpec
from transexplain.bias.finding import column_group
from transexplain.bias.lexicon import load_lexicon
from transexplain.bias.lexicon_files import BUILTIN, lexicon_file
from transexplain.data.reader import annotated_groups, values_of
from transexplain.errors import SpecError
from transexplain.plans import DatasetRef, Matching, SourceFile
from transexplain.types import EntityGroup

#: values of a column above which it is taken for an id and not for a group
MAX_VALUES = 100


def lexicon_groups(spec: AuditSpec) -> tuple[EntityGroup, ...]:
    """The groups of the lexicons that the specification names.

    Raises:
        LexiconError: a lexicon is wrong.
        SpecError: `groups` names nothing to compare, or a column that data.meta does not keep.
    """
    section = spec.groups
    if section is None:
        return ()
    if not section.lexicons and section.column is None and spec.data.spans is None:
        raise SpecError(
            "groups names nothing to compare: give groups.lexicon, groups.column or data.spans"
        )
    if section.column is not None and section.column not in spec.data.meta:
        raise SpecError(
            f"groups.column is {section.column!r}, which data.meta does not keep: add it there "
            f"(kept: {', '.join(spec.data.meta) or 'none'})"
        )
    groups: list[EntityGroup] = []
    for lexicon in section.lexicons:
        groups += load_lexicon(_own(lexicon))
    return tuple(groups)


def lexicon_files(spec: AuditSpec) -> tuple[SourceFile, ...]:
    """The lexicons that the specification names, with digests; raises LexiconError."""
    section = spec.groups
    named = (*section.lexicons, section.second) if section else ()
    return tuple(lexicon_file(_own(lexicon)) for lexicon in named if lexicon is not None)


def _own(lexicon: str) -> Path | str:
    return lexicon if lexicon.startswith(BUILTIN) else Path(lexicon)


def groups_of(
    spec: AuditSpec, dataset: DatasetRef, lexicons: Iterable[EntityGroup]
) -> tuple[EntityGroup, ...]:
    """The groups of `lexicons` and of the data, narrowed to those that are included.

    Raises SpecError: a group comes from two places, or include or reference name none.
    """
    if spec.groups is None and spec.data.spans is None:
        return ()
    groups = (*lexicons, *_marked(spec, dataset), *_of_column(spec, dataset))
    names = [group.name for group in groups]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(
            f"group {twice!r} comes from two places (lexicons, data.spans, groups.column); rename "
            "one"
        )
    section = spec.groups
    if section is None:
        return groups
    for wanted in section.include:
        if not any(_is_in(name, wanted) for name in names):
            raise SpecError(
                f"groups.include names {wanted!r}, but there are only: {', '.join(names)}"
            )
    if section.include:
        groups = tuple(g for g in groups if any(_is_in(g.name, w) for w in section.include))
    if section.reference is not None and section.reference not in [g.name for g in groups]:
        raise SpecError(
            f"groups.reference is {section.reference!r}, which is not among the groups used: "
            f"{', '.join(group.name for group in groups)}"
        )
    return groups


def second_groups(spec: AuditSpec, groups: Iterable[EntityGroup]) -> tuple[EntityGroup, ...]:
    """The groups of `groups.second`, narrowed as those of the audit are.

    Raises:
        LexiconError: the lexicon is wrong.
        SpecError: it has a group that the audit has not, or none that is included.
    """
    section = spec.groups
    if section is None or section.second is None:
        return ()
    names = [group.name for group in groups]
    found = [
        group
        for group in load_lexicon(_own(section.second))
        if not section.include or any(_is_in(group.name, w) for w in section.include)
    ]
    if unknown := [group.name for group in found if group.name not in names]:
        raise SpecError(
            f"groups.second: {section.second} has the group {unknown[0]!r}, which is not among the "
            f"groups used: {', '.join(names)}; give it the name of the group that it stands for"
        )
    if not found:
        raise SpecError(f"groups.second: {section.second} has no group that groups.include names")
    return tuple(found)


def group_fields(
    spec: AuditSpec, dataset: DatasetRef, lexicons: Iterable[EntityGroup]
) -> dict[str, Any]:
    """What a plan says of groups: how they are found, compared, split and controlled.

    Raises as `groups_of` and `second_groups`; SpecError where data.meta does not keep the slice.
    """
    groups, section = groups_of(spec, dataset, lexicons), spec.groups
    if section is None:
        return {"groups": groups}
    return {
        "groups": groups,
        "lexicons": lexicon_files(spec),
        "second": second_groups(spec, groups),
        "matching": Matching(ambiguous=section.ambiguous, case=section.case, column=section.column),
        "reference": section.reference,
        "practical": section.practical,
        "correction": section.correction,
        "slice": _slice(spec),
        "planted": section.planted,
    }


def _slice(spec: AuditSpec) -> str | None:
    column = spec.groups.slice if spec.groups else None
    if column is not None and column not in spec.data.meta:
        raise SpecError(
            f"groups.slice is {column!r}, which data.meta does not keep: add it there "
            f"(kept: {', '.join(spec.data.meta) or 'none'})"
        )
    return column


def _is_in(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}/")


def _marked(spec: AuditSpec, dataset: DatasetRef) -> list[EntityGroup]:
    if spec.data.spans is None:
        return []
    names = annotated_groups(dataset)
    if not names:
        raise SpecError(
            f"data.spans is {spec.data.spans!r}, but no readable item has an entity there; it "
            "holds [[start, end, group], ...]"
        )
    source = f"marked in the data, column {spec.data.spans}"
    return [EntityGroup(name=name, terms=(), source=source) for name in names]


def _of_column(spec: AuditSpec, dataset: DatasetRef) -> list[EntityGroup]:
    column = spec.groups.column if spec.groups else None
    if column is None:
        return []
    values = values_of(dataset, column)
    if not 1 <= len(values) <= MAX_VALUES:
        raise SpecError(
            f"groups.column is {column!r}, which has {len(values)} different values; a column of "
            f"groups has 1 to {MAX_VALUES}"
        )
    source = f"metadata of the items, column {column}"
    return [EntityGroup(name=column_group(column, v), terms=(), source=source) for v in values]
