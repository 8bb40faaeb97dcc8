"""Which column holds what, and how one cell is read."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transexplain.data.source_records import Table, printable
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.plans import DatasetSpec

_TEXT_DEFAULTS = ("text", "sentence")
_LABEL_DEFAULT = "label"


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of one file that the dataset reads."""

    content: str  #: text, or picture path
    label: str | None
    id: str | None
    meta: tuple[str, ...]
    evidence: str | None = None
    spans: str | None = None
    cluster: str | None = None
    template: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Every column once."""
        named = (self.content, self.label, self.id, self.evidence, self.spans, *self.meta)
        named += (self.cluster, self.template)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def resolve(spec: DatasetSpec, table: Table, path: Path) -> Columns:
    """The spec's columns, or their defaults, in the table of the file `path`.

    Raises DataSourceError naming the columns that exist where one is missing or there twice.
    """
    label = spec.label
    if label is None and (_LABEL_DEFAULT in table.columns or table.sparse):
        label = _LABEL_DEFAULT
    columns = Columns(
        content=spec.image or spec.text or _default_text(table.columns, path),
        label=label,
        id=spec.id,
        meta=tuple(spec.meta),
        evidence=spec.evidence,
        spans=spec.spans,
        cluster=spec.cluster,
        template=spec.template,
    )
    for name in columns.wanted:
        if name not in table.columns and not (name == label and spec.label is None):
            raise DataSourceError(f"{path} has no column {name!r}; {_existing(table.columns)}")
        if table.columns.count(name) > 1:
            raise DataSourceError(f"{path} has the column {name!r} more than once; rename one")
    return columns


def _default_text(existing: Sequence[str], path: Path) -> str:
    for name in _TEXT_DEFAULTS:
        if name in existing:
            return name
    tried = " or ".join(map(repr, _TEXT_DEFAULTS))
    raise DataSourceError(
        f"{path} has no column {tried}; name the column of the text (text: ...) or of the picture "
        f"path (image: ...); {_existing(existing)}"
    )


def _existing(columns: Sequence[str]) -> str:
    return f"it has {', '.join(map(repr, columns))}"


def text_of(value: Any, column: str) -> str:
    """The cell as a text that is worth explaining.

    Raises ItemError null, empty-text, invalid-utf8, or malformed-row for what is not a text.
    """
    if value is None:
        raise ItemError("null", f"column {column!r} is null")
    if not isinstance(value, str | bytes):
        raise ItemError(
            "malformed-row", f"column {column!r} holds a {type(value).__name__}, not a text"
        )
    text = _utf8(value, column)
    if not text.strip():
        raise ItemError("empty-text", f"column {column!r} is empty or blank")
    return text


def spelled(value: Any, column: str) -> str | None:
    """The cell as a label, id or meta value; None where it is null, NaN or empty.

    Numbers are spelled as JSON does, whole floats without their point (a table program turns
    class ids into floats as soon as one is missing).

    Raises ItemError invalid-utf8.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str | bytes):
        return _utf8(value, column) or None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _utf8(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str), column)


def _utf8(value: str | bytes, column: str) -> str:
    try:
        if isinstance(value, bytes):
            return value.decode("utf-8")
        value.encode("utf-8")
    except UnicodeError as error:
        at = getattr(error, "start", 0)
        raise ItemError(
            "invalid-utf8",
            f"column {column!r} is not UTF-8 at position {at}; save the file as UTF-8",
        ) from error
    return value


def meta_json(values: dict[str, str | None]) -> str:
    """Meta values as a JSON object, those that are null left out."""
    kept = {printable(name): value for name, value in values.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False)
