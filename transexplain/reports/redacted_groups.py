"""The group section of a redacted report: what fewer items stand behind is left out."""

from collections.abc import Iterable
from dataclasses import replace

from transexplain.bias.outcomes import GroupOutcome
from transexplain.bias.ranking import Ranking
from transexplain.bias.removals import Removals
from transexplain.bias.splits import Split
from transexplain.findings import GroupStatistic
from transexplain.reports.group_records import Dropped, GroupQuality
from transexplain.reports.records import Groups
from transexplain.reports.section_records import GroupMatching

Key = tuple[str, str, str]  #: group, target, class


def keys_of(groups: Groups | None) -> list[Key]:
    """The comparisons of the group table."""
    return [_key(row) for row in groups.rows] if groups else []


def redacted_groups(groups: Groups, fewest: int) -> Groups:
    """Groups without rows of fewer than `fewest` items, and without any item's own numbers.

    A group that is left out of the table is also left out of the list of groups that nobody
    mentions: it is mentioned.
    """
    rows = _frequent(groups.rows, fewest)
    known = {_key(row) for row in rows}
    randomised = groups.randomised
    if randomised is not None:
        kept = tuple(r for r in randomised.rows if (r.group, r.target, r.class_name) in known)
        randomised = replace(randomised, rows=kept) if randomised.items >= fewest else None
    return replace(
        groups,
        rows=rows,
        outcomes=tuple(_outcomes(groups.outcomes, fewest)),
        swaps=tuple(replace(r, against=()) for r in groups.swaps if r.swaps >= fewest),
        removals=_removals(groups.removals, fewest),
        randomised=randomised,
        rankings=tuple(
            ranking for one in groups.rankings if (ranking := _ranking(one, fewest)).entities
        ),
        splits=tuple(_split(one, fewest) for one in groups.splits),
        dropped=tuple(_dropped(one, fewest) for one in groups.dropped if one.count >= fewest),
        quality=tuple(_quality(one, fewest) for one in groups.quality if one.items >= fewest),
        matching=tuple(
            _matching(one, fewest) for one in groups.matching if not 0 < one.items < fewest
        ),
    )


def _key(row: GroupStatistic) -> Key:
    return row.group, row.target, row.class_name


def _frequent(rows: Iterable[GroupStatistic], fewest: int) -> tuple[GroupStatistic, ...]:
    return tuple(row for row in rows if row.documents >= fewest)


def _outcomes(outcomes: Iterable[GroupOutcome], fewest: int) -> Iterable[GroupOutcome]:
    """Outcomes of enough items; a rate whose count is small, or small from the other side, goes."""
    for one in outcomes:
        if one.items < fewest:
            continue
        error = one.error
        if error is not None and not _large(error.count, error.total, fewest):
            error = None
        selection = tuple(
            each for each in one.selection if _large(each.rate.count, each.rate.total, fewest)
        )
        yield replace(one, error=error, selection=selection)


def _large(count: int, total: int, fewest: int) -> bool:
    """Whether neither those who are counted nor the rest are few; nobody at all is not few."""
    return all(part == 0 or part >= fewest for part in (count, total - count))


def _removals(removals: Removals | None, fewest: int) -> Removals | None:
    if removals is None or removals.items < fewest:
        return None
    return replace(removals, rows=tuple(row for row in removals.rows if row.items >= fewest))


def _ranking(ranking: Ranking, fewest: int) -> Ranking:
    kept = tuple(one for one in ranking.entities if one.documents >= fewest)
    left_out = len(ranking.entities) - len(kept)
    return replace(ranking, entities=kept, omitted=ranking.omitted + left_out)


def _split(split: Split, fewest: int) -> Split:
    """A split without small rows; reversals lean on all its parts, so they stay only with them."""
    parts = tuple(replace(part, rows=_frequent(part.rows, fewest)) for part in split.parts)
    kept = tuple(part for part in parts if part.rows)
    told = {(*_key(row), part.value) for part in kept for row in part.rows}
    reversals = tuple(
        one
        for one in split.reversals
        if all((one.group, one.target, one.class_name, value) in told for value in one.parts)
    )
    omitted = split.omitted + len(parts) - len(kept)
    return replace(split, parts=kept, omitted=omitted, reversals=reversals)


def _dropped(one: Dropped, fewest: int) -> Dropped:
    return replace(one, entities=tuple(each for each in one.entities if each[1] >= fewest))


def _quality(one: GroupQuality, fewest: int) -> GroupQuality:
    return replace(one, scores=tuple(each for each in one.scores if each.items >= fewest))


def _matching(one: GroupMatching, fewest: int) -> GroupMatching:
    """Without the name of the entity mentioned most where its mentions, so its items, are few."""
    if one.most_share * one.mentions >= fewest:
        return one
    return replace(one, most="", most_share=0.0)
