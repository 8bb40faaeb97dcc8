"""Items from csv, tsv, jsonl and parquet files: one file, or a glob joined in sorted order."""

import glob
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from transexplain.data import FORMATS
from transexplain.data.item_marks import annotations_cell, boxes_cell, mask_cell, spans_cell
from transexplain.data.mapped_columns import Columns, meta_json, resolve, spelled, text_of
from transexplain.data.source_files import inside, picture_digest
from transexplain.data.source_records import Problem, RawRow, Record, Table, printable
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.plans import DatasetSpec, Modality


class FileSource:
    """Rows of tabular files; of texts, or of paths of pictures beside each file."""

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        if spec.text and spec.image:
            raise DataSourceError("name a text column or an image column, not both")
        self._spec = spec
        self._paths = expand(location)
        self.modality: Modality = "image" if spec.image else "text"
        self.root = _common_folder(self._paths) if spec.image else ""
        self.numbered, self.named = spec.id is None, False
        self.marked = spec.evidence is not None

    def files(self) -> Sequence[Path]:
        """The tabular files in reading order."""
        return self._paths

    def records(self) -> Generator[Record]:
        """Every row of every file."""
        index = 0
        for path in self._paths:
            with open_table(path, self._spec) as table:
                columns = resolve(self._spec, table, path)
                reader = _RowReader(columns, path.parent, self.root)
                for raw in table.rows(columns.wanted):
                    yield reader.record(index, raw)
                    index += 1


class _RowReader:
    """Turns the cells of one file's rows into records."""

    def __init__(self, columns: Columns, folder: Path, root: str) -> None:
        self._columns = columns
        self._folder = folder
        self._root = root

    def record(self, index: int, raw: RawRow) -> Record:
        """The record of one row; what is wrong with it becomes its error, the rest is kept."""
        columns = self._columns
        if isinstance(raw, Problem):
            name = f"row:{index}" if columns.id else str(index)
            return Record(name, index, None, None, "{}", None, raw.kind, raw.message)
        faults: list[ItemError] = []
        name = self._id(index, raw, faults)
        label = _or_fault(raw, columns.label, faults)
        meta = meta_json({column: _or_fault(raw, column, faults) for column in columns.meta})
        cluster = _or_fault(raw, columns.cluster, faults)
        template = _or_fault(raw, columns.template, faults)
        content = sha256 = evidence = annotations = None
        try:
            content, sha256 = self._content(raw)
            evidence = self._evidence(raw, content)
            annotations = self._annotations(raw, content)
        except ItemError as fault:
            faults.append(fault)
        if faults:
            return Record(
                name, index, None, label, meta, None, faults[0].kind, printable(str(faults[0]))
            )
        record = Record(
            name, index, content, label, meta, sha256, None, None, evidence, annotations
        )
        return replace(record, cluster=cluster, template=template)

    def _id(self, index: int, raw: RawRow, faults: list[ItemError]) -> str:
        column = self._columns.id
        if column is None:
            return str(index)
        name = _or_fault(raw, column, faults)
        if name is None and not faults:
            faults.append(ItemError("null", f"the id column {column!r} is null or empty"))
        return name if name is not None else f"row:{index}"

    def _content(self, raw: RawRow) -> tuple[str, str | None]:
        assert not isinstance(raw, Problem)
        column = self._columns.content
        if not self._root:
            return text_of(raw[column], column), None
        named = spelled(raw[column], column)
        if named is None:
            raise ItemError("null", f"column {column!r} names no picture")
        path = inside(self._folder, named)
        name = path.relative_to(self._root).as_posix()
        return name, picture_digest(path, name)

    def _evidence(self, raw: RawRow, content: str) -> str | None:
        assert not isinstance(raw, Problem)
        column = self._columns.evidence
        cell = spelled(raw[column], column) if column is not None else None
        if cell is None or not cell.strip():
            return None
        if not self._root:
            return spans_cell(cell, content)
        if cell.lstrip().startswith("["):
            return boxes_cell(cell)
        return mask_cell(cell, self._folder, self._root)

    def _annotations(self, raw: RawRow, content: str) -> str | None:
        assert not isinstance(raw, Problem)
        column = self._columns.spans
        cell = spelled(raw[column], column) if column is not None else None
        if cell is None or not cell.strip():
            return None
        text = None if self._root else content
        return annotations_cell(cell, text, folder=self._folder, root=self._root)


def _or_fault(raw: RawRow, column: str | None, faults: list[ItemError]) -> str | None:
    assert not isinstance(raw, Problem)
    try:
        return None if column is None else spelled(raw[column], column)
    except ItemError as fault:
        faults.append(fault)
        return None


def expand(location: str) -> tuple[Path, ...]:
    """The files that a path or glob means, sorted; raises DataSourceError where there is none."""
    literal = Path(location).expanduser()
    if literal.is_dir():
        raise DataSourceError(
            f"{location} is a folder; write imagefolder:{location} for pictures, or a glob such "
            f"as {location.rstrip('/')}/*.jsonl for files"
        )
    names = [str(literal)] if literal.exists() else glob.glob(str(literal), recursive=True)  # noqa: PTH207 - `**` and absolute patterns in one call
    # The folder's links are followed, the file's are not: its own name holds the suffix.
    paths = tuple(
        path.parent.resolve() / path.name for path in map(Path, sorted(names)) if path.is_file()
    )
    if not paths:
        raise DataSourceError(f"no file matches {location!r} (in {Path.cwd()})")
    return paths


def format_of(path: Path) -> str:
    """The name in `data.FORMATS` that the suffix of `path` stands for.

    Raises DataSourceError naming the formats that exist.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    name = suffixes[-1].removeprefix(".") if suffixes else ""
    if name not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise DataSourceError(f"{path} has no known suffix; known: {known}, each also with .gz")
    return name


def open_table(path: Path, spec: DatasetSpec) -> AbstractContextManager[Table]:
    """The file at `path`, read by its suffix; raises DataSourceError."""
    table: AbstractContextManager[Table] = FORMATS.load(format_of(path))(path, spec)
    return table


def _common_folder(paths: Sequence[Path]) -> str:
    return os.path.commonpath([path.parent for path in paths])
