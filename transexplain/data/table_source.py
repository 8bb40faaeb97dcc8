"""Items from csv, tsv, jsonl and parquet files: one file, or a glob joined in sorted order."""

import glob
import json
import math
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from transexplain.data import FORMATS
from transexplain.data.class_names import agreed, names_beside, names_of
from transexplain.data.file_formats import USUAL, dialect_of
from transexplain.data.image_files import with_pictures
from transexplain.data.item_marks import annotations_cell, boxes_cell, mask_cell, spans_cell
from transexplain.data.picture_places import is_packed
from transexplain.data.source_files import (
    KEY,
    FileFacts,
    Note,
    OpenTable,
    PackedPicture,
    Problem,
    RawRow,
    Record,
    inside,
    partitions,
    picture_digest,
    printable,
    read,
    reading,
    reading_row,
    with_partitions,
)
from transexplain.errors import DataSourceError, ItemError, did_you_mean
from transexplain.files.paths import AnyPath, RemotePath, local_path
from transexplain.files.remote_files import is_url, matching, pinned, under
from transexplain.types.pairs import joined
from transexplain.types.plans import DatasetSpec, Modality

TEXT_DEFAULTS = ("text", "sentence")
LABEL_DEFAULT = "label"


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of one file that the dataset reads."""

    content: str  #: text, or picture path
    second: str | None = None  #: of a pair of texts
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
        of_items = (self.content, self.second, self.label, self.id, self.evidence, self.spans)
        named = (*of_items, *self.meta, self.cluster, self.template)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def resolve(spec: DatasetSpec, table: OpenTable, path: AnyPath) -> Columns:
    """The spec's columns, or their defaults, in the table of the file `path`.

    Raises DataSourceError naming the columns that exist where one is missing or there twice.
    """
    label, usual = spec.label, table.usual
    if label is None and (LABEL_DEFAULT in table.columns or table.sparse):
        label = usual.get("label", LABEL_DEFAULT)
    first, second = spec.text if isinstance(spec.text, tuple) else (spec.text, None)
    content = spec.image or first or usual.get("content")
    columns = Columns(
        content=content or _default_text(table.columns, path, spec.delimiter),
        second=second,
        label=label,
        id=spec.id or usual.get("id"),
        meta=tuple(spec.meta),
        evidence=spec.evidence,
        spans=spec.spans,
        cluster=spec.cluster,
        template=spec.template,
    )
    for name in columns.wanted:
        if name not in table.columns and not (name == label and spec.label is None):
            near = did_you_mean(name, table.columns)
            raise DataSourceError(
                f"{path} has no column {name!r}{near or ';'} "
                f"{_existing(table.columns, spec.delimiter)}"
            )
        if table.columns.count(name) > 1:
            raise DataSourceError(f"{path} has the column {name!r} more than once; rename one")
    return columns


def _default_text(existing: Sequence[str], path: AnyPath, delimiter: str | None) -> str:
    for name in TEXT_DEFAULTS:
        if name in existing:
            return name
    tried = " or ".join(map(repr, TEXT_DEFAULTS))
    raise DataSourceError(
        f"{path} has no column {tried}; name the column of the text (text: ...) or of the picture "
        f"path (image: ...); {_existing(existing, delimiter)}"
    )


def _existing(columns: Sequence[str], delimiter: str | None) -> str:
    has = f"it has {', '.join(map(repr, columns))}"
    if delimiter is None or len(columns) != 1:
        return has
    return (
        f"{has}, a single column: data.delimiter is {delimiter!r}, which its first line does not "
        "hold; leave it out to have it detected"
    )


class SeenFiles:
    """What a reader should know of the files whose columns were seen."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.notes: list[Note] = []
        self._spec = spec
        self._labelled: dict[str, bool] = {}  #: where no column of labels is named, by file name
        self._near = ""  #: a column that may be that of labels
        #: what files call the numbers of labels -> the first of them
        self._called: dict[tuple[str, ...], str] = {}

    def add(self, place: str, table: OpenTable) -> None:
        """Look at the columns of a file, by its path or URL."""
        name = PurePath(place).name
        self.notes += [(name, note) for note in table.notes]
        names = names_of(place, self._spec.label or LABEL_DEFAULT, table.metadata)
        self._called.setdefault(names, place)
        if self._spec.label is None and "label" not in table.usual:
            self._labelled[name] = LABEL_DEFAULT in table.columns
            for column in table.columns:
                if column.strip().casefold().removesuffix("s") == LABEL_DEFAULT:
                    self._near = self._near or column

    def facts(self) -> FileFacts:
        """The notes on all files, and their class names; DataSourceError where two disagree."""
        names = agreed((place, names) for names, place in self._called.items())
        return FileFacts(notes=(*self.notes, *self._unlabelled()), label_names=names)

    def _unlabelled(self) -> Iterator[Note]:
        """Files without labels among others, or a column that is nearly called so."""
        if any(self._labelled.values()):
            without = "has no column 'label', as other files have: its items count as unlabelled"
            yield from ((name, without) for name, has in self._labelled.items() if not has)
        elif self._near:
            yield (
                "",
                f"items are unlabelled: the column {self._near!r} is read if data.label names it",
            )


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
            f"column {column!r} is not UTF-8 at position {at}; save the file as UTF-8, or name its "
            "encoding in data.encoding",
        ) from error
    return value


