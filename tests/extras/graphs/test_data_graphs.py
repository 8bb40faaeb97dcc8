"""Graphs from files to the items of a snapshot, and through an audit to the report."""

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import gallery
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from local_audits import aggregate_of, audited_in
from scipy.sparse.csgraph import shortest_path

import transexplain as te
from transexplain.analysis.groups.answers import answers_of
from transexplain.auditing.region_hiding import NODE_WAYS
from transexplain.data.shard_reader import annotated_groups, clustering_of, graphs_of, read_shard
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError, ItemError
from transexplain.extras.graphs import graph_files
from transexplain.extras.graphs.graph_files import write_graphs
from transexplain.extras.graphs.graph_rows import read_row
from transexplain.extras.graphs.graph_transformer import GraphTransformer
from transexplain.provenance.verification import VerifyRequest
from transexplain.provenance.verify import verify
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.store import readers
from transexplain.types.graphs import drawn_of, edges_of
from transexplain.types.items import Annotation, Item, ItemFailure
from transexplain.types.plans import DatasetRef, DatasetSpec, Shard

ATOMS = ("C", "N", "O", "Cl", "c")
CLASSES = ("inert", "active")
HETERO, ENDS = "part/hetero", "part/ends"


def molecule(number: int) -> dict[str, Any]:
    """A random tree of atoms with one ring, and its substructures."""
    random = np.random.default_rng(number)
    nodes = int(random.integers(4, 10))
    kinds = random.integers(0, len(ATOMS), nodes)
    kinds[0] = 1
    joined = np.zeros((nodes, nodes), dtype=bool)
    for node in range(1, nodes):
        other = int(random.integers(0, node))
        joined[node, other] = joined[other, node] = True
    names = [ATOMS[kind] for kind in kinds]
    groups = [
        [HETERO, [node for node in range(nodes) if names[node] in ("N", "O")]],
        [ENDS, [node for node in range(nodes) if joined[node].sum() == 1]],
    ]
    return {
        "node_features": np.eye(len(ATOMS), dtype=np.float32)[kinds],
        "distances": shortest_path(joined, unweighted=True).astype(np.int64),
        "degrees": joined.sum(axis=1),
        "node_names": names,
        "edges": np.argwhere(np.triu(joined)),
        "node_groups": groups,
        "label": CLASSES[number % 2],
        "id": f"mol-{number}",
        "text": "".join(names),
        "meta.scaffold": f"s{number % 3}",
    }


def molecules(count: int) -> list[dict[str, Any]]:
    """So many molecules, the same every time."""
    return [molecule(number) for number in range(count)]


def make_graph_audit(folder: Path, *, count: int = 12, **keys: Any) -> dict[str, Any]:
    """Write a model and graphs below `folder`, and return the specification of their audit."""
    torch.manual_seed(0)
    network = GraphTransformer(width=len(ATOMS), classes=2, hidden=8, heads=2, layers=1, far=4)
    network.save(folder / "model", CLASSES)
    if not (folder / "graphs").exists():
        write_graphs(folder / "graphs", molecules(count))
    return {
        "model": str(folder / "model"),
        "data": {"source": f"graphs:{folder / 'graphs'}", "spans": "node_groups"},
        "groups": {"check": 100, "randomised": False},
        **keys,
    }


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


@pytest.mark.exhaustive
def test_an_audit_from_files_to_the_report(tmp_path: Path) -> None:
    keys = make_graph_audit(tmp_path, shard_size=5)
    model = te.load_model(keys["model"])
    with audited_in(tmp_path, **keys) as (db, run):
        stored = {one.item_id: one for one in readers.iter_attributions(db, run)}
        assert len(stored) == 12
        for number in (0, 7):
            graph = molecule(number)
            [alone] = te.explain(model, graph)
            one = stored[graph["id"]]
            assert [token.text for token in one.features] == ["[graph]", *graph["node_names"]]
            assert one.relevance == pytest.approx(alone.relevance, abs=1e-3)
            assert one.logit == pytest.approx(alone.logit, abs=1e-6)
        for mention in readers.iter_mentions(db, run):
            one, graph = stored[mention.item_id], molecule(int(mention.item_id[4:]))
            [nodes] = [n for group, n in graph["node_groups"] if group == mention.group]
            own = np.asarray(one.relevance, dtype=np.float64)[1:]
            assert mention.relevance == pytest.approx(own[nodes].sum(), abs=2e-3)
        checks = list(verify(db, run, VerifyRequest(items=3)))
        assert {check.status for check in checks} <= {"PASS", "NOTE"}, checks
        summary = summarise(db, run)
        page = render_html(summary)
        names = {row.word for view in summary.classes for row in view.lowering_by_total}
        names |= {row.word for view in summary.classes for row in view.raising_by_total}
        assert {"C", "c"} <= names, "names of nodes keep their case"
        assert {row.group for row in summary.groups.counterfactuals} == {ENDS, HETERO}
        assert {row.kind for row in summary.groups.counterfactuals} == {"substructure"}
        [first, *_] = summary.gallery.items
        assert first.shape is not None and first.about == molecule(int(first.item_id[4:]))["text"]
        assert all(len(one.nodes) == len(first.shape.names) for one in first.explanations)
    assert page.count('<svg xmlns="http://www.w3.org/2000/svg" class="graph"') == 12
    _, _, after = page.partition('<section id="examples"')
    examples = after.partition("</section>")[0]
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", examples)


