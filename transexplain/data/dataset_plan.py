"""Makes a dataset ready for an audit: copied into a snapshot, or listed in a manifest.

A manifest holds no item: workers read their rows from the source files. Planning then reads the
footers of Parquet files, and of text files once where their rows begin.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from transexplain.data import FORMATS, SOURCES, snapshot
from transexplain.data.file_formats import USUAL, UTF8, dialect_of
from transexplain.data.item_clusters import MOST, Clusters
from transexplain.data.listed_files import (
    STEP,
    Layout,
    ListedFile,
    index_lines,
    manifest_records,
    read_manifest,
    write_manifest,
)
from transexplain.data.parquet_files import parquet_file
from transexplain.data.source_files import (
    OpenTable,
    file_digest,
    grouped,
    reading,
    with_partitions,
)
from transexplain.data.table_source import Columns, SeenFiles, expand, format_of, resolve
from transexplain.errors import DataSourceError
from transexplain.files import remote_files
from transexplain.files.atomic_write import atomic_file, temporary_file
from transexplain.files.paths import AnyPath, any_path, info_of
from transexplain.files.remote_files import FileInfo, is_url
from transexplain.types.plans import DatasetRef, DatasetSpec

#: bytes of source files up to which `snapshot: auto` copies them
COPIED = 4 * 2**30
#: bytes of Parquet files, all together, up to which they are hashed: one that is put back with
#: another time of change is then known by its bytes
_HASHED = 2**30
#: of a remote text file, in which its columns and dialect are looked for
_HEAD = 2**20
_FORMATS = ("parquet", "csv", "tsv", "jsonl")


def plan_dataset(spec: DatasetSpec, snapshot_dir: Path) -> DatasetRef:
    """The dataset as `spec.snapshot` asks for it.

    Raises DataSourceError as `snapshot.prepare`, and where there can be no manifest of these data.
    """
    if spec.snapshot == "copy":
        return snapshot.prepare(spec, snapshot_dir)
    reason = _obstacle(spec)
    paths = () if reason else expand(spec.source.removeprefix("files:"))
    reason = reason or _packed(paths)
    if reason and spec.snapshot == "manifest":
        raise _refused(spec, reason)
    files = [] if reason else list(map(info_of, paths))
    size = sum(file.size for file in files)
    if reason or (spec.snapshot == "auto" and size <= COPIED):
        return snapshot.prepare(spec, snapshot_dir)
    folder, hashed = snapshot.snapshot_folder(snapshot_dir), size <= _HASHED
    planning = _Planning(spec, folder, hashed, SeenFiles(spec))
    try:
        return planning.dataset(files)
    except _NotUtf8Error as error:
        if spec.snapshot == "auto":
            return snapshot.prepare(spec, snapshot_dir)
        raise _refused(spec, str(error)) from None
    except OSError as error:
        raise snapshot.unwritable(planning.folder, error) from error


class _NotUtf8Error(DataSourceError):
    """A text file in an encoding that cannot be read from any row."""


def _refused(spec: DatasetSpec, reason: str) -> DataSourceError:
    return DataSourceError(
        f"data.snapshot is manifest, but {reason} of {spec.source!r}: workers read rows from the "
        f"files themselves, which {', '.join(f'.{suffix}' for suffix in _FORMATS)} in UTF-8 allow; "
        "set data.snapshot: copy"
    )


def _obstacle(spec: DatasetSpec) -> str:
    """Why there can be no manifest, as far as the specification tells; "" where it can be."""
    prefix, colon, _ = spec.source.partition(":")
    if colon and prefix in SOURCES and prefix != "files":
        return f"{prefix}: items are no rows of a table"
    if spec.image:
        return "data.image names pictures, whose bytes are checked one by one,"
    if spec.sample is not None:
        return "data.sample draws from all rows"
    if spec.encoding not in (None, UTF8):
        return f"data.encoding is {spec.encoding}"
    return ""


def _packed(paths: Sequence[AnyPath]) -> str:
    """Why there can be no manifest of some files; "" where there can be."""
    for path in paths:
        if path.suffix.lower() == ".gz" or format_of(path) not in _FORMATS:
            return f"{path.name} cannot be read from any row:"
    return ""


@dataclass(slots=True)
class _Planning:
    """One manifest in the making."""

    spec: DatasetSpec
    folder: Path
    hashed: bool  #: Parquet files are
    seen: SeenFiles

    def dataset(self, files: Sequence[FileInfo]) -> DatasetRef:
        """The manifest of these files, written, and the record of it."""
        spec = self.spec
        cluster = [] if spec.cluster is None else ["cluster"]
        # those that a snapshot of the same data has
        columns = [*snapshot.SCHEMA.names, *snapshot.further_columns(spec), *cluster]
        with temporary_file(self.folder) as temporary:
            rows = write_manifest(
                temporary, self._listed(files), clusters=None, found={}, columns=columns
            )
            if not rows:
                raise DataSourceError(f"{spec.source!r} holds no rows")
            ref = DatasetRef(
                source=spec.source,
                modality="text",
                snapshot=str(temporary),
                fingerprint=file_digest(temporary),
                rows=rows,
                manifest=True,
            )
            if rows > MOST:
                path = snapshot.named_by_digest(temporary, self.folder)
            else:
                path = self._with_clusters(ref, temporary, columns)
        facts = self.seen.facts()
        return replace(
            ref,
            snapshot=str(path),
            fingerprint=path.stem,
            read_as=(*self._notes(len(files), rows), *grouped(facts.notes)),
            label_names=facts.label_names,
        )

    def _with_clusters(self, ref: DatasetRef, plain: Path, columns: list[str]) -> Path:
        """The manifest of few rows, which are read once: their ids differ, and which are alike."""
        clusters = Clusters.of(self.spec, "text")
        seen: dict[str, int] = {}
        for row, record in manifest_records(ref, 0, ref.rows):
            if self.spec.id is not None and seen.setdefault(record.id, row) != row:
                raise snapshot.same_id(record.id, seen[record.id], row)
            if clusters is not None:
                clusters.add([record])
        clustering = clusters.found() if clusters is not None else None
        if clustering is None:
            return snapshot.named_by_digest(plain, self.folder)
        firsts, facts = clustering
        joined = {row: first for row, first in enumerate(firsts) if first is not None}
        names = list(dict.fromkeys((*columns, "cluster")))
        manifest = read_manifest(plain)
        listed = (manifest.listed(number) for number in range(len(manifest.starts) - 1))
        with temporary_file(self.folder) as clustered:
            write_manifest(clustered, listed, clusters=joined, found=facts, columns=names)
            return snapshot.named_by_digest(clustered, self.folder)

    def _notes(self, files: int, rows: int) -> Iterator[str]:
        yield (
            f"{files:,} file{'s' * (files != 1)} of the data are read by a manifest: they must "
            "stay as they are until the run has ended"
        )
        if rows > MOST and self.spec.id is not None:
            yield (
                f"ids are not compared with each other: the data have more than {MOST:,} rows and "
                "are not copied. Two items of one id are told apart by their row"
            )

    def _listed(self, files: Sequence[FileInfo]) -> Iterator[ListedFile]:
        """Every file up to the limit of rows, the last one cut there."""
        left = self.spec.limit
        for info in files:
            if left == 0:
                return
            is_parquet = format_of(Path(info.url)) == "parquet"
            file = self._parquet(info) if is_parquet else self._text(info)
            if left is not None:
                file = replace(file, rows=min(left, file.rows))
                left -= file.rows
            yield file

    def _parquet(self, info: FileInfo) -> ListedFile:
        """By its footer."""
        place = info.url
        with reading(place), parquet_file(any_path(place)) as footer:
            rows, schema = footer.metadata.num_rows, footer.schema_arrow
        table = OpenTable(
            columns=tuple(schema.names), rows=lambda _: iter(()), metadata=schema.metadata
        )
        columns = self._resolved(place, table)
        whole = self.hashed and not is_url(place)
        return ListedFile(
            info=info,
            sha256=file_digest(Path(place)) if whole else "",
            rows=rows,
            columns=columns,
            layout=Layout(format="parquet"),
        )

    def _resolved(self, place: str, own: OpenTable) -> Columns:
        """The columns of a file that are read, those of its folders among them."""
        table = with_partitions(own, place)
        columns = resolve(self.spec, table, Path(place))
        self.seen.add(place, table)
        return columns

    def _text(self, info: FileInfo) -> ListedFile:
        """By where its rows begin, which is looked up once."""
        kind = format_of(Path(info.url))
        with _local_head(info) as path:
            dialect = dialect_of(path, self.spec, USUAL[kind])
            if dialect.encoding != UTF8:
                raise _NotUtf8Error(f"{Path(info.url).name} is in {dialect.encoding}:")
            self.seen.notes.append((Path(info.url).name, dialect.detected))
            with FORMATS.load(kind)(path, self.spec) as table:
                columns = self._resolved(info.url, table)
                header = () if kind == "jsonl" else table.columns
        quoting = self.spec.quoting
        layout = Layout(
            format=kind,
            delimiter=dialect.delimiter,
            quoted=quoting != "none" if kind == "csv" else quoting == "rfc4180",
            header=header,
        )
        return self._indexed(ListedFile(info=info, rows=0, columns=columns, layout=layout))

    def _indexed(self, listed: ListedFile) -> ListedFile:
        """With where rows begin, looked up once for a state of the file and kept in a manifest."""
        info = listed.info
        key = json.dumps([asdict(info), asdict(listed.layout), STEP])
        kept = self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.lines"
        with suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return replace(read_manifest(kept).listed(0), columns=listed.columns)
        with reading(info.url), any_path(info.url).open("rb") as stream:
            indexed = index_lines(stream, listed)
        if info_of(any_path(info.url)) != info:
            raise DataSourceError(f"{info.url} was changed while it was read; try again")
        with atomic_file(kept) as path:
            write_manifest(path, [indexed], clusters=None, found={}, columns=())
        return indexed


@contextmanager
def _local_head(info: FileInfo) -> Iterator[Path]:
    """A local file with the beginning of this one, or the file itself."""
    if not is_url(info.url):
        yield Path(info.url)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(info.url).name
        head = remote_files.read_range(info.url, 0, min(info.size, _HEAD))
        whole = len(head) == info.size
        path.write_bytes(head if whole else head[: head.rfind(b"\n") + 1])
        yield path
