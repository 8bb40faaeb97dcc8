"""Exports a run's attributions as rows of JSON lines or Parquet.

`attributions`, `idx` and `predictions` have the names that Thermostat gives them (Feldhus et al.
2021); `transexplain import` reads the rows of texts.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.errors import ConfigurationError
from transexplain.reports.exports.export_run import (
    Redaction,
    check_explained,
    check_over,
    replacing,
)
from transexplain.reports.exports.part_tables import table_of
from transexplain.reports.phrasing import encodable
from transexplain.store import parts, results
from transexplain.store.database import Database
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Ledger, PatchGrid
from transexplain.types.plans import AuditPlan, AuditRun
from transexplain.types.tokens import Token
from transexplain.version import __version__

Row = dict[str, Any]
LEDGER = ("inputs", "special", "embeddings", "biases", "rules", "total", "gap", "magnitude")


def iter_rows(db: Database, run: AuditRun, *, redacted: bool = False) -> Iterator[Row]:
    """Every attribution with what is known of its item; a page of rows is held at a time.

    Redacted, a row has no content of the data: its id is the number of its row, its tokens
    are numbered, and text, offsets, source and metadata are None. Raises
    ConfigurationError where the run was changed meanwhile.
    """
    items, kept = results.iter_items(db, run.id), metadata_of(run.plan)
    item: ItemOutcome | ItemFailure | None = None
    for one in results.iter_attributions(db, run.id):
        while item is None or item.item_id != one.item_id:
            item = next(items, None)
            if item is None:
                raise ConfigurationError(
                    f"run {run.id} was changed while it was exported; export it again"
                )
        if isinstance(item, ItemOutcome):
            own = {name: _clean(item.meta.get(name)) for name in kept}
            row = _row(item, one)
            yield {**dict.fromkeys(own), **_without_content(row)} if redacted else {**own, **row}


def metadata_of(plan: AuditPlan) -> tuple[str, ...]:
    """Columns of metadata that the statistics were split or grouped by: an import needs them.

    One that is called as a column of the export is in `meta` alone.
    """
    names = (*plan.matching.columns, plan.slice)
    return tuple(dict.fromkeys(name for name in names if name))


def _without_content(row: Row) -> Row:
    """The row without content; without offsets, too, which reveal the lengths of words."""
    found = {**row, "id": str(row["idx"]), "meta": "{}"}
    found |= {name: None for name in ("text", "second_at", "offsets", "source") if name in row}
    if "tokens" in row:
        found["tokens"] = [str(place) for place in range(len(row["tokens"]))]
    return found


def _clean(text: str | None) -> str | None:
    return None if text is None else encodable(text)


def _row(item: ItemOutcome, one: Attribution) -> Row:
    return {
        "id": encodable(item.item_id),
        "idx": item.index,
        **_positions(item, one),
        "target": one.target,
        "rank": one.rank,
        "class": one.class_name,
        "logit": one.logit,
        "prediction": item.predicted,
        "label": _clean(item.label),
        "raw_label": _clean(item.raw_label),
        "predictions": list(item.logits),
        "unit": one.unit,
        "method": one.method,
        "at": one.at,
        "truncated": item.truncated,
        **_ledger(one.ledger),
        "notes": [encodable(note) for note in one.notes],
        "meta": json.dumps(dict(item.meta)),
    }


def _positions(item: ItemOutcome, one: Attribution) -> Row:
    if isinstance(one.features, PatchGrid):
        return _picture(item, one, one.features)
    return _text(one, one.features)


def _text(one: Attribution, tokens: Sequence[Token]) -> Row:
    return {
        "text": _clean(one.text),
        "second_at": one.second_at,
        "tokens": [encodable(token.text) for token in tokens],
        "offsets": [[token.start, token.end] for token in tokens],
        "special": [token.special for token in tokens],
        "attributions": one.relevance.tolist(),
    }


def _picture(item: ItemOutcome, one: Attribution, grid: PatchGrid) -> Row:
    return {
        "source": _clean(item.source),
        "rows": grid.rows,
        "cols": grid.cols,
        "height": grid.height,
        "width": grid.width,
        "box": list(grid.box),
        "attributions": one.relevance.tolist(),
        "special_attributions": list(one.prefix_relevance),
    }


def _ledger(ledger: Ledger | None) -> Row:
    return {f"ledger_{name}": getattr(ledger, name) if ledger else None for name in LEDGER}


def write_jsonl(
    db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None
) -> None:
    """Write every attribution as one line of ASCII.

    Raises ConfigurationError: the run is an evaluation or not over, or `path` cannot be written.
    """
    check_explained(run, "JSON lines")
    check_over(run, "JSON lines")
    with replacing(path) as partial, partial.open("w", encoding="ascii") as file:
        for row in iter_rows(db, run, redacted=redaction is not None):
            file.write(json.dumps({**row, "meta": json.loads(row["meta"])}, allow_nan=False))
            file.write("\n")


GROUP_ROWS = 1024  #: most rows of a row group
VERSION = 1  #: of the columns; rises when one changes its meaning or goes

_NUMBERS = pa.list_(pa.float32())
_TEXT = (
    ("text", pa.string()),
    ("second_at", pa.int32()),
    ("tokens", pa.list_(pa.string())),
    ("offsets", pa.list_(pa.list_(pa.int32()))),
    ("special", pa.list_(pa.bool_())),
    ("attributions", _NUMBERS),
)
_PICTURE = (
    ("source", pa.string()),
    ("rows", pa.int32()),
    ("cols", pa.int32()),
    ("height", pa.int32()),
    ("width", pa.int32()),
    ("box", pa.list_(pa.float64())),
    ("attributions", pa.list_(_NUMBERS)),
    ("special_attributions", _NUMBERS),
)
_REST = (
    ("target", pa.string()),
    ("rank", pa.int32()),
    ("class", pa.string()),
    ("logit", pa.float64()),
    ("prediction", pa.string()),
    ("label", pa.string()),
    ("raw_label", pa.string()),
    ("predictions", pa.list_(pa.float64())),
    ("unit", pa.string()),
    ("method", pa.string()),
    ("at", pa.string()),
    ("truncated", pa.bool_()),
    *((f"ledger_{name}", pa.float64()) for name in LEDGER),
    ("notes", pa.list_(pa.string())),
    ("meta", pa.string()),
)


def schema_of(run: AuditRun) -> pa.Schema:
    """The columns, and in the file's metadata which run they are of."""
    middle = _PICTURE if run.plan.model.modality == "image" else _TEXT
    about = {
        "transexplain.columns": str(VERSION),
        "transexplain.version": __version__,
        "transexplain.run": run.id,
        "transexplain.plan_digest": run.plan.digest,
        "transexplain.model_digest": run.plan.model.digest,
        "transexplain.dataset": run.plan.dataset.fingerprint,
        "transexplain.classes": json.dumps(list(run.plan.model.classes)),
    }
    columns = [("id", pa.string()), ("idx", pa.int32()), *middle, *_REST]
    known = {name for name, _ in columns}
    own = [(name, pa.string()) for name in metadata_of(run.plan) if name not in known]
    return pa.schema([*columns, *own], metadata=about)


def write_parquet(
    db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None
) -> None:
    """Write every attribution, a row group at a time.

    Raises ConfigurationError: the run is an evaluation or not over, or `path` cannot be written.
    """
    check_explained(run, "Parquet")
    check_over(run, "Parquet")
    schema = schema_of(run)
    with (
        replacing(path) as partial,
        pq.ParquetWriter(partial, schema, compression="zstd") as writer,
    ):
        for table in _tables(db, run, schema, redacted=redaction is not None):
            writer.write_table(table, row_group_size=GROUP_ROWS)


def _tables(
    db: Database, run: AuditRun, schema: pa.Schema, *, redacted: bool
) -> Iterator[pa.Table]:
    """The rows in tables of some thousand: straight from parts."""
    kept = metadata_of(run.plan)
    yield from parts.read(db, run.id, lambda part: table_of(part, schema, kept, redacted=redacted))
