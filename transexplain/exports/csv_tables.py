"""A run as a folder of CSV tables (RFC 4180, UTF-8), those only that have rows."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from transexplain.evaluations import MetricScore
from transexplain.exports.columns import cells_of, columns_of
from transexplain.exports.files import new_folder
from transexplain.exports.kinds import Redaction, check_over, summary_of
from transexplain.exports.tables import Cells, Table, tables_of
from transexplain.plans import AuditRun
from transexplain.reports.escaping import encodable, spreadsheet_safe
from transexplain.reports.tallies import merged
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types import ItemFailure, ItemOutcome, Mention


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