@pytest.mark.exhaustive
def test_hashed_names_of_nodes_are_not_stored(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", "k" * 40)
    keys = make_graph_audit(tmp_path, store_text="hashed")
    with audited_in(tmp_path, **keys) as (db, run):
        texts = {token.text for one in readers.iter_attributions(db, run) for token in one.features}
        assert not {"C", "Cl", "c", "N"} & texts
        assert 'class="graph"' not in render_html(summarise(db, run))


def test_hidden_nodes_are_those_of_the_model_itself(tmp_path: Path) -> None:
    """Every graph changed and answered again by hand."""
    prepared = gallery.prepare(make_graph_audit(tmp_path), tmp_path)
    plan, module = prepared.plan, prepared.model.module
    found = sorted(aggregate_of(prepared, 1).checked.regions)
    assert {one.group for one in found} == {ENDS, HETERO}

    @torch.no_grad()
    def log_odds(graph: dict[str, Any]) -> tuple[float, ...]:
        inputs = [
            torch.as_tensor(graph[n])[None] for n in ("node_features", "distances", "degrees")
        ]
        logits = module(inputs[0].float(), *inputs[1:])[0].numpy().astype(np.float64)
        return tuple(float(one.log_odds(logits)) for one in answers_of(plan))

    for one in found:
        graph = molecule(int(one.document[4:]))
        gone = set(graph["node_groups"][one.place][1])
        kept = [node for node in range(len(graph["degrees"])) if node not in gone]
        removed = {
            "node_features": graph["node_features"][kept],
            "distances": np.array([[graph["distances"][a, b] for b in kept] for a in kept]),
            "degrees": graph["degrees"][kept],
        }
        averaged, emptied = (dict(graph, node_features=graph["node_features"].copy()) for _ in "12")
        for node in gone:
            averaged["node_features"][node] = graph["node_features"][kept].mean(axis=0)
            emptied["node_features"][node] = 0.0
        by_hand = [log_odds(one) for one in (removed, averaged, emptied)]
        assert one.log_odds == pytest.approx(log_odds(graph), abs=1e-6)
        assert np.array(one.hidden) == pytest.approx(np.array(by_hand), abs=1e-6)
        assert len(one.hidden) == len(NODE_WAYS)


def test_a_bad_graph_costs_no_other(tmp_path: Path) -> None:
    graphs = molecules(8)
    graphs[2]["node_features"] = np.ones((len(graphs[2]["degrees"]), 7))
    graphs[3]["distances"] = graphs[3]["distances"][:2, :2]
    graphs[4]["attention_bias"] = np.zeros(graphs[4]["distances"].shape)
    write_graphs(tmp_path / "graphs", graphs)
    (tmp_path / "graphs" / "000005.npz").write_bytes(b"damaged")
    with audited_in(tmp_path, **make_graph_audit(tmp_path)) as (db, run):
        items = list(readers.iter_items(db, run))
    failed = {one.item_id: one.message for one in items if isinstance(one, ItemFailure)}
    assert sorted(failed) == ["000005.npz", "mol-2", "mol-3", "mol-4"]
    assert "model takes 5" in failed["mol-2"]
    assert "row for each" in failed["mol-3"]
    assert "input 'attention_bias'" in failed["mol-4"]
    assert failed["000005.npz"].startswith("000005.npz: it is no npz file")
    assert len(items) == 8


def test_the_verbs_read_graphs(tmp_path: Path, call: Any) -> None:
    keys = make_graph_audit(tmp_path, count=3)
    (tmp_path / "audit.yaml").write_text(json.dumps(keys))
    code, printed = call("validate", "audit.yaml")
    assert code == 0 and "3 rows were" in printed
    assert "classes inert, active" in printed
    file = str(tmp_path / "graphs" / "000001.npz")
    code, printed = call("explain", file, "-m", keys["model"])
    assert code == 0 and molecule(1)["node_names"][0] in printed
    code, printed = call("explain", file, "-m", keys["model"], "-o", "graph.svg")
    assert code == 0 and (tmp_path / "graph.svg").read_text().startswith("<svg")
    code, printed = call("explain", file, "-m", keys["model"], "-o", "graph.png")
    assert code == 2 and "write .svg" in printed
    code, printed = call("explain", "nowhere.npz", "-m", keys["model"])
    assert code == 2 and "reads graphs (.npz)" in printed
