"""Writes items and groups from memory to files that a specification can name.

A file is named by its content, so the same data are one file and one snapshot.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from orchestrator.spec.groups_section import GroupsSection
from transexplain import remote_paths
from transexplain.data.image_files import load_image
from transexplain.data.snapshot import snapshot_folder
from transexplain.errors import (
    ConfigurationError,
    DataSourceError,
    ItemError,
    SpecError,
    TransExplainError,
)
from transexplain.parsing import DEEPEST
from transexplain.remote_paths import AnyPath
from transexplain.reports.heatmap import rgb

#: folder of what was in memory, beside the snapshots that are made of it
_FOLDER = "from-memory"
_DATA = (
    "a path, a DataFrame, a list of texts, of pictures, of (text, label) or (picture, label) pairs "
    "or of dictionaries, or the mapping of the section data"
)
_MOST = 4_000_000  #: values of one item or cell, in lists and mappings
#: columns of what pictures are listed in
_PICTURE, _LABEL = "picture", "label"


def groups_section(groups: Any, snapshot_dir: Path) -> Any:
    """The section groups; groups that are given as a mapping are written to a lexicon file.

    Args:
        groups: a lexicon, or several; group -> names; or the mapping of the section, whose lexicon
            may be such a mapping.
        snapshot_dir: below which files are written.

    Raises SpecError where it is none of these; ConfigurationError where a file cannot be written.
    """
    if isinstance(groups, str):
        return groups
    if isinstance(groups, Path):
        return str(groups)
    if isinstance(groups, list | tuple):
        return {"lexicon": list(groups)}
    if not isinstance(groups, Mapping) or not groups:
        raise SpecError(
            f"groups cannot be {groups!r:.80}; it is a lexicon such as 'builtin:gender', a "
            "mapping of groups to names, or the mapping of the section groups"
        )
    keys, known = {str(key) for key in groups}, set(GroupsSection.model_fields)
    if not keys <= known and not keys & {"lexicon", "column"}:
        return {"lexicon": _lexicon(groups, snapshot_dir)}
    found = dict(groups)
    if isinstance(found.get("lexicon"), Mapping):
        found["lexicon"] = _lexicon(found["lexicon"], snapshot_dir)
    return found


def _lexicon(groups: Mapping[Any, Any], snapshot_dir: Path) -> str:
    lists: dict[str, Any] = {}
    for name, terms in groups.items():
        if isinstance(terms, str) or not isinstance(terms, Iterable):
            raise SpecError(
                f"group {name!r:.80} cannot be {terms!r:.80}; it is a list of names. Keys of the "
                f"section groups are {', '.join(GroupsSection.model_fields)}"
            )
        # the order of a set differs between processes
        lists[str(name)] = terms if isinstance(terms, Mapping) else list(terms)
        if isinstance(terms, AbstractSet):
            lists[str(name)] = sorted(map(str, terms))
    return _kept(_json(lists, "groups"), "json", snapshot_dir)


def data_section(data: Any, snapshot_dir: Path) -> Any:
    """The section data; items in memory are written to a file.

    Args:
        data: a path; a DataFrame, or what has `to_pandas`; an iterable of texts, of pictures (PIL
            images, arrays (H, W, 3) or Path objects), of (text or picture, label) pairs or of
            dictionaries; or the mapping of the section, with such a `source`.
        snapshot_dir: below which files are written.

    Raises DataSourceError where it is none of these; ConfigurationError where a file cannot be
    written.
    """
    if isinstance(data, str):
        return {"source": data}
    if isinstance(data, Path):
        return {"source": str(data)}
    if isinstance(data, Mapping):
        if "source" not in data:
            raise SpecError("data is a mapping without `source`, which names the items")
        if data.get("image") and not isinstance(data["source"], str | Path):
            raise DataSourceError(
                "paths of pictures stand in a file beside them: write the table to a csv file in "
                "their folder and give its path, or give imagefolder:DIR"
            )
        return {**data, **data_section(data["source"], snapshot_dir)}
    return _items(data, snapshot_dir)


def _items(data: Any, snapshot_dir: Path) -> dict[str, Any]:
    # `datasets` keeps the names of classes beside its columns
    schema = getattr(getattr(data, "features", data), "arrow_schema", getattr(data, "schema", None))
    if hasattr(data, "to_pandas"):  # datasets, polars, Arrow
        with _about("data.to_pandas()"):
            data = data.to_pandas()
    if hasattr(data, "columns") and hasattr(data, "to_parquet"):
        content = _parquet(data, getattr(schema, "metadata", None))
        return {"source": _kept(content, "parquet", snapshot_dir)}
    if _is_picture(data):
        raise DataSourceError("data is one picture; give a list of pictures, or explain it")
    if not isinstance(data, Iterable):
        raise DataSourceError(f"data cannot be {_shown(data)}; give {_DATA}")
    given = _numbered(data)
    first = next(given, None)
    if first is None:
        raise DataSourceError("data is an empty list; give at least one item")
    given = chain([first], given)
    if _is_picture(_content(first[1])):
        folder = _folder(snapshot_dir)
        lines = _lines(given, lambda one, place: _as_listed(one, place, folder))
        return {"source": _kept(lines, "jsonl", snapshot_dir), "image": _PICTURE}
    return {"source": _kept(_lines(given, _as_row), "jsonl", snapshot_dir)}


def _numbered(data: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The items with their numbers; what their iterator raises names the item that it is at."""
    place, end = 0, object()
    with _about("data"):
        items = iter(data)
    while True:
        with _about(f"item {place} of data"):
            item = next(items, end)
        if item is end:
            return
        yield place, item
        place += 1


