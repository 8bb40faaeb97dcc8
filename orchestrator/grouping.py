"""The groups of an audit: from lexicons, from what is marked in the data, from a column."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.sections import GroupsSection
from orchestrator.spec import AuditSpec
from transexplain.bias.families import PlanReference, family
from transexplain.bias.finding import column_group
from transexplain.bias.intersections import crossed, crossed_items
from transexplain.bias.lexicon import load_lexicon
from transexplain.bias.lexicon_files import BUILTIN, lexicon_file
from transexplain.bias.pairs import SHIPPED, Pair, checked_pairs, load_pairs
from transexplain.data.reader import annotated_groups, values_of
from transexplain.errors import LexiconError, SpecError
from transexplain.findings import Practical
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
    if not section.lexicons and not section.columns and spec.data.spans is None:
        raise SpecError(
            "groups names nothing to compare: give groups.lexicon, groups.column or data.spans"
        )
    for column in section.columns:
        if column not in spec.data.meta:
            raise SpecError(
                f"groups.column is {column!r}, which data.meta does not keep: add it there "
                f"(kept: {', '.join(spec.data.meta) or 'none'})"
            )
    groups: list[EntityGroup] = []
    for lexicon in section.lexicons:
        groups += load_lexicon(_own(lexicon))
    return tuple(groups)


def lexicon_files(spec: AuditSpec) -> tuple[SourceFile, ...]:
    """The lexicons that the specification names, with digests; raises LexiconError."""
    section = spec.groups
    pairs = section.pairs if section and isinstance(section.pairs, str) else None
    named = (*section.lexicons, section.second, pairs) if section else ()
    return tuple(lexicon_file(_own(lexicon)) for lexicon in named if lexicon is not None)


def _own(lexicon: str) -> Path | str:
    return lexicon if lexicon.startswith(BUILTIN) else Path(lexicon)


def groups_of(
    spec: AuditSpec, dataset: DatasetRef, lexicons: Iterable[EntityGroup]
) -> tuple[EntityGroup, ...]:
    """The groups of `lexicons` and of the data, narrowed to those that are included, and meetings.

    Raises SpecError: a group comes from two places, or include, reference or intersections name
    none.
    """
    if spec.groups is None and spec.data.spans is None:
        return ()
    groups = (*lexicons, *_marked(spec, dataset), *_of_columns(spec, dataset))
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
    groups = (*groups, *_meetings(section, groups))
    _check_reference(section.reference, [group.name for group in groups])
    return groups


def _check_reference(reference: PlanReference, names: Sequence[str]) -> None:
    asked = reference if isinstance(reference, Mapping) else {None: reference}
    families = dict.fromkeys(filter(None, map(family, names)))
    for of, group in asked.items():
        if of is not None and of not in families:
            raise SpecError(
                f"groups.reference names the family {of!r}, but the families of the groups used "
                f"are: {', '.join(families) or '(none: no name has a slash)'}"
            )
        if group is not None and group not in names:
            raise SpecError(
                f"groups.reference is {group!r}, which is not among the groups used: "
                f"{', '.join(names)}"
            )
        if of is not None and group is not None and family(group) != of:
            raise SpecError(
                f"groups.reference gives {group!r} to the family {of!r}, but it is not of that "
                f"family: {', '.join(name for name in names if family(name) == of)}"
            )


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
        "matching": Matching(
            ambiguous=section.ambiguous, case=section.case, column=_columns(section)
        ),
        "reference": section.reference,
        "intersections": section.intersections,
        "pairs": _pairs(section, groups),
        "practical": section.practical.logit,
        "limits": Practical(**section.practical.model_dump()),
        "correction": section.correction,
        "slice": _slice(spec),
        "planted": section.planted,
    }


def _pairs(section: GroupsSection, groups: Sequence[EntityGroup]) -> tuple[Pair, ...]:
    """The pairs that the specification gives, else those shipped for a lexicon that is used."""
    if section.pairs is None:
        used = f"{BUILTIN}gender" in section.lexicons
        terms = {term for group in groups for term in group.terms}
        return tuple(one for one in load_pairs(SHIPPED) if used and terms.issuperset(one))
    given = section.pairs
    pairs = load_pairs(_own(given)) if isinstance(given, str) else given
    try:
        return checked_pairs(pairs, groups)
    except LexiconError as error:
        raise SpecError(f"groups.pairs: {error}") from None


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


def _columns(section: GroupsSection) -> str | tuple[str, ...] | None:
    """As a plan has them: one column alone is a text, as it was before there were several."""
    columns = section.columns
    return columns if len(columns) > 1 else columns[0] if columns else None


def _of_columns(spec: AuditSpec, dataset: DatasetRef) -> list[EntityGroup]:
    columns = spec.groups.columns if spec.groups else ()
    return [group for column in columns for group in _of_column(column, dataset)]


def _of_column(column: str, dataset: DatasetRef) -> list[EntityGroup]:
    values = values_of(dataset, column)
    if not 1 <= len(values) <= MAX_VALUES:
        raise SpecError(
            f"groups.column is {column!r}, which has {len(values)} different values; a column of "
            f"groups has 1 to {MAX_VALUES}"
        )
    source = f"metadata of the items, column {column}"
    return [EntityGroup(name=column_group(column, v), terms=(), source=source) for v in values]


def _meetings(section: GroupsSection, groups: Sequence[EntityGroup]) -> Iterator[EntityGroup]:
    """The groups of groups.intersections."""
    known = dict.fromkeys(filter(None, (family(group.name) for group in groups)))
    asked = [frozenset(families) for families in section.intersections]
    for families in section.intersections:
        where = f"groups.intersections: [{', '.join(families)}]"
        if len(set(families)) < max(2, len(families)) or asked.count(frozenset(families)) > 1:
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
