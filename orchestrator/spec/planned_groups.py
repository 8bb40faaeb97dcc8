"""The groups of a plan: those of lexicons, the recogniser and the data, and intersections."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.spec.data_section import DataSection
from orchestrator.spec.groups_section import GroupsSection, is_in
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import NAMES
from transexplain.analysis.groups.entity_finder import (
    EntityFinder,
    column_group,
    crossed,
    crossed_items,
)
from transexplain.analysis.groups.group_cells import PlanReference, family, references_of
from transexplain.analysis.groups.mention_coverage import CandidateCounts, other_spellings
from transexplain.data.shard_reader import annotated_groups, read_shard, value_counts
from transexplain.errors import ConfigurationError, SpecError, did_you_mean
from transexplain.reports.phrasing import counted
from transexplain.types.items import EntityGroup, Item, ItemFailure, PatchGrid
from transexplain.types.plans import AT_POSITIONS, AuditPlan, CheckPlan, DatasetRef, Shard

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel


#: values of a column above which it is taken for an id and not for a group
MAX_VALUES = 100


def group_fields(
    section: GroupsSection | None,
    data: DataSection,
    dataset: DatasetRef,
    lexicons: Iterable[EntityGroup],
) -> dict[str, Any]:
    """The fields of a plan about groups, those that are included and those of intersections.

    `lexicons` are the groups of the section's lexicons.

    Raises SpecError: a group comes from two places, or a key of the section names a group, family
    or column that is not there. Raises LexiconError for the files of pairs and of `second`.
    """
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
        return {"groups": groups}
    if section.recogniser is not None and dataset.modality != "text":
        raise SpecError(f"groups.recogniser reads texts, and the data are {dataset.modality}s")
    for included in section.include:
        if not any(is_in(name, included) for name in names):
            raise SpecError(
                f"groups.include names {included!r}, but there are only: {', '.join(names)}"
            )
    groups = tuple(group for group in groups if section.includes(group.name))
    groups = (*groups, *_meetings(section, groups))
    _check_reference(section.reference, [group.name for group in groups])
    if section.impact is not None:
        section.impact.check(data, dataset)
    return section.plan_fields(data, groups)


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
    references = reference if isinstance(reference, Mapping) else {None: reference}
    families = dict.fromkeys(filter(None, map(family, names)))
    for of, group in references.items():
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
    listed = [frozenset(families) for families in section.intersections]
    for families in section.intersections:
        where = f"groups.intersections: [{', '.join(families)}]"
        if len(set(families)) < max(2, len(families)) or listed.count(frozenset(families)) > 1:
            raise SpecError(f"{where}: name two or more different families, each set of them once")
        if unknown := [family for family in families if family not in known]:
            raise SpecError(
                f"{where}: there is no family {unknown[0]!r}; those of the groups used are: "
                f"{', '.join(known) or '(none: no name has a slash)'}"
            )
        whole = [family for family in families if family in section.columns]
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


#: rows in which mentions are counted; a picture has to be decoded for it
_READ, _READ_PICTURES = 5_000, 200
#: forward passes that an explanation is worth, and that a swapped text takes
_EXPLAINED, _SWAPPED = 3, 2 * NAMES - 1
_NORMAL = 1.96  #: quantile of a 95 % interval
_SHOWN = 3  #: names of a warning
_NAMES_READ = 300  #: of a group, when their word pieces are looked at
#: standard deviation of a text's difference between names of two groups, in logits: few are larger
_WIDE = 0.6
DRAWS = 3  #: of random weights
_LARGE = 500_000_000  #: parameters from which on one further set is enough to hold


@dataclass(slots=True)
class _SeenMentions:
    """Mentions in the first rows of the data."""

    with_mention: int = 0  #: items whose text mentions a group
    whole: int = 0  #: items that are in a group in any way
    regions: Counter[str] = field(
        default_factory=Counter
    )  #: pictures and graphs with regions of each group
    counts: Counter[str] = field(default_factory=Counter)
    #: mentions by entity and how they are written
    surfaces: Counter[tuple[str, str]] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)  #: texts that mention each group
    untemplated: Counter[str] = field(default_factory=Counter)  #: of these, without a template
    words: CandidateCounts | None = None  #: None: no group has a lexicon of names


def check_plan(
    plan: AuditPlan, section: GroupsSection | None, parameters: int = 0
) -> CheckPlan | None:
    """The share of rows that gives about `groups.check` items with a mention of a group.

    Where no text mentions any group, as with pictures and groups of a column, items that are in a
    group are sampled. None where there are none of these either, `groups.check` is 0, or the model
    labels tokens or marks answers, which are others in a changed text. Mentions
    can be swapped where two groups have terms; regions of pictures and graphs are hidden where two
    groups have some. `parameters`: how many the model has. Raises DataSourceError where the
    snapshot is gone.
    """
    least = section.check if section else 0
    if not least or not plan.groups or plan.model.head in AT_POSITIONS:  # answers move with words
        return None
    most = _READ_PICTURES if plan.dataset.modality == "image" else _READ
    rows = min(plan.dataset.rows, most)
    seen = _seen(plan, rows)
    hits = seen.with_mention or seen.whole
    # an explainer cannot read the states of a model that it did not learn from
    randomised = section is not None and section.randomised and plan.approximates is None
    regions = len(seen.regions) > 1 and bool(answers_of(plan))
    if not hits or not (seen.with_mention or randomised or regions):
        return None
    swaps = _swap_shares(plan, seen, rows, least, section.budget) if section else {}
    candidates = seen.words.candidates(least, plan.dataset.rows / rows) if seen.words else ()
    swapped = sum(share * seen.untemplated[group] for group, share in swaps.items())
    tried = sum(candidate.share * candidate.texts for candidate in candidates)
    return CheckPlan(
        share=min(1.0, least * rows / (hits * plan.dataset.rows)),
        whole=not seen.with_mention,
        swap=bool(swaps),
        randomised=randomised,
        draws=(section.draws or _draws(parameters)) if section and randomised else 1,
        counts=dict(seen.counts),
        spellings=other_spellings(plan, seen.surfaces),
        swaps=swaps,
        swap_passes=round((swapped * _SWAPPED + tried) * plan.dataset.rows / rows),
        candidates=candidates,
        regions=regions,
    )


def _swap_shares(
    plan: AuditPlan, seen: _SeenMentions, rows: int, least: int, budget: float
) -> dict[str, float]:
    """Group -> share of its texts in which the mention is swapped; empty where none can be.

    Every group gets as many texts, a rare one all that it has: `least`, or more where `budget`
    (a share of the passes of the run's explanations) allows it, up to the number at which the
    interval's half-width is half of what is practical where texts differ as widely as `_WIDE`. The
    number is settled here and not by what the first texts show: then any cut of the run into shards
    draws the same texts.
    """
    known = {group.name for group in plan.groups if group.terms}
    counts = {name: count for name, count in seen.groups.items() if name in known}
    if len(known) < 2 or not counts or not answers_of(plan):
        return {}
    whole = plan.dataset.rows / rows
    paid = budget * plan.dataset.rows * _EXPLAINED / _SWAPPED / len(counts)
    practical = plan.matters.logit
    enough = (_NORMAL * _WIDE / (practical / 2)) ** 2 if practical else math.inf
    texts = max(min(paid, enough), least)
    return {name: min(1.0, texts / (count * whole)) for name, count in sorted(counts.items())}


def _draws(parameters: int) -> int:
    """Draws of random weights; each holds a further set of them."""
    return DRAWS if parameters <= _LARGE else 1


def _seen(plan: AuditPlan, rows: int) -> _SeenMentions:
    finder, seen, words = EntityFinder(plan), _SeenMentions(), CandidateCounts(plan)
    seen.words = words if words.is_needed else None
    named = {group.name for group in plan.groups}
    read_rows = read_shard(plan.dataset, Shard(index=0, start=0, stop=rows))
    failed: ItemFailure | None = None
    read = 0
    for item in finder.in_turn(row for row in read_rows if isinstance(row, Item)):
        if isinstance(item, ItemFailure):
            failed = failed or item
            continue
        read += 1
        matches = finder.find(item.text, item.annotations, item.meta, item.second_at)
        if seen.words is not None and item.text is not None:
            slice_ = str(item.meta.get(plan.slice, "")) if plan.slice else ""
            seen.words.add(item.text, (item.label or "", slice_), matches.matches)
        marked = any(mark.group in named for mark in item.annotations)
        seen.with_mention += bool(matches.matches)
        seen.whole += marked or bool(matches.whole)
        regions = (mark for mark in item.annotations if mark.span is None)
        seen.regions.update({mark.group for mark in regions} & named)
        seen.counts.update(match.entity for match in matches.matches)
        seen.surfaces.update((match.entity, match.surface) for match in matches.matches)
        groups = {match.group for match in matches.matches}
        seen.groups.update(groups)
        if not item.template:  # texts of a template are compared with each other
            seen.untemplated.update(groups)
    if failed is not None and not read:
        raise ConfigurationError(f"groups.recogniser fails on every text: {failed.message}")
    return seen


def lexicon_warnings(plan: AuditPlan, model: "LoadedModel") -> Iterator[str]:
    """Warnings about the names of the lexicon."""
    yield from _shared_names(plan)
    pieces = {
        group.name: [_pieces(term, model) for term in group.terms[:_NAMES_READ]]
        for group in plan.groups
        if group.terms and plan.model.modality == "text"
    }
    known: set[frozenset[str]] = set()
    for group, reference in references_of(plan.reference, pieces).items():
        others = {piece for name in reference.groups for term in pieces[name] for piece in term}
        cut = [piece for piece in pieces[group] if len(piece) > 1]
        shared = sum(bool(piece & others) for piece in cut)
        key = frozenset((group, reference.name))
        if len(cut) > len(pieces[group]) / 2 and shared > len(cut) / 2 and key not in known:
            known.add(key)
            yield (
                f"{shared} of {len(pieces[group])} names of {group} share word pieces with names "
                f"of {reference.name}: what such a piece adds is not the name's alone, so read "
                "what swaps say before relevance"
            )


def _shared_names(plan: AuditPlan) -> Iterator[str]:
    """A warning where names belong to two groups that are compared with each other."""
    terms = {
        group.name: {term.casefold(): term for term in group.terms}
        for group in plan.groups
        if group.terms
    }
    shared: dict[str, str] = {}
    for group, reference in references_of(plan.reference, terms).items():
        for other in reference.groups:
            both = sorted(terms[group].keys() & terms[other].keys())
            shared.update({term: f"{terms[group][term]}: {group}, {other}" for term in both})
    if not shared:
        return
    few = list(shared.values())[:_SHOWN] if plan.privacy is None else []
    named = f" ({'; '.join(few)}{'; ...' if len(shared) > len(few) else ''})" if few else ""
    is_, its = ("is", "its mentions count") if len(shared) == 1 else ("are", "their mentions count")
    yield (
        f"{counted(len(shared), 'name')} {is_} in two groups that are compared with each other"
        f"{named}: {its} for both and hide what sets them apart. Give each name to one group, or "
        "leave it out of the lexicon"
    )


def _pieces(term: str, model: "LoadedModel") -> frozenset[str]:
    [encoded] = model.encode([Item(id="", index=0, content=term)])
    if isinstance(encoded, ItemFailure) or isinstance(encoded.features, PatchGrid):
        return frozenset()
    return frozenset(feature.text for feature in encoded.features if not feature.special)