def _lines(given: Iterable[tuple[int, Any]], row_of: Callable[[Any, int], Any]) -> str:
    parts = []
    for place, one in given:
        with _about(f"item {place} of data"):
            parts.append(_json(row_of(one, place), f"item {place} of data") + "\n")
    return "".join(parts)


@contextmanager
def _about(what: str) -> Iterator[None]:
    """A block that runs a caller's own code, whose errors name what it was about."""
    try:
        yield
    except TransExplainError:
        raise
    except Exception as error:
        raise DataSourceError(f"{what}: {type(error).__name__}: {error}") from error


def _shown(value: Any) -> str:
    """The beginning of a value and its type, for a message."""
    try:
        return f"{value!r:.80} ({type(value).__name__})"
    except Exception:  # noqa: BLE001 - of somebody's own class, or nested too deeply
        return f"a {type(value).__name__}"


def _content(one: Any) -> Any:
    """An item without its label."""
    return one[0] if isinstance(one, tuple | list) and len(one) == 2 else one


def _is_picture(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim in (2, 3) and value.dtype.kind in "buif"
    return isinstance(value, Image.Image | Path)


def _as_listed(one: Any, place: int, folder: Path) -> dict[str, Any]:
    """A row with the name of a picture's file, which lies in `folder` or is put there."""
    picture = _content(one)
    if not _is_picture(picture):
        raise DataSourceError(
            f"item {place} of data cannot be {_shown(one)}: the first item is "
            "a picture, so all are (a path as a Path object), with or without a label each"
        )
    try:
        shown = load_image(picture) if isinstance(picture, Path) else _drawn(picture)
    except (ItemError, ConfigurationError) as error:
        raise DataSourceError(f"item {place} of data: {error}") from None
    buffer = io.BytesIO()
    shown.save(buffer, "PNG")
    row = {_PICTURE: Path(_named(buffer.getvalue(), "png", folder)).name}
    return row if picture is one else {**row, _LABEL: one[1]}


def _drawn(picture: Any) -> Image.Image:
    """A picture in memory as RGB."""
    return Image.fromarray(np.rint(rgb(picture)).astype(np.uint8))


def _as_row(one: Any, place: int) -> dict[str, Any]:
    if one is None or isinstance(one, str):
        return {"text": one}
    if isinstance(one, Mapping):
        return {str(key): value for key, value in one.items()}
    if isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str):
        return {"text": one[0], "label": one[1]}
    raise DataSourceError(
        f"item {place} of data cannot be {_shown(one)}; a list holds texts, "
        "pictures, (text, label) or (picture, label) pairs, or dictionaries"
    )


