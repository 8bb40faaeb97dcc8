"""The group section of a redacted report: what fewer items stand behind is left out."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from transexplain.bias.counterfactuals import Counterfactual
from transexplain.bias.group_verdicts import GroupVerdict
from transexplain.bias.outcomes import Outcome, Side
from transexplain.bias.ranking import Ranking
from transexplain.bias.rates import Rate
from transexplain.bias.removals import Removals
from transexplain.bias.splits import Split
from transexplain.findings import GroupStatistic
from transexplain.reports.group_records import Dropped, GroupQuality
from transexplain.reports.records import Groups
from transexplain.reports.section_records import GroupMatching

_FEW = "the numbers behind it rest on too few items to be shown"
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
    known, told = {_key(row) for row in rows}, {row.group for row in rows}
    randomised = groups.randomised
    if randomised is not None:
        kept = tuple(r for r in randomised.rows if (r.group, r.target, r.class_name) in known)
        randomised = replace(randomised, rows=kept) if randomised.items >= fewest else None
    return replace(
        groups,
        rows=rows,
        verdicts=tuple(_verdict(one, fewest) for one in groups.verdicts if one.group in told),
        outcomes=tuple(_outcomes(groups.outcomes, fewest)),
        counterfactuals=tuple(_swaps(groups.counterfactuals, fewest)),
        proxies=(),
        removals=_removals(groups.removals, fewest),
        randomised=randomised,
        rankings=tuple(
            ranking for one in groups.rankings if (ranking := _ranking(one, fewest)).entities
        ),
        splits=tuple(_split(one, fewest) for one in groups.splits),
        rare=tuple(one for one in groups.rare if one.items >= fewest),
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


def _verdict(one: GroupVerdict, fewest: int) -> GroupVerdict:
    """A verdict whose reasons tell no rate and no swap of fewer items."""
    outcome = next(_outcomes([one.outcome] if one.outcome else [], fewest), None)
    swap = next(_swaps([one.counterfactual] if one.counterfactual else [], fewest), None)
    if outcome is not None and (swap is not None or one.counterfactual is None):
        return replace(one, outcome=outcome, counterfactual=swap, missing=())
    return replace(one, outcome=outcome, counterfactual=swap, reasons=(_FEW,), missing=())


def _swaps(rows: Iterable[Counterfactual], fewest: int) -> Iterator[Counterfactual]:
    return (replace(row, examples=()) for row in rows if row.documents >= fewest)


def _outcomes(outcomes: Iterable[Outcome], fewest: int) -> Iterator[Outcome]:
    """Outcomes of enough items; a rate whose count is small, or small from the other side, goes.

    The rates that are compared go with the row, the others alone.
    """
    for one in outcomes:
        rates = (one.own.selected, one.other.selected)
        if all(rate.total >= fewest and _large(rate, fewest) for rate in rates):
            yield replace(one, own=_side(one.own, fewest), other=_side(one.other, fewest))


def _side(side: Side, fewest: int) -> Side:
    def kept(rate: Rate | None) -> Rate | None:
        return rate if rate is not None and _large(rate, fewest) else None

    return replace(
        side,
        labelled=kept(side.labelled),
        error=kept(side.error),
        true_positive=kept(side.true_positive),
        false_positive=kept(side.false_positive),
        calibration=side.calibration if kept(side.labelled) else None,
    )


def _large(rate: Rate, fewest: int) -> bool:
    """Whether neither those who are counted nor the rest are few; nobody at all is not few."""
    return all(part == 0 or part >= fewest for part in (rate.count, rate.total - rate.count))


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
