"""What a dataset calls the numbers of its labels, as the library `datasets` writes it.

A Parquet file says it in its schema, other files in `dataset_info.json` or the head of `README.md`
of a folder above them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.errors import DataSourceError
from transexplain.parsing import UnreadableError, read_json, read_text, read_yaml
from transexplain.remote_paths import AnyPath, RemotePath
from transexplain.remote_stores import is_url

_METADATA = b"huggingface"
_HEAD = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*$", re.DOTALL | re.MULTILINE)
_ABOVE = 3  #: folders that are looked through: data in partitions lie below the folder of the card
#: what the type of a list calls the type of what it holds
_WITHIN = ("feature", "dtype", "list", "large_list", "sequence")


def class_names(paths: Iterable[AnyPath], column: str) -> tuple[str, ...]:
    """The names of 0, 1, ... in a column of some files; none where they say nothing.

    Raises DataSourceError where two files contradict each other.
    """
    return agreed((str(path), _names_in(path, column)) for path in paths)


def agreed(named: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """The names of all files (path or URL, names), as `class_names`."""
    known: tuple[str, ...] = ()
    first = ""
    for place, names in named:
        if known and names and names != known:
            raise DataSourceError(
                f"{first} calls its labels {', '.join(known)} and {place} {', '.join(names)}: the "
                "same number means two classes; audit them apart"
            )
        if names and not known:
            known, first = names, place
    return known


def _names_in(path: AnyPath, column: str) -> tuple[str, ...]:
    if path.suffix.lower() != ".parquet":
        return names_of(str(path), column)
    try:
        opened = path.ranges() if isinstance(path, RemotePath) else path
        with pq.ParquetFile(opened, pre_buffer=False) as file:
            return names_of(str(path), column, file.schema_arrow)
    except (OSError, pa.ArrowException, ValueError):
        return ()  # told by who reads its rows


def names_of(place: str, column: str, schema: pa.Schema | None = None) -> tuple[str, ...]:
    """The names of a column's numbers in a file (path or URL): by its schema, or beside it."""
    metadata = (schema.metadata if schema else None) or {}
    try:
        names = _of_column(read_json(metadata[_METADATA].decode()), column)
    except (KeyError, UnicodeDecodeError, UnreadableError):
        names = ()
    return names or (() if is_url(place) else _beside(Path(place).parent, column))


@lru_cache(maxsize=64)
def _beside(folder: Path, column: str) -> tuple[str, ...]:
    """By what stands in a folder, or in those above it."""
    for place in (folder, *folder.parents[: _ABOVE - 1]):
        for document in _documents(place):
            if names := _of_column(document, column):
                return names
    return ()


def _documents(folder: Path) -> Iterator[Any]:
    try:
        if (info := folder / "dataset_info.json").is_file():
            yield read_json(read_text(info))
        if (card := folder / "README.md").is_file() and (head := _HEAD.search(read_text(card))):
            yield read_yaml(head[1])
    except (OSError, UnicodeDecodeError, UnreadableError):
        return  # they are no part of the data


def _of_column(document: Any, column: str) -> tuple[str, ...]:
    """What a document says of a column: a list of features or a mapping, maybe by configuration."""
    for key in ("info", "dataset_info"):
        document = document.get(key, document) if isinstance(document, Mapping) else document
    several = document if isinstance(document, list) else [document]
    features = [
        one["features"] for one in several if isinstance(one, Mapping) and "features" in one
    ]
    found = {_named(_feature(one, column)) for one in features} - {()}
    return found.pop() if len(found) == 1 else ()


def _feature(features: Any, column: str) -> Any:
    if isinstance(features, Mapping):
        return features.get(column)
    listed = features if isinstance(features, list) else []
    return next(
        (one for one in listed if isinstance(one, Mapping) and one.get("name") == column), None
    )


def _named(feature: Any) -> tuple[str, ...]:
    """The names of a class label, or of a list of them."""
    if isinstance(feature, list):
        return _named(feature[0]) if feature else ()
    if not isinstance(feature, Mapping):
        return ()
    names = feature.get("class_label", feature if feature.get("_type") == "ClassLabel" else {})
    names = names.get("names") if isinstance(names, Mapping) else None
    if isinstance(names, Mapping):  # number, or its text -> name
        names = [names.get(str(place), names.get(place)) for place in range(len(names))]
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return tuple(names)
    return next((found for key in _WITHIN if (found := _named(feature.get(key)))), ())
