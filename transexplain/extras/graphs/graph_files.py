"""Reads and writes folders of graphs: npz files of one graph each, or rows of Parquet files."""

import json
import zipfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from transexplain.data.parquet_files import RowGroups
from transexplain.data.source_files import Record, printable, reading, reading_row
from transexplain.data.table_source import meta_json
from transexplain.errors import DataSourceError, ItemError, did_you_mean
from transexplain.extras.graphs.graph_rows import BAD_GRAPH, GraphRow, pack, read_row
from transexplain.files.atomic_write import atomic_file
from transexplain.files.local_copies import folder_here
from transexplain.files.paths import AnyPath
from transexplain.types.graphs import GROUPS, META
from transexplain.types.plans import DatasetSpec, Modality

SUFFIXES = (".npz", ".parquet")
MAX_BYTES = 256 * 1024 * 1024  #: of the arrays of one file
_TOGETHER = 64  #: rows of a Parquet file


def read_graph_file(path: Path, groups: str = GROUPS) -> GraphRow:
    """The graph of one npz file.

    Raises ItemError: bad-graph (not such a file, damaged, too large, or what it holds is no
    graph), empty-graph, bad-spans.
    """
    return read_row(_arrays(path), groups)


def write_graphs(
    folder: str | Path,
    graphs: Iterable[Mapping[str, Any]],
    *,
    format: Literal["npz", "parquet"] = "npz",
) -> list[Path]:
    """Write graphs as the files that `graphs:DIR` reads, and return their paths.

    Args:
        folder: is made where it is not there; it must hold no graphs yet.
        graphs: mappings by name. `node_features` (T, F) and the further inputs of the model are
            arrays or nested lists; `node_names`, `edges`, `node_positions`, `node_groups`, `label`,
            `id`, `text` and `meta.*` are as the manual has them.
        format: npz: one file a graph, `000000.npz` and so on; parquet: one row a graph in
            `graphs.parquet`, better from some thousand graphs on.

    Raises DataSourceError for a graph that could not be read again, naming its place, and for a
    folder that holds graphs.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if any(path.suffix in SUFFIXES for path in place.iterdir()):
        raise DataSourceError(f"{place} holds graphs already; give an empty folder")
    checked = (_checked(number, graph) for number, graph in enumerate(graphs))
    if format == "npz":
        return [
            _write_npz(place / f"{number:06}.npz", graph) for number, graph in enumerate(checked)
        ]
    if format == "parquet":
        return [_write_parquet(place / "graphs.parquet", list(checked))]
    raise DataSourceError(f"unknown format {format!r} of graphs; known: npz, parquet")


class GraphSource:
    """The graphs of a folder in the order of their files' names.

    A graph's id is its `id`, else the name of its file (npz) or its number (Parquet).
    """

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        _refuse_columns(spec)
        self._spec = spec
        self._copy = folder_here(location)
        self._files = _found(self._copy.folder, location)
        self.root = ""
        self.modality: Modality = "nodes"
        self.numbered, self.named, self.marked = False, True, False

    def files(self) -> Sequence[AnyPath]:
        """The files in order of their names."""
        return [self._copy.original(path) for path in self._files]

    def records(self) -> Generator[Record]:
        """One record per graph; a bad one becomes its error."""
        index = 0
        for path in self._files:
            rows = _rows(path) if path.suffix == ".parquet" else iter([None])
            for number, row in enumerate(rows):
                yield self._record(index, path, number, row)
                index += 1

    def _record(self, index: int, path: Path, number: int, row: Mapping[str, Any] | None) -> Record:
        name = printable(path.name)
        usual, where = (name, name) if row is None else (str(index), f"{name}, row {number}")
        try:
            with reading_row():
                given = (
                    _arrays(path)
                    if row is None
                    else {name: _value(name, cell) for name, cell in row.items() if cell.is_valid}
                )
                graph = read_row(given, self._spec.spans or GROUPS)
                meta = self._kept(graph.meta)
                content = pack(graph.content)
        except ItemError as fault:
            error = printable(f"{where}: {fault}")
            return Record(usual, index, error_kind=fault.kind, error=error)
        cluster = graph.meta.get(self._spec.cluster) if self._spec.cluster else None
        return Record(
            graph.id or usual,
            index,
            content,
            graph.label,
            meta_json(dict(meta)),
            annotations=graph.groups if self._spec.spans else None,
            cluster=cluster,
        )

    def _kept(self, meta: Mapping[str, str]) -> Mapping[str, str]:
        """All of the metadata, or what `data.meta` names; raises ItemError."""
        for name in (*self._spec.meta, *filter(None, [self._spec.cluster])):
            if name not in meta:
                near = did_you_mean(name, meta)
                raise ItemError(BAD_GRAPH, f"it has no {META + name!r}{near}")
        return {name: meta[name] for name in self._spec.meta} if self._spec.meta else meta


def _refuse_columns(spec: DatasetSpec) -> None:
    if any((spec.text, spec.image, spec.label, spec.id, spec.evidence, spec.template)):
        raise DataSourceError(
            "graphs name their own label, id and text; remove text, image, label, id, evidence and "
            "template (meta, cluster and spans name what stands in the files)"
        )


def _found(folder: Path, location: str) -> list[Path]:
    paths = sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")
    )
    kept = [path for path in paths if path.suffix in SUFFIXES]
    kinds = {path.suffix for path in kept}
    if not kept:
        counts = Counter(path.suffix or "no suffix" for path in paths)
        listing = ", ".join(f"{count} {suffix}" for suffix, count in counts.most_common(5))
        raise DataSourceError(
            f"{location!r} holds no graphs (.npz or .parquet); it holds {listing or 'no files'}"
        )
    if len(kinds) > 1:
        raise DataSourceError(
            f"{location!r} holds both .npz and .parquet files; keep one kind in the folder"
        )
    return kept


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_BYTES:
            raise ItemError(BAD_GRAPH, f"its arrays are {size:,} bytes, more than {MAX_BYTES:,}")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except ItemError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ItemError(BAD_GRAPH, f"it cannot be read: {reason}") from error
    except Exception as error:  # a reader fed hostile bytes may fail in any way at all
        why = "it is no npz file of plain arrays (numpy.savez), or it is damaged"
        raise ItemError(BAD_GRAPH, f"{why}: {error}") from error


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The cells of every row by column, as scalars of pyarrow."""
    with reading(path):
        groups = RowGroups(lambda **how: pq.ParquetFile(path, **how), path)
        names = groups.file.schema_arrow.names
        for group in range(groups.file.num_row_groups):
            for batch in groups.batches(group, names, _TOGETHER):
                for row in range(len(batch)):
                    yield {name: batch.column(name)[row] for name in names}


