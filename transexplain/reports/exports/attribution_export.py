"""Exports a run's attributions as rows of JSON lines or Parquet.

`attributions`, `idx` and `predictions` have the names that Thermostat gives them (Feldhus et al.
2021); `transexplain import` reads the rows of texts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.errors import ConfigurationError
from transexplain.reports.exports.export_run import (
    Redaction,
    check_explained,
    check_over,
    replacing,
)
from transexplain.reports.phrasing import encodable
from transexplain.store import parts, results
from transexplain.store.database import Database
from transexplain.store.part_fields import AttributionColumns
from transexplain.store.part_reading import Part
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Ledger, PatchGrid
from transexplain.types.plans import AuditPlan, AuditRun
from transexplain.types.tokens import Token, Tokens
from transexplain.version import __version__

_LEDGER = "ledger_"


def table_of(
    part: Part, schema: pa.Schema, kept: Sequence[str], *, redacted: bool = False
) -> pa.Table:
    """Every attribution of a part with what is known of its item, in columns of `schema`.

    The same as `attribution_export.iter_rows` gives row by row; `kept` are the columns of metadata
    that it adds.
    """
    of = pa.array(part.explained.of)
    items = {**_items(part), **_position_columns(part)}
    metadata = {
        name: [
            None if redacted else _encodable(outcome.meta.get(name)) for outcome in part.outcomes
        ]
        for name in kept
        if name not in items and name in schema.names
    }
    items = {**metadata, **(_columns_without_content(items, len(part)) if redacted else items)}
    columns: dict[str, pa.Array] = {
        name: pa.array(values, type=schema.field(name).type).take(of)
        for name, values in items.items()
    }
    columns |= _attributions(part, schema)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _items(part: Part) -> dict[str, Sequence[Any]]:
    outcomes = part.outcomes
    return {
        "id": [encodable(outcome.item_id) for outcome in outcomes],
        "idx": [outcome.index for outcome in outcomes],
        "prediction": [outcome.predicted for outcome in outcomes],
        "label": [_encodable(outcome.label) for outcome in outcomes],
        "raw_label": [_encodable(outcome.raw_label) for outcome in outcomes],
        "predictions": [outcome.logits for outcome in outcomes],
        "truncated": [outcome.truncated for outcome in outcomes],
        "meta": [json.dumps(dict(outcome.meta)) for outcome in outcomes],
    }


def _position_columns(part: Part) -> dict[str, Sequence[Any]]:
    pictures = [feature for feature in part.features if isinstance(feature, PatchGrid)]
    if pictures:
        return _pictures(part.outcomes, part.features)
    tokens = [feature for feature in part.features if isinstance(feature, Tokens)]
    return {
        "text": [_encodable(text) for text in part.texts],
        "second_at": part.seconds,
        "tokens": [[encodable(piece) for piece in token.texts] for token in tokens],
        "offsets": [np.stack([token.starts, token.ends], axis=1).tolist() for token in tokens],
        "special": [token.special.tolist() for token in tokens],
    }


def _pictures(
    outcomes: Sequence[ItemOutcome], features: Sequence[Tokens | PatchGrid]
) -> dict[str, Sequence[Any]]:
    grids = [feature if isinstance(feature, PatchGrid) else None for feature in features]
    names = ("rows", "cols", "height", "width", "box")
    return {
        "source": [_encodable(outcome.source) for outcome in outcomes],
        **{name: [getattr(grid, name, None) for grid in grids] for name in names},
    }


def _columns_without_content(
    items: Mapping[str, Sequence[Any]], count: int
) -> dict[str, Sequence[Any]]:
    """The columns without content; without offsets, too, which reveal the lengths of words."""
    nothing = [None] * count
    columns = dict(items)
    names = ("text", "second_at", "offsets", "source")
    columns |= {name: nothing for name in names if name in columns}
    if "tokens" in columns:
        columns["tokens"] = [[str(n) for n in range(len(tokens))] for tokens in columns["tokens"]]
    return {**columns, "id": [str(row) for row in columns["idx"]], "meta": ["{}"] * count}


def _attributions(part: Part, schema: pa.Schema) -> dict[str, pa.Array]:
    explained = part.explained
    entries: dict[str, Any] = {
        "target": explained.words("target"),
        "rank": explained.ranks,
        "class": explained.words("class_name"),
        "logit": explained.logit,
        "unit": explained.words("unit"),
        "method": explained.words("method"),
        "at": explained.words("at"),
        "notes": [[encodable(note) for note in notes] for notes in explained.notes()],
    }
    if "special_attributions" in schema.names:
        entries["special_attributions"] = explained.prefixes()
    columns = {
        name: pa.array(values, type=schema.field(name).type) for name, values in entries.items()
    }
    missing = ~explained.ledgered
    for name, values in explained.ledger_entries().items():
        columns[f"{_LEDGER}{name}"] = pa.array(values, mask=missing)
    columns["attributions"] = _relevance(explained, part.features)
    return columns


def _relevance(explained: AttributionColumns, features: Sequence[Tokens | PatchGrid]) -> pa.Array:
    """A list for each text, a list of rows for each picture."""
    flat, offsets = explained.joined_relevance()
    values = pa.array(flat)
    grids = [features[item] for item in explained.of.tolist()]
    if not any(isinstance(grid, PatchGrid) for grid in grids):
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
    sides = [(grid.rows, grid.cols) if isinstance(grid, PatchGrid) else (0, 1) for grid in grids]
    inner = np.cumsum([0, *(cols for rows, cols in sides for _ in range(rows))])
    outer = np.cumsum([0, *(rows for rows, _ in sides)])
    rows_of = pa.ListArray.from_arrays(pa.array(inner.astype(np.int32)), values)
    return pa.ListArray.from_arrays(pa.array(outer.astype(np.int32)), rows_of)


def _encodable(text: str | None) -> str | None:
    return None if text is None else encodable(text)


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
    for attribution in results.iter_attributions(db, run.id):
        while item is None or item.item_id != attribution.item_id:
            item = next(items, None)
            if item is None:
                raise ConfigurationError(
                    f"run {run.id} was changed while it was exported; export it again"
                )
        if isinstance(item, ItemOutcome):
            metadata = {name: _clean(item.meta.get(name)) for name in kept}
            row = _row(item, attribution)
            yield (
                {**dict.fromkeys(metadata), **_without_content(row)}
                if redacted
                else {**metadata, **row}
            )


def metadata_of(plan: AuditPlan) -> tuple[str, ...]:
    """Columns of metadata that the statistics were split or grouped by: an import needs them.

    One that is called as a column of the export is in `meta` alone.
    """
    names = (*plan.matching.columns, plan.slice)
    return tuple(dict.fromkeys(name for name in names if name))


def _without_content(row: Row) -> Row:
    """The row without content; without offsets, too, which reveal the lengths of words."""
    redacted = {**row, "id": str(row["idx"]), "meta": "{}"}
    redacted |= {name: None for name in ("text", "second_at", "offsets", "source") if name in row}
    if "tokens" in row:
        redacted["tokens"] = [str(place) for place in range(len(row["tokens"]))]
    return redacted


def _clean(text: str | None) -> str | None:
    return None if text is None else encodable(text)


def _row(item: ItemOutcome, attribution: Attribution) -> Row:
    return {
        "id": encodable(item.item_id),
        "idx": item.index,
        **_positions(item, attribution),
        "target": attribution.target,
        "rank": attribution.rank,
        "class": attribution.class_name,
        "logit": attribution.logit,
        "prediction": item.predicted,
        "label": _clean(item.label),
        "raw_label": _clean(item.raw_label),
        "predictions": list(item.logits),
        "unit": attribution.unit,
        "method": attribution.method,
        "at": attribution.at,
        "truncated": item.truncated,
        **_ledger(attribution.ledger),
        "notes": [encodable(note) for note in attribution.notes],
        "meta": json.dumps(dict(item.meta)),
    }


def _positions(item: ItemOutcome, attribution: Attribution) -> Row:
    if isinstance(attribution.features, PatchGrid):
        return _picture(item, attribution, attribution.features)
    return _text(attribution, attribution.features)


def _text(attribution: Attribution, tokens: Sequence[Token]) -> Row:
    return {
        "text": _clean(attribution.text),
        "second_at": attribution.second_at,
        "tokens": [encodable(token.text) for token in tokens],
        "offsets": [[token.start, token.end] for token in tokens],
        "special": [token.special for token in tokens],
        "attributions": attribution.relevance.tolist(),
    }


def _picture(item: ItemOutcome, attribution: Attribution, grid: PatchGrid) -> Row:
    return {
        "source": _clean(item.source),
        "rows": grid.rows,
        "cols": grid.cols,
        "height": grid.height,
        "width": grid.width,
        "box": list(grid.box),
        "attributions": attribution.relevance.tolist(),
        "special_attributions": list(attribution.prefix_relevance),
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
    metadata = [(name, pa.string()) for name in metadata_of(run.plan) if name not in known]
    return pa.schema([*columns, *metadata], metadata=about)


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
