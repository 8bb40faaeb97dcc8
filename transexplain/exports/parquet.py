"""Attributions as Parquet that pyarrow, pandas, DuckDB and Hugging Face's `datasets` open."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import transexplain
from transexplain.exports.attributions import LEDGER, Row, iter_rows, metadata_of
from transexplain.exports.files import replacing
from transexplain.exports.kinds import Redaction, check_explained, check_over
from transexplain.plans import AuditRun
from transexplain.store.database import Database

GROUP_ROWS = 1024  #: most rows of a row group
GROUP_POSITIONS = 512 * 1024  #: a row group ends early when its positions reach this
VERSION = 1  #: of the columns; rises when one changes its meaning or goes

_NUMBERS = pa.list_(pa.float32())
_TEXT = (
    ("text", pa.string()),
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
        "transexplain.version": transexplain.__version__,
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


def write(db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None) -> None:
    """Write every attribution, a row group at a time.

    Raises ConfigurationError: the run is an evaluation or not over, or `path` cannot be written.
    """
    check_explained(run, "Parquet")
    check_over(run, "Parquet")
    schema = schema_of(run)
    rows = iter_rows(db, run, redacted=redaction is not None)
    with (
        replacing(path) as partial,
        pq.ParquetWriter(partial, schema, compression="zstd") as writer,
    ):
        for group in _groups(rows):
            table = pa.Table.from_pylist(group, schema=schema)
            writer.write_table(table, row_group_size=len(group))


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    positions = 0
    for row in rows:
        group.append(row)
        positions += len(row["tokens"]) if "tokens" in row else row["rows"] * row["cols"]
        if len(group) == GROUP_ROWS or positions >= GROUP_POSITIONS:
            yield group
            group, positions = [], 0
    if group:
        yield group