def meta_json(values: dict[str, str | None]) -> str:
    """Meta values as a JSON object, those that are null left out."""
    kept = {printable(name): value for name, value in values.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False)


class FileSource:
    """Rows of tabular files; of texts, or of paths of pictures beside each file."""

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        if spec.text and spec.image:
            raise DataSourceError("name a text column or an image column, not both")
        if isinstance(spec.text, tuple) and (spec.evidence or spec.spans):
            raise DataSourceError(
                "data.evidence and data.spans count characters of one text, and data.text names "
                "two; remove them"
            )
        self._spec = spec
        self._paths = expand(location)
        formats = {format_of(path) == "tar" for path in self._paths}
        if len(formats) > 1:
            raise DataSourceError(
                "tars cannot be mixed with files of other formats; audit them apart"
            )
        tars = True in formats
        self.modality: Modality = "image" if spec.image or tars else "text"
        self.root = _common_folder(self._paths) if spec.image or tars else ""
        self.numbered, self.named = spec.id is None and not tars, False
        self.marked = spec.evidence is not None
        self.detected = detected_in(self._paths, spec)
        self._seen = SeenFiles(spec)
        # a snapshot is remembered by its files, and not by what stands beside them
        beside = {
            names_beside(str(path), spec.label or LABEL_DEFAULT): None for path in self._paths
        }
        self.detected += tuple(", ".join(names) for names in beside if names)

    @property
    def facts(self) -> FileFacts:
        """Return what is known of the files whose rows were read."""
        return self._seen.facts()

    def files(self) -> Sequence[AnyPath]:
        """The tabular files in reading order."""
        return self._paths

    def records(self) -> Generator[Record]:
        """Every row of every file."""
        index = 0
        for path in self._paths:
            with open_table(path, self._spec) as table:
                columns = resolve(self._spec, table, path)
                self._seen.add(str(path), table)
                reader = RowReader(columns, path, self.root)
                for raw, picture in reader.pictures(table.rows(columns.wanted)):
                    yield reader.record(index, raw, picture)
                    index += 1


