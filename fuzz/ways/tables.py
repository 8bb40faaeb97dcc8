"""Data sets in CSV, TSV and JSON lines, plain or gzipped.

The first line says which file and how it is read, as JSON: `{"suffix": "csv", "quoting": "none"}`.
"""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz.guard import promise
from transexplain.data.source_files import Record
from transexplain.data.table_source import FileSource
from transexplain.types.plans import DatasetSpec

_SUFFIXES = ("csv", "tsv", "jsonl", "csv.gz", "jsonl.gz")
_QUOTING = ("auto", "none", "rfc4180")
_COLUMNS = ("text", "label", "id", "evidence", "spans", "meta")


def target(data: bytes) -> None:
    """Every row is a record or says why not; CSV without faults has the rows that Python sees."""
    head, _, body = data.partition(b"\n")
    options = options_of(head)
    suffix = options.get("suffix")
    path = Path(f"table.{suffix if suffix in _SUFFIXES else 'csv'}")
    path.write_bytes(body)
    spec = spec_of(str(path), options)
    records = list(FileSource(spec, str(path)).records())
    check_records(records)
    if path.suffix == ".csv" and spec.quoting != "none" and not any(r.error_kind for r in records):
        wanted = _rows_of_csv(body)
        promise(wanted is None or len(records) == wanted, f"{len(records)} rows, csv has {wanted}")


def options_of(head: bytes) -> dict[str, Any]:
    """The object in an input's first line; an empty one where it holds none."""
    try:
        found = json.loads(head)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def spec_of(source: str, options: dict[str, Any]) -> DatasetSpec:
    """How a file is read: the columns that `options` names, where it names them by texts."""
    named = {name: options[name] for name in _COLUMNS if isinstance(options.get(name), str)}
    meta = (named.pop("meta"),) if "meta" in named else ()
    quoting = options.get("quoting")
    return DatasetSpec(
        source=source, meta=meta, quoting=quoting if quoting in _QUOTING else "auto", **named
    )


def check_records(records: Sequence[Record]) -> None:
    """Raise BrokenPromiseError unless a snapshot can hold them."""
    for place, record in enumerate(records):
        promise(record.index == place, "the rows are not numbered in order")
        promise((record.content is None) == (record.error_kind is not None), "neither nor")
        promise(record.error is None or 0 < len(record.error) <= 3_000, "an endless message")
        marked = (record.evidence, record.annotations)
        for cell in (record.id, record.content, record.label, record.meta, record.error, *marked):
            promise(cell is None or _is_utf8(cell), f"not UTF-8: {cell!r:.80}")
        promise(isinstance(json.loads(record.meta), dict), "the metadata are no object")


def _is_utf8(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rows_of_csv(body: bytes) -> int | None:
    """Rows below the header, blank ones at the end left out; None where csv itself gives up."""
    try:
        text = body.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        rows = list(csv.reader(io.StringIO(text, newline="\n"), strict=True))
    except (csv.Error, UnicodeDecodeError):
        return None
    while rows and not "".join(rows[-1]).strip(" \r\n"):
        rows.pop()
    return len(rows) - 1
