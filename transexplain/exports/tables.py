"""A run's findings as tidy tables: one row per observation, one column per variable."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.bias.aggregates import ShardAggregate, WordTotal
from transexplain.bias.cells import by_class
from transexplain.bias.counterfactuals import Counterfactual
from transexplain.bias.group_verdicts import GroupVerdict
from transexplain.bias.outcomes import Outcome
from transexplain.bias.planted import Planted
from transexplain.bias.randomised import RandomisedRow
from transexplain.bias.ranking import rankings
from transexplain.bias.removals import RemovalStatistic
from transexplain.exports.columns import cells_of, columns_of
from transexplain.findings import GroupStatistic, Robustness
from transexplain.reports.faithfulness_records import FaithfulnessRow
from transexplain.reports.group_records import QualityScore
from transexplain.reports.records import Groups, Summary

Cells = Mapping[str, Any]
_CLASS = ("target", "class_name")
_KEY = ("group", *_CLASS)
_OF_ROW = ("group", "entity", "mentions", "documents", "mean", "share", "positive", "rank")
_ENTITY = (*_CLASS, *_OF_ROW, "shrunken", "shrunken_low", "shrunken_high")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One table; its rows are read once."""

    name: str  #: of the file, without its ending
    columns: tuple[str, ...]
    rows: Iterable[Cells]


def tables_of(summary: Summary, total: ShardAggregate, fewest: int = 0) -> Iterator[Table]:
    """Every table of an audit's statistics, also those without a row.

    Entities and words that fewer than `fewest` items hold are left out; `summary` is redacted
    already where it is to be.
    """
    yield from _group_tables(summary.groups)
    yield Table(name="entities", columns=_ENTITY, rows=_entities(total, fewest))
    yield _records("words", WordTotal, _words(total, fewest), *_CLASS, "mean")
    measured = summary.faithfulness.rows if summary.faithfulness else ()
    yield _records("faithfulness", FaithfulnessRow, (({}, one) for one in measured))


def _group_tables(groups: Groups | None) -> Iterator[Table]:
    if groups is None:
        return
    yield _records("groups", GroupStatistic, (({}, row) for row in groups.rows))
    yield _records("robustness", Robustness, _robustness(groups), *_KEY)
    yield _records("splits", GroupStatistic, _splits(groups), "split_by", "split_value")
    yield _records("verdicts", GroupVerdict, _verdicts(groups), "reasons", "missing")
    yield _records("outcomes", Outcome, (({}, row) for row in groups.outcomes))
    yield _records("counterfactuals", Counterfactual, (({}, row) for row in groups.counterfactuals))
    removals = groups.removals.rows if groups.removals else ()
    yield _records("removals", RemovalStatistic, (({}, row) for row in removals))
    randomised = groups.randomised.rows if groups.randomised else ()
    yield _records("randomised", RandomisedRow, (({}, row) for row in randomised))
    yield _records("planted", Planted, (({}, row) for row in groups.planted))
    yield _records("quality", QualityScore, _quality(groups), "group")


def _records(name: str, record: type, rows: Iterable[tuple[Cells, Any]], *before: str) -> Table:
    """A table of records, each with further cells for the columns `before` its own."""
    columns = tuple(dict.fromkeys((*before, *columns_of(record))))
    return Table(
        name=name, columns=columns, rows=({**cells, **cells_of(one)} for cells, one in rows)
    )


def _entities(total: ShardAggregate, fewest: int) -> Iterator[Cells]:
    """Every entity of every group; shrunken where there are enough of them to be ranked."""
    believed = {
        (ranking.target, ranking.class_name, one.entity): one
        for ranking in rankings(total.entities)
        for one in ranking.entities
    }
    for (target, class_name), strata in by_class(total.entities).items():
        for row in total.entities.rows(strata):
            if row.documents < fewest:
                continue
            one = believed.get((target, class_name, row.entity))
            low, high = one.interval if one else (None, None)
            yield {
                "target": target,
                "class_name": class_name,
                **{name: getattr(row, name) for name in _OF_ROW},
                "shrunken": one.shrunken if one else None,
                "shrunken_low": low,
                "shrunken_high": high,
            }


def _words(total: ShardAggregate, fewest: int) -> Iterator[tuple[Cells, WordTotal]]:
    for target, class_name in total.class_keys:
        for one in total.words(target, class_name):
            if one.documents < fewest:
                continue
            mean = one.relevance / one.mentions
            yield {"target": target, "class_name": class_name, "mean": mean}, one


def _key(row: GroupStatistic) -> Cells:
    return {name: getattr(row, name) for name in _KEY}


def _robustness(groups: Groups) -> Iterator[tuple[Cells, Robustness]]:
    return ((_key(row), one) for row in groups.rows for one in row.robustness)


def _splits(groups: Groups) -> Iterator[tuple[Cells, GroupStatistic]]:
    for split in groups.splits:
        for part in split.parts:
            for row in part.rows:
                yield {"split_by": split.by, "split_value": part.value}, row


def _verdicts(groups: Groups) -> Iterator[tuple[Cells, GroupVerdict]]:
    for one in groups.verdicts:
        yield {"reasons": "; ".join(one.reasons), "missing": "; ".join(one.missing)}, one


def _quality(groups: Groups) -> Iterator[tuple[Cells, QualityScore]]:
    return (({"group": one.group}, score) for one in groups.quality for score in one.scores)