class RowReader:
    """Turns the cells of one file's rows into records."""

    def __init__(self, columns: Columns, path: AnyPath, root: str) -> None:
        self._columns = columns
        self._folder = path.parent
        self._root = root
        self._file = printable(path.relative_to(root).as_posix()) if root else ""
        self._keyed = columns.id == KEY

    def pictures(self, rows: Iterator[RawRow]) -> Iterator[tuple[RawRow, RemotePath | None]]:
        """The rows, each with the picture that it names where that lies in a store, read."""
        return with_pictures(self._folder if self._root else Path(), rows, self._named)

    def _named(self, raw: RawRow) -> str | None:
        """The picture file that a row names."""
        if isinstance(raw, Problem) or isinstance(raw[self._columns.content], PackedPicture):
            return None
        return _or_fault(raw, self._columns.content, [])

    def record(self, index: int, raw: RawRow, picture: RemotePath | None = None) -> Record:
        """The record of one row; what is wrong with it becomes its error, the rest is kept.

        `picture`: the one that it names, where that was read already.
        """
        try:
            with reading_row():
                if isinstance(raw, Problem):
                    raise ItemError(raw.kind, raw.message)
                return self._record(index, raw, picture)
        except ItemError as fault:
            name = f"row:{index}" if self._columns.id else str(index)
            if isinstance(raw, Problem) and raw.id is not None and self._keyed:
                name = self._key(raw.id)
            return Record(name, index, error_kind=fault.kind, error=printable(str(fault)))

    def _record(self, index: int, raw: Mapping[str, Any], picture: RemotePath | None) -> Record:
        columns = self._columns
        faults: list[ItemError] = []
        name = self._id(index, raw, faults)
        label = _or_fault(raw, columns.label, faults)
        meta = meta_json({column: _or_fault(raw, column, faults) for column in columns.meta})
        cluster = _or_fault(raw, columns.cluster, faults)
        template = _or_fault(raw, columns.template, faults)
        content = second_at = sha256 = evidence = annotations = None
        try:
            if self._root:
                content, sha256 = self._content(raw, picture)
            else:
                content, second_at = self._text(raw)
            evidence = self._evidence(raw, content)
            annotations = self._annotations(raw, content)
        except ItemError as fault:
            faults.append(fault)
        if faults:
            kind, error = faults[0].kind, printable(str(faults[0]))
            return Record(name, index, None, label, meta, error_kind=kind, error=error)
        return Record(
            name,
            index,
            content,
            label,
            meta,
            sha256,
            evidence=evidence,
            annotations=annotations,
            cluster=cluster,
            template=template,
            second_at=second_at,
        )

    def _id(self, index: int, raw: Mapping[str, Any], faults: list[ItemError]) -> str:
        column = self._columns.id
        if column is None:
            return str(index)
        name = _or_fault(raw, column, faults)
        if name is None and not faults:
            faults.append(ItemError("null", f"the id column {column!r} is null or empty"))
        if name is not None and self._keyed:
            return self._key(name)
        return name if name is not None else f"row:{index}"

    def _key(self, key: str) -> str:
        """Keys of other files may be the same."""
        return f"{self._file}/{key}"

    def _content(
        self, raw: Mapping[str, Any], picture: RemotePath | None
    ) -> tuple[str, str | None]:
        column = self._columns.content
        cell = raw[column]
        if isinstance(cell, PackedPicture):
            return f"{self._file}{cell.place}", cell.sha256
        named = spelled(cell, column)
        if named is None:
            raise ItemError("null", f"column {column!r} names no picture")
        path = picture or inside(self._folder, named)
        name = path.relative_to(self._root).as_posix()
        if is_packed(name):
            raise ItemError(
                "missing-image", f"{name!r} is written like a place in a tar; rename it"
            )
        return name, picture_digest(path, name)

    def _text(self, raw: Mapping[str, Any]) -> tuple[str, int | None]:
        """The text, or both of a pair in one, and where the second of these begins."""
        first, second = self._columns.content, self._columns.second
        text = text_of(raw[first], first)
        return (text, None) if second is None else joined(text, text_of(raw[second], second))

    def _evidence(self, raw: Mapping[str, Any], content: str) -> str | None:
        if (cell := _cell(raw, self._columns.evidence)) is None:
            return None
        if not self._root:
            return spans_cell(cell, content)
        if cell.lstrip().startswith("["):
            return boxes_cell(cell)
        return mask_cell(cell, self._folder, self._root)

    def _annotations(self, raw: Mapping[str, Any], content: str) -> str | None:
        if (cell := _cell(raw, self._columns.spans)) is None:
            return None
        text = None if self._root else content
        return annotations_cell(cell, text, folder=self._folder, root=self._root)


def _cell(raw: Mapping[str, Any], column: str | None) -> str | None:
    cell = spelled(raw[column], column) if column is not None else None
    return cell if cell and cell.strip() else None


def _or_fault(raw: Mapping[str, Any], column: str | None, faults: list[ItemError]) -> str | None:
    try:
        return None if column is None else spelled(raw[column], column)
    except ItemError as fault:
        faults.append(fault)
        return None


