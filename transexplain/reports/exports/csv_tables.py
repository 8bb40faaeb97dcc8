"""A run's findings as a folder of tidy CSV tables (RFC 4180, UTF-8): one row per observation, one
column per variable.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.entity_ranking import rankings
from transexplain.analysis.groups.group_cells import by_class
from transexplain.analysis.groups.group_controls import Planted
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.mention_ablation import AblationStatistic
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.randomised_control import RandomisedRow
from transexplain.analysis.groups.shard_aggregate import ShardAggregate, WordTotal
from transexplain.reports.escaping import encodable, spreadsheet_safe
from transexplain.reports.exports.export_run import Redaction, check_over, new_folder, summary_of
from transexplain.reports.report_records import FaithfulnessRow, Groups, Summary
from transexplain.reports.row_records import QualityScore
from transexplain.reports.tallies import merged
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic, Robustness
from transexplain.types.items import ItemFailure, ItemOutcome, Mention
from transexplain.types.plans import AuditRun
from transexplain.types.scores import MetricScore

Way = tuple[str | int, ...]  #: names and places that lead to a value


_KNOWN: dict[type, Mapping[str, Way]] = {}


def columns_of(record: type) -> Mapping[str, Way]:
    """Column -> the way to it from a record (a dataclass).

    A pair of numbers becomes two columns, `_low` and `_high`; a record within is opened, its
    columns behind its name; what is a collection is left out.
    """
    if record not in _KNOWN:
        _KNOWN[record] = _columns(record)
    return _KNOWN[record]


def _columns(record: type) -> Mapping[str, Way]:
    found: dict[str, Way] = {}
    hints = get_type_hints(record)
    for field in fields(record):
        name, hint = field.name, _given(hints[field.name])
        if isinstance(hint, type) and is_dataclass(hint):
            inner = columns_of(hint)
            found |= {f"{name}_{column}": (name, *way) for column, way in inner.items()}
        elif hint == tuple[float, float]:
            found |= {f"{name}_low": (name, 0), f"{name}_high": (name, 1)}
        elif get_origin(hint) in (None, Literal):
            found[name] = (name,)
    return found


def cells_of(record: Any) -> dict[str, Any]:
    """Column -> value; None where something on the way is missing."""
    return {column: _value(record, way) for column, way in columns_of(type(record)).items()}


def _given(hint: Any) -> Any:
    """The type of what may be missing."""
    kept = [one for one in get_args(hint) if one is not NoneType]
    return kept[0] if NoneType in get_args(hint) and len(kept) == 1 else hint


def _value(record: Any, way: Way) -> Any:
    for step in way:
        if record is None:
            return None
        record = record[step] if isinstance(step, int) else getattr(record, step)
    return record


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
    yield _records("removals", AblationStatistic, (({}, row) for row in removals))
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


def write(db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None) -> None:
    """Write the tables into the new folder `path`.

    Redacted, those are left out that have a row for each item. A cell that a spreadsheet would
    compute has an apostrophe before it; NUL becomes the replacement character. Raises
    ConfigurationError: the run is not over, or `path` holds something or cannot be written.
    """
    check_over(run, "CSV")
    stored = iter(()) if redaction else _stored(db, run)
    with new_folder(path) as folder:
        for table in chain(stored, _found(db, run, redaction)):
            _write_table(table, folder / f"{table.name}.csv")


def _found(db: Database, run: AuditRun, redaction: Redaction | None) -> Iterator[Table]:
    if run.plan.task == "evaluation":
        return iter(())
    fewest = redaction.fewest if redaction else 0
    return tables_of(summary_of(db, run, redaction), merged(db, run.id), fewest)


def _stored(db: Database, run: AuditRun) -> Iterator[Table]:
    """The tables of items, mentions and scores, read a page at a time."""
    names = _logit_columns(run.plan.model.classes)
    given = ("id", "idx", "label", "prediction", "truncated", "positions", "meta")
    yield Table(
        name="predictions", columns=(*given, *names), rows=_predictions(db, run, tuple(names))
    )
    failed = ("id", "idx", "kind", "message")
    yield Table(name="failures", columns=failed, rows=_failures(db, run))
    yield Table(
        name="mentions",
        columns=_by_id(columns_of(Mention)),
        rows=(_called_id(cells_of(one)) for one in results.iter_mentions(db, run.id)),
    )
    yield Table(
        name="metrics",
        columns=(*_by_id(columns_of(MetricScore)), "curve"),
        rows=map(_score, results.iter_scores(db, run.id)),
    )


def _by_id(columns: Iterable[str]) -> tuple[str, ...]:
    """Every table calls an item's id `id`, so that they join."""
    return tuple("id" if name == "item_id" else name for name in columns)


def _called_id(cells: Cells) -> Cells:
    return dict(zip(_by_id(cells), cells.values(), strict=True))


def _logit_columns(classes: Sequence[str]) -> list[str]:
    """A column per class; two classes of one name are told apart by their index."""
    return [
        f"logit_{name}" if list(classes).count(name) == 1 else f"logit_{name}_{place}"
        for place, name in enumerate(classes)
    ]


def _predictions(db: Database, run: AuditRun, names: Sequence[str]) -> Iterator[Cells]:
    for one in results.iter_items(db, run.id):
        if isinstance(one, ItemOutcome):
            yield {
                "id": one.item_id,
                "idx": one.index,
                "label": one.label,
                "prediction": one.predicted,
                "truncated": one.truncated,
                "positions": one.positions,
                "meta": json.dumps(dict(one.meta)) if one.meta else None,
                **dict(zip(names, one.logits, strict=False)),
            }


def _failures(db: Database, run: AuditRun) -> Iterator[Cells]:
    for one in results.iter_items(db, run.id, only_failed=True):
        if isinstance(one, ItemFailure):
            yield {"id": one.item_id, "idx": one.index, "kind": one.kind, "message": one.message}


def _score(one: MetricScore) -> Cells:
    return {
        **_called_id(cells_of(one)),
        "curve": json.dumps(list(one.curve)) if one.curve else None,
    }


def _write_table(table: Table, path: Path) -> None:
    rows = iter(table.rows)
    first = next(rows, None)
    if first is None:
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table.columns)
        writer.writerow({name: _cell(name) for name in table.columns})
        for row in chain([first], rows):
            writer.writerow({name: _cell(cell) for name, cell in row.items()})


def _cell(cell: Any) -> Any:
    if isinstance(cell, str):
        return spreadsheet_safe(encodable(cell).replace("\0", "\N{REPLACEMENT CHARACTER}"))
    return cell
