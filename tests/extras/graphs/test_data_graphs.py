"""Graphs in files: what is written is read, every bad graph is named, and the others are read."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_molecules import ENDS, HETERO, molecules

from transexplain.data.shard_reader import annotated_groups, clustering_of, graphs_of, read_shard
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError, ItemError
from transexplain.extras.graphs import graph_files
from transexplain.extras.graphs.graph_files import read_graph_file, write_graphs
from transexplain.extras.graphs.graph_rows import pack, read_row, unpack
from transexplain.types.graphs import drawn_of, edges_of
from transexplain.types.items import Annotation, Item, ItemFailure
from transexplain.types.plans import DatasetRef, DatasetSpec, Shard

FEATURES = np.ones((3, 2), dtype=np.float32)


def prepared(folder: Path, tmp_path: Path, **options: Any) -> DatasetRef:
    return prepare(DatasetSpec(source=f"graphs:{folder}", **options), tmp_path / "snapshots")


def read(ref: DatasetRef) -> list[Item | ItemFailure]:
    return list(read_shard(ref, Shard(index=0, start=0, stop=ref.rows)))


@pytest.mark.parametrize("format", ["npz", "parquet"])
def test_graphs_come_back_as_they_were_written(tmp_path: Path, format: Any) -> None:
    given = molecules(5)
    given[1]["attention_bias"] = np.random.default_rng(0).normal(
        size=(2, *given[1]["distances"].shape)
    )
    given[2]["node_positions"] = np.random.default_rng(1).normal(size=(len(given[2]["degrees"]), 2))
    del given[3]["node_groups"], given[3]["label"]
    write_graphs(tmp_path / "graphs", given, format=format)
    ref = prepared(tmp_path / "graphs", tmp_path, spans="node_groups")
    assert (ref.modality, ref.rows) == ("nodes", 5)
    for graph, item in zip(given, read(ref), strict=True):
        assert isinstance(item, Item)
        assert (item.id, item.label) == (graph["id"], graph.get("label"))
        assert item.meta == {"text": graph["text"], "scaffold": graph["meta.scaffold"]}
        for name in ("node_features", "distances", "degrees", "attention_bias"):
            if name in graph:
                assert np.array_equal(item.content[name], graph[name]), name
                assert item.content[name].dtype == graph[name].dtype, name
        assert item.content["node_names"] == graph["node_names"]
        assert np.array_equal(item.content["edges"], graph["edges"])
        if "node_positions" in graph:
            assert item.content["node_positions"] == pytest.approx(graph["node_positions"])
        marked = [
            Annotation(group=g, entity="", nodes=tuple(n)) for g, n in graph.get("node_groups", ())
        ]
        assert list(item.annotations) == marked
    assert annotated_groups(ref) == sorted([ENDS, HETERO])


def test_both_kinds_of_files_hold_the_same_items(tmp_path: Path) -> None:
    found = []
    for format in ("npz", "parquet"):
        write_graphs(tmp_path / format, molecules(4), format=format)
        found.append(prepared(tmp_path / format, tmp_path).fingerprint)
    assert found[0] == found[1]


def test_a_snapshot_is_found_again_and_another_graph_changes_it(tmp_path: Path) -> None:
    paths = write_graphs(tmp_path / "graphs", molecules(3))
    first = prepared(tmp_path / "graphs", tmp_path)
    again = prepared(tmp_path / "graphs", tmp_path)
    assert (first.fingerprint, len(first.files)) == (again.fingerprint, 3)
    paths[0].unlink()
    assert prepared(tmp_path / "graphs", tmp_path).fingerprint != first.fingerprint


def test_metadata_can_be_chosen_and_makes_clusters(tmp_path: Path) -> None:
    write_graphs(tmp_path / "graphs", molecules(6))
    ref = prepared(tmp_path / "graphs", tmp_path, meta=("scaffold",), cluster="scaffold")
    assert [item.meta for item in read(ref)][:1] == [{"scaffold": "s0"}]
    assert clustering_of(ref)["clusters"] == 3
    missing = read(prepared(tmp_path / "graphs", tmp_path, meta=("scafold",)))
    assert {one.kind for one in missing if isinstance(one, ItemFailure)} == {"bad-graph"}
    assert "you mean 'scaffold'?" in missing[0].message


def test_names_of_substructures_by_node(tmp_path: Path) -> None:
    row = read_row({"node_features": FEATURES, "node_groups": np.array(["a", "", "a"])})
    assert row.groups == '[[[0, 2], "a", ""]]'
    named = read_row({"node_features": FEATURES, "node_groups": '[["a", [1], "b"]]'})
    assert named.groups == '[[[1], "a", "b"]]'


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"node_features": None}, "bad-graph", "has no 'node_features'"),
        ({"node_features": np.ones(3)}, "bad-graph", "expected (T, F)"),
        ({"node_features": np.ones((3, 0))}, "bad-graph", "expected (T, F)"),
        ({"node_features": np.ones((0, 2))}, "empty-graph", "no nodes"),
        ({"node_features": [[1.0, np.nan], [0, 0], [0, 0]]}, "bad-graph", "at node 0"),
        ({"node_features": np.array([["a"]])}, "bad-graph", "meta.node_features"),
        ({"node_features": np.ones((3, 2), dtype=complex)}, "bad-graph", "not numbers"),
        ({"smiles": "CC"}, "bad-graph", "call it meta.smiles"),
        ({"node_names": ["a"]}, "bad-graph", "each of 3"),
        ({"edges": [[0, 3]]}, "bad-graph", "outside 0"),
        ({"edges": [[0.5, 1.0]]}, "bad-graph", "whole numbers"),
        ({"edges": [[0, 1, 2]]}, "bad-graph", "(E, 2)"),
        ({"node_positions": np.ones((2, 2))}, "bad-graph", "shape (3, 2)"),
        ({"node_positions": np.full((3, 2), np.nan)}, "bad-graph", "NaN"),
        ({"label": np.array(["a", "b"])}, "bad-graph", "'label'"),
        ({"node_groups": ["a"]}, "bad-spans", "each of 3"),
        ({"node_groups": "{"}, "bad-spans", "JSON list"),
        ({"node_groups": [["a", [3]]]}, "bad-spans", "0 to 2"),
        ({"node_groups": [["a", []]]}, "bad-spans", "0 to 2"),
        ({"node_groups": [["", [1]]]}, "bad-spans", "not empty"),
        ({"node_groups": [["a"]]}, "bad-spans", "[group, nodes, entity]"),
    ],
)
def test_what_is_wrong_with_a_graph_is_said(change: dict[str, Any], kind: str, words: str) -> None:
    with pytest.raises(ItemError) as raised:
        read_row({"node_features": FEATURES, **change})
    assert raised.value.kind == kind
    assert words in str(raised.value)


def test_one_bad_file_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "graphs"
    write_graphs(folder, molecules(2))
    good = (folder / "000000.npz").read_bytes()
    (folder / "cut.npz").write_bytes(good[: len(good) // 2])
    (folder / "empty.npz").write_bytes(b"")
    (folder / "text.npz").write_text("no zip")
    np.savez(folder / "pickle.npz", node_features=np.array([{"a": 1}], dtype=object))
    np.savez(folder / "nan.npz", node_features=np.full((2, 2), np.nan))
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("node_features.npy", bytes(20_000))
    (folder / "bomb.npz").write_bytes(stored.getvalue())
    monkeypatch.setattr(graph_files, "MAX_BYTES", 19_000)
    found = read(prepared(folder, tmp_path))
    good_ones = [one.id for one in found if isinstance(one, Item)]
    failed = {one.item_id: one for one in found if isinstance(one, ItemFailure)}
    assert good_ones == ["mol-0", "mol-1"]
    assert sorted(failed) == sorted(
        f"{n}.npz" for n in ["cut", "empty", "text", "pickle", "nan", "bomb"]
    )
    assert {one.kind for one in failed.values()} == {"bad-graph"}
    assert all(one.message.startswith(f"{name}: ") for name, one in failed.items())
    assert "more than 19,000" in failed["bomb.npz"].message
    assert "numpy.savez" in failed["text.npz"].message


def test_rows_that_are_ragged_or_null_are_failures(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    rows = [[[1.0, 2.0], [3.0]], [[1.0, None]], None, [[1.0, 2.0]]]
    kind = pa.list_(pa.list_(pa.float32()))
    table = pa.table({"node_features": pa.array(rows, type=kind), "label": ["a"] * 4})
    pq.write_table(table, tmp_path / "graphs" / "g.parquet")
    *bad, good = read(prepared(tmp_path / "graphs", tmp_path))
    assert isinstance(good, Item) and good.id == "3"
    messages = [one.message for one in bad if isinstance(one, ItemFailure)]
    assert ["ragged" in messages[0], "null" in messages[1], "has no" in messages[2]] == [True] * 3
    assert messages[0].startswith("g.parquet, row 0: ")


def test_folders_that_hold_no_graphs(tmp_path: Path) -> None:
    folder = tmp_path / "g"

    def refused(named: str, **options: Any) -> None:
        with pytest.raises(DataSourceError, match=named):
            prepared(folder, tmp_path, **options)

    refused(str(folder))
    folder.mkdir()
    refused("no files")
    (folder / "a.csv").write_text("text\n")
    refused(r"1 \.csv")
    write_graphs(folder, molecules(1))
    refused("label", label="label")
    (folder / "b.parquet").write_bytes(b"no parquet")
    refused(r"\.npz and \.parquet")
    (folder / "000000.npz").unlink()
    refused(r"b\.parquet")


def test_writing_refuses_what_could_not_be_read(tmp_path: Path) -> None:
    def refused(named: str, graphs: list[Any], **options: Any) -> None:
        with pytest.raises(DataSourceError, match=named):
            write_graphs(tmp_path / "g", graphs, **options)

    refused("'node_features'", [molecules(1)[0], {"x": FEATURES}])
    refused("graphs already", molecules(1))
    (tmp_path / "g" / "000000.npz").unlink()
    refused("'csv'", molecules(1), format="csv")
    refused("graphs", [], format="parquet")
    refused("'file'", [{"node_features": FEATURES, "file": FEATURES}])


def test_one_file_is_read_alone(tmp_path: Path) -> None:
    [path] = write_graphs(tmp_path, molecules(1))
    row = read_graph_file(path)
    assert (row.id, row.label) == ("mol-0", "inert")
    assert unpack(pack(row.content)).keys() == row.content.keys()


def test_edges_are_those_given_or_those_of_the_inputs() -> None:
    path = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    joined = [[0, 1], [1, 2]]
    assert edges_of({"distances": path}, 3).tolist() == joined
    assert edges_of({"adjacency": path == 1}, 3).tolist() == joined
    assert edges_of({"edges": [[1, 0], [0, 1], [2, 2]], "distances": path}, 3).tolist() == [[0, 1]]
    assert edges_of({}, 3).tolist() == []
    assert drawn_of({"distances": path, "degrees": path}) == {"distances": path}


def test_the_graphs_of_some_rows(tmp_path: Path) -> None:
    write_graphs(tmp_path / "graphs", molecules(3))
    ref = prepared(tmp_path / "graphs", tmp_path)
    assert sorted(graphs_of(ref, [2, 0])) == [0, 2]
    Path(ref.snapshot).unlink()
    assert graphs_of(ref, [0]) == {}