def format_of(path: AnyPath) -> str:
    """The name in `data.FORMATS` that the suffix of `path` stands for.

    Raises DataSourceError naming the formats that exist.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    name = suffixes[-1].removeprefix(".") if suffixes else ""
    if name not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise DataSourceError(
            f"{path} has no known suffix; known: {known}; texts and Parquet also with .gz"
        )
    return name


def detected_in(paths: Sequence[AnyPath], spec: DatasetSpec) -> tuple[str, ...]:
    """The detected dialect of each file; "" for usual ones.

    Raises DataSourceError where a file cannot be read.
    """
    formats = [(path, format_of(path)) for path in paths]
    return tuple(
        dialect_of(path, spec, USUAL[name]).detected if name in USUAL else ""
        for path, name in formats
    )


@contextmanager
def open_table(path: AnyPath, spec: DatasetSpec) -> Iterator[OpenTable]:
    """The file at `path`, with columns of its folders; DataSourceError, whatever its bytes are."""
    with ExitStack() as stack:
        with reading(path):
            table = stack.enter_context(FORMATS.load(format_of(path))(path, spec))
        framed = replace(table, rows=lambda wanted: read(table.rows(wanted), path))
        yield with_partitions(framed, path)


def _common_folder(paths: Sequence[AnyPath]) -> str:
    parents = [str(path.parent) for path in paths]
    scheme, separator, _ = parents[0].partition("://")
    if not separator:
        return os.path.commonpath(parents)
    return f"{scheme}://{os.path.commonpath([parent.partition('://')[2] for parent in parents])}"


def expand(location: str) -> tuple[AnyPath, ...]:
    """The files that a path, URL, glob or {range} means, sorted; of a folder its tars, or the
    files in its partitions.

    `{000..012}` are the numbers from 000 to 012, `{a,b}` is a and b; every such file has to exist.
    URLs name files, globs and folders (with `/` at the end), with a {range} or without.

    Raises DataSourceError where there is none, and for another folder; RemoteFileError,
    ObjectStoreError.
    """
    if is_url(location) and location.endswith("/"):
        return _remote_partitions(location)
    if is_url(location):
        files = {
            file.url: file for part in _without_braces(location) for file in matching(pinned(part))
        }
        return tuple(RemotePath(url, files[url]) for url in sorted(files))
    literal = local_path(location)
    names = [str(literal)] if literal.exists() else _matching(str(literal))
    if literal.is_dir():
        names = [str(path) for path in literal.iterdir() if path.suffix.lower() == ".tar"]
        below = () if names else literal.glob("*=*/**/*")
        names += [
            str(path) for path in below if _is_partitioned(path.relative_to(literal).as_posix())
        ]
        if not names:
            raise DataSourceError(
                f"{location} is a folder without tars or partitions (label=positive/...); write "
                f"imagefolder:{location} for pictures, or a glob such as "
                f"{location.rstrip('/')}/*.jsonl for files"
            )
    # The folder's links are followed, the file's are not: its own name holds the suffix.
    paths = tuple(
        path.parent.resolve() / path.name for path in map(Path, sorted({*names})) if path.is_file()
    )
    if not paths:
        hub = "; a data set of the hub is hf://datasets/ORG/NAME" if location[:3] == "hf:" else ""
        raise DataSourceError(f"no file matches {location!r} (in {Path.cwd()}){hub}")
    return paths


def _remote_partitions(url: str) -> tuple[RemotePath, ...]:
    """The files in the partitions of a folder at a URL."""
    folder = pinned(url)
    paths = [RemotePath(file.url, file) for file in under(folder)]
    names = [path.relative_to(folder).as_posix() for path in paths]
    kept = [path for path, name in zip(paths, names, strict=True) if _is_partitioned(name)]
    if not kept:
        raise DataSourceError(
            f"{url} holds no partitions (label=positive/...); write a glob such as {url}*.jsonl"
        )
    return tuple(kept)


def _is_partitioned(name: str) -> bool:
    """Return whether the name of a file, below its folder, is that of data in a partition."""
    suffix = name.lower().removesuffix(".gz").rpartition(".")[2]
    # writers keep such names for themselves
    hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
    return suffix in FORMATS and bool(partitions(name)) and not hidden


_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_MOST_FILES = 1_000_000


def _matching(pattern: str) -> list[str]:
    """Names of existing files; DataSourceError where one that the braces name is not there."""
    names: list[str] = []
    for brace in _without_braces(pattern):
        matches = [brace] if Path(brace).exists() else glob.glob(brace, recursive=True)  # noqa: PTH207 - `**` and absolute patterns in one call
        if not matches and brace != pattern:
            raise DataSourceError(f"no file matches {brace!r}, which {pattern!r} names")
        names += matches
    return names


def _without_braces(pattern: str) -> list[str]:
    patterns = [pattern]
    while braces := _BRACES.search(patterns[0]):
        first, last, listed = braces.groups()
        if listed is not None:
            values = listed.split(",")
        else:
            numbers = range(int(first), int(last) + 1)
            if not 0 < len(numbers) * len(patterns) <= _MOST_FILES:
                raise DataSourceError(
                    f"{braces[0]} in {pattern!r} names {len(numbers):,} files: write "
                    f"{{first..last}}, for at most {_MOST_FILES:,} of them"
                )
            values = [f"{number:0{len(first)}}" for number in numbers]
        # all patterns are alike up to here
        patterns = [
            pattern.replace(braces[0], value, 1) for pattern in patterns for value in values
        ]
    return patterns
