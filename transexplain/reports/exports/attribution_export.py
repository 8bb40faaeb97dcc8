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

from transexplain.reports.exports.export_run import (
    Redaction,
    check_explained,
    check_over,
    replacing,
)
from transexplain.reports.phrasing import encodable
from transexplain.store import blocks
from transexplain.store.blocks import AttributionColumns, Block
from transexplain.store.database import Database
from transexplain.store.schema import LEDGER
from transexplain.types.items import ItemOutcome, PatchGrid
from transexplain.types.plans import AuditPlan, AuditRun
from transexplain.types.tokens import Tokens
from transexplain.version import __version__

_LEDGER = "ledger_"


def table_of(
    block: Block, schema: pa.Schema, kept: Sequence[str], *, redacted: bool = False
) -> pa.Table:
    """Every attribution of a block with what is known of its item, in columns of `schema`.

    Redacted, a row has no content of the data: its id is the number of its row, its tokens are
    numbered, and text, offsets, source and metadata are None. `kept` are columns of metadata.
    """
    of = pa.array(block.explained.of)
    items = {**_items(block), **_position_columns(block)}
    metadata = {
        name: [
            None if redacted else _encodable(outcome.meta.get(name)) for outcome in block.outcomes
        ]
        for name in kept
        if name not in items and name in schema.names
    }
    items = {**metadata, **(_columns_without_content(items, len(block)) if redacted else items)}
    columns: dict[str, pa.Array] = {
        name: pa.array(values, type=schema.field(name).type).take(of)
        for name, values in items.items()
    }
    columns |= _attributions(block, schema)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _items(block: Block) -> dict[str, Sequence[Any]]:
    outcomes = block.outcomes
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


def _position_columns(block: Block) -> dict[str, Sequence[Any]]:
    pictures = [feature for feature in block.features if isinstance(feature, PatchGrid)]
    if pictures:
        return _pictures(block.outcomes, block.features)
    tokens = [feature for feature in block.features if isinstance(feature, Tokens)]
    return {
        "text": [_encodable(text) for text in block.texts],
        "second_at": block.seconds,
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


def _attributions(block: Block, schema: pa.Schema) -> dict[str, pa.Array]:
    explained = block.explained
    stored = explained.columns
    entries: dict[str, Any] = {
        **{name: stored[name] for name in ("target", "rank", "logit", "unit", "method", "at")},
        "class": stored["class_name"],
        "notes": [[encodable(note) for note in notes] for notes in explained.notes],
    }
    if "special_attributions" in schema.names:
        entries["special_attributions"] = stored["prefix_relevance"].tuples()
    columns = {
        name: pa.array(values, type=schema.field(name).type) for name, values in entries.items()
    }
    missing = ~explained.ledgered
    for name, values in explained.ledger_entries().items():
        columns[f"{_LEDGER}{name}"] = pa.array(values, mask=missing)
    columns["attributions"] = _relevance(explained, block.features)
    return columns


def _relevance(explained: AttributionColumns, features: Sequence[Tokens | PatchGrid]) -> pa.Array:
    """A list for each text, a list of rows for each picture."""
    flat, counts = explained.columns["relevance"]
    offsets, values = np.append(0, np.cumsum(counts)), pa.array(flat)
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


def metadata_of(plan: AuditPlan) -> tuple[str, ...]:
    """Columns of metadata that the statistics were split or grouped by: an import needs them.

    One that is called as a column of the export is in `meta` alone.
    """
    names = (*plan.matching.columns, plan.slice)
    return tuple(dict.fromkeys(name for name in names if name))


def write_jsonl(
    db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None
) -> None:
    """Write every attribution as one line of ASCII.

    Raises ConfigurationError: the run is an evaluation or not over, or `path` cannot be written.
    """
    check_explained(run, "JSON lines")
    check_over(run, "JSON lines")
    schema = schema_of(run)
    if (place := schema.get_field_index("special_attributions")) >= 0:  # lines have every digit
        schema = schema.set(place, pa.field("special_attributions", pa.list_(pa.float64())))
    columns = [*dict.fromkeys((*metadata_of(run.plan), *schema.names))]
    with replacing(path) as partial, partial.open("w", encoding="ascii") as file:
        for table in _tables(db, run, schema, redacted=redaction is not None):
            for batch in table.select(columns).to_batches(max_chunksize=GROUP_ROWS):
                for row in batch.to_pylist():
                    content = {**row, "meta": json.loads(row["meta"])}
                    file.write(f"{json.dumps(content, allow_nan=False)}\n")


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
    """The rows in tables of some thousand: straight from blocks."""
    kept = metadata_of(run.plan)

    def table(block: Block) -> pa.Table:
        return table_of(block, schema, kept, redacted=redacted)

    yield from blocks.read(db, run.id, table)
