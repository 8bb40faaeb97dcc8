"""What a dataset calls the numbers of its labels, as the library `datasets` writes it.

A Parquet file says it in its schema, other files in `dataset_info.json` or the head of `README.md`
of a folder above them.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from transexplain.data.parquet_files import parquet_file
from transexplain.data.source_files import reading
from transexplain.errors import DataSourceError
from transexplain.files.paths import AnyPath, info_of
from transexplain.files.remote_files import FileInfo, is_url
from transexplain.text.parsing import UnreadableError, read_json, read_text, read_yaml

_METADATA = b"huggingface"
_HEAD = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*$", re.DOTALL | re.MULTILINE)
_ABOVE = 3  #: folders that are looked through: data in partitions lie below the folder of the card
#: what the type of a list calls the type of what it holds
_WITHIN = ("feature", "dtype", "list", "large_list", "sequence")


def class_names(paths: Iterable[AnyPath], column: str) -> tuple[str, ...]:
    """The names of 0, 1, ... in a column of some files; none where they say nothing.

    Raises DataSourceError where two files contradict each other.
    """
    return agreed((str(path), names_of(str(path), column, _schema_of(path))) for path in paths)


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


def _schema_of(path: AnyPath) -> Mapping[bytes, bytes] | None:
    """What a Parquet file says beside its schema."""
    if path.suffix.lower() != ".parquet":
        return None
    with reading(path), parquet_file(path) as file:
        metadata: Mapping[bytes, bytes] | None = file.schema_arrow.metadata
    return metadata


def names_of(
    place: str, column: str, metadata: Mapping[bytes, bytes] | None = None
) -> tuple[str, ...]:
    """The names of a column's numbers in a file (path or URL): by its schema, or beside it."""
    try:
        names = _of_column(read_json((metadata or {})[_METADATA].decode()), column)
    except (KeyError, UnicodeDecodeError, UnreadableError):
        names = ()
    return names or names_beside(place, column)


def names_beside(place: str, column: str) -> tuple[str, ...]:
    """By what stands in the folder of a file, or in those above it; none of one in a store."""
    folders = () if is_url(place) else Path(place).parents[:_ABOVE]
    for folder in folders:
        for document in (folder / "dataset_info.json", folder / "README.md"):
            if document.is_file() and (
                names := _of_column(_read(document, info_of(document)), column)
            ):
                return names
    return ()


@lru_cache(maxsize=64)
def _read(path: Path, state: FileInfo) -> Any:
    del state
    try:
        text = read_text(path)
        if path.suffix == ".json":
            return read_json(text)
        head = _HEAD.search(text)
        return read_yaml(head[1]) if head else None
    except (OSError, UnicodeDecodeError, UnreadableError):
        return None  # it is no part of the data


def _of_column(document: Any, column: str) -> tuple[str, ...]:
    """What a document says of a column: a list of features or a mapping, maybe by configuration."""
    for key in ("info", "dataset_info"):
        document = document.get(key, document) if isinstance(document, Mapping) else document
    several = document if isinstance(document, list) else [document]
    features = [
        split["features"] for split in several if isinstance(split, Mapping) and "features" in split
    ]
    names = {_named(_feature(feature, column)) for feature in features} - {()}
    return names.pop() if len(names) == 1 else ()


def _feature(features: Any, column: str) -> Any:
    if isinstance(features, Mapping):
        return features.get(column)
    listed = features if isinstance(features, list) else []
    return next(
        (
            feature
            for feature in listed
            if isinstance(feature, Mapping) and feature.get("name") == column
        ),
        None,
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
    return next((names for key in _WITHIN if (names := _named(feature.get(key)))), ())