def _parquet(frame: Any, metadata: Mapping[bytes, bytes] | None) -> bytes:
    """The columns of a DataFrame as the bytes of a Parquet file, with metadata of its schema."""
    named = frame.rename(columns=str)
    twice = named.columns[named.columns.duplicated()]
    if len(twice):
        raise DataSourceError(f"the DataFrame has two columns {twice[0]!r}: rename one of them")
    named = named.astype({one: object for one in named if str(named[one].dtype) == "category"})
    for name, column in named.items():
        for place, value in enumerate(column if column.dtype == object else ()):
            _refuse_endless(value, f"row {place} of column {name!r}")
    try:
        table = pa.Table.from_pandas(named, preserve_index=False).replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
    except Exception as error:
        reason = _culprit(named) + "; ".join(str(part) for part in error.args)
        raise DataSourceError(
            f"the DataFrame cannot be written as a table: {reason}. Give the columns that the "
            "audit needs, each of one type"
        ) from error
    return bytes(sink.getvalue())


def _culprit(frame: Any) -> str:
    """The first cell that no column can hold, for a message; "" where each by itself can be."""
    for name, column in frame.items():
        for place, value in enumerate(column):
            try:
                pa.array([value], from_pandas=True)
            except Exception:  # noqa: BLE001 - told by whoever asks
                return f"row {place} of column {name!r} holds {_shown(value)}: "
    return ""


def _refuse_endless(value: Any, where: str) -> None:
    """Raise DataSourceError for lists and mappings that hold themselves, or stand for too many."""
    waiting, seen = [(value, 0)], 0
    while waiting:
        inner, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST or seen > _MOST:
            raise DataSourceError(
                f"{where} is nested more than {DEEPEST} deep, or has more than {_MOST:,} values; "
                "use texts, numbers and short lists"
            )
        if isinstance(inner, np.ndarray) and inner.dtype == object:
            inner = inner.tolist()
        if isinstance(inner, Mapping):
            waiting += [(one, depth + 1) for one in inner.values()]
        elif isinstance(inner, list | tuple | AbstractSet):
            waiting += [(one, depth + 1) for one in inner]


def _json(value: Any, where: str) -> str:
    _refuse_endless(value, where)

    def plain(other: Any) -> Any:
        if type(other).__name__ in ("NAType", "NaTType"):  # of pandas
            return None
        if isinstance(other, Decimal | date):
            return str(other)
        if hasattr(other, "item"):  # a number of numpy
            return other.item()
        raise DataSourceError(
            f"{_shown(other)} cannot be written to a file of data; use texts, numbers and lists"
        )

    try:
        return json.dumps(value, ensure_ascii=True, default=plain)
    except (ValueError, RecursionError) as error:
        raise DataSourceError(f"{where} cannot be written to a file: {error}") from error


def _kept(content: str | bytes, suffix: str, snapshot_dir: Path) -> str:
    """The path of a file with this content, which names it: the same data are one file."""
    data = content.encode() if isinstance(content, str) else content
    return _named(data, suffix, _folder(snapshot_dir))


def _folder(snapshot_dir: Path) -> Path:
    return snapshot_folder(snapshot_dir) / _FOLDER


def _named(content: bytes, suffix: str, folder: Path) -> str:
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
    if not path.is_file():
        write_whole(path, content)
    return str(path)


def write_whole(path: AnyPath, content: bytes) -> None:
    """Write a file, whole or not at all; raises ConfigurationError, ObjectStoreError."""
    try:
        remote_paths.write_whole(path, content)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