def _value(name: str, cell: Any) -> Any:
    if not _is_list(cell.type):
        return cell.as_py()
    kind = cell.type
    while _is_list(kind):
        kind = kind.value_type
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if name == GROUPS or not any(check(kind) for check in checks):
        return cell.as_py()
    values, shape = cell.values, [len(cell.values)]
    while _is_list(values.type):
        lengths = set(pc.list_value_length(values).to_pylist())
        if len(lengths) > 1 or None in lengths:
            raise ItemError(BAD_GRAPH, f"{name!r} is ragged: its lists differ in length")
        shape.append(lengths.pop() if lengths else 0)
        values = values.flatten()
    if values.null_count:
        raise ItemError(BAD_GRAPH, f"{name!r} holds null; every entry is a number")
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def _is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def _checked(number: int, graph: Mapping[str, Any]) -> dict[str, Any]:
    """The graph as it is written; raises DataSourceError naming its place."""
    try:
        row = read_row(graph)
    except ItemError as fault:
        raise DataSourceError(f"graph {number}: {fault}") from fault
    kept: dict[str, Any] = {
        name: value if isinstance(value, np.ndarray) else np.array(value, dtype=np.str_)
        for name, value in row.content.items()
    }
    texts = {"id": row.id, "label": row.label, "text": row.meta.get("text")}
    texts |= {f"{META}{name}": value for name, value in row.meta.items() if name != "text"}
    kept |= {name: value for name, value in texts.items() if value is not None}
    if row.groups is not None:
        entries = json.loads(row.groups)
        named = [
            [group, nodes, entity] if entity else [group, nodes] for nodes, group, entity in entries
        ]
        kept[GROUPS] = json.dumps(named, ensure_ascii=False)
    return kept


def _write_npz(path: Path, graph: Mapping[str, Any]) -> Path:
    if odd := {"file", "allow_pickle"} & graph.keys():
        raise DataSourceError(f"an input of the name {odd.pop()!r} cannot be kept in an npz file")
    with atomic_file(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **graph)
    return path


def _write_parquet(path: Path, graphs: Sequence[Mapping[str, Any]]) -> Path:
    if not graphs:
        raise DataSourceError("there are no graphs to write")
    names = dict.fromkeys(name for graph in graphs for name in graph)
    columns = {name: _column([graph.get(name) for graph in graphs]) for name in names}
    with atomic_file(path) as temporary:
        pq.write_table(pa.table(columns), temporary, row_group_size=1024, compression="zstd")
    return path


def _column(cells: Sequence[Any]) -> pa.Array:
    """One name of all graphs; its arrays share a number type and a number of axes."""
    arrays = [cell for cell in cells if isinstance(cell, np.ndarray)]
    if not arrays:
        return pa.array(cells, type=pa.string())
    number = np.result_type(*(array.dtype for array in arrays))
    kind = pa.string() if number.kind == "U" else pa.from_numpy_dtype(number)
    for _ in range(max(array.ndim for array in arrays)):
        kind = pa.list_(kind)
    return pa.array([None if cell is None else cell.tolist() for cell in cells], type=kind)


def structure(edges: ArrayLike, nodes: int) -> dict[str, NDArray[Any]]:
    """The inputs of a graph transformer that follow from undirected edges, and the edges.

    Args:
        edges: (E, 2) pairs of nodes, counted from 0.
        nodes: T.

    Returns:
        `distances` (T, T) int64: edges on the shortest path, T where no path joins two nodes;
        `degrees` (T,) int64: edges of each node; `edges` (E, 2) int64, each once.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    pairs = np.sort(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    joined = coo_array((np.ones(len(pairs)), pairs.T), shape=(nodes, nodes))
    paths = shortest_path(joined.tocsr(), directed=False, unweighted=True)
    return {
        "distances": np.where(np.isinf(paths), nodes, paths).astype(np.int64),
        "degrees": np.bincount(pairs.ravel(), minlength=nodes).astype(np.int64),
        "edges": pairs,
    }
