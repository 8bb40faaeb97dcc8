"""Audits of graphs from files: run, stored, verified and reported, in one shard and in many."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gallery import prepare
from local_audits import aggregate_of, audited_in
from made_molecules import ENDS, HETERO, make_graph_audit, molecule, molecules

import transexplain as te
from transexplain.analysis.groups.answers import answers_of
from transexplain.auditing.region_hiding import NODE_WAYS
from transexplain.extras.graphs.graph_files import write_graphs
from transexplain.provenance.verification import VerifyRequest
from transexplain.provenance.verify import verify
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import redacted, summarise
from transexplain.store import results
from transexplain.types.items import ItemFailure


@pytest.mark.exhaustive
def test_an_audit_from_files_to_the_report(tmp_path: Path) -> None:
    keys = make_graph_audit(tmp_path, shard_size=5)
    model = te.load_model(keys["model"])
    with audited_in(tmp_path, **keys) as (db, run):
        stored = {one.item_id: one for one in results.iter_attributions(db, run)}
        assert len(stored) == 12
        for number in (0, 7):
            graph = molecule(number)
            [alone] = te.explain(model, graph)
            one = stored[graph["id"]]
            assert [token.text for token in one.features] == ["[graph]", *graph["node_names"]]
            assert one.relevance == pytest.approx(alone.relevance, abs=1e-3)
            assert one.logit == pytest.approx(alone.logit, abs=1e-6)
        for mention in results.iter_mentions(db, run):
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
    assert "Hidden substructures" in page and "picture" not in page.split("<h2")[1]
    assert "egions" not in page.partition("</head>")[2].partition("<script")[0]
    _, _, after = page.partition('<section id="examples"')
    examples = after.partition("</section>")[0]
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", examples)


@pytest.mark.exhaustive
def test_a_report_without_texts_draws_no_graph(tmp_path: Path) -> None:
    with audited_in(tmp_path, **make_graph_audit(tmp_path)) as (db, run):
        page = render_html(redacted(summarise(db, run), 2))
    assert 'class="graph"' not in page and "mol-0" not in page
    assert molecule(0)["text"] not in page


@pytest.mark.exhaustive
def test_hashed_names_of_nodes_are_not_stored(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", "k" * 40)
    keys = make_graph_audit(tmp_path, store_text="hashed")
    with audited_in(tmp_path, **keys) as (db, run):
        texts = {token.text for one in results.iter_attributions(db, run) for token in one.features}
        assert not {"C", "Cl", "c", "N"} & texts
        assert 'class="graph"' not in render_html(summarise(db, run))


@pytest.mark.exhaustive
def test_any_cut_into_shards_gives_the_same_totals(tmp_path: Path) -> None:
    """Every graph in a batch of its own, since sums in float32 differ with what is in a batch."""
    prepared = prepare(make_graph_audit(tmp_path, batch_tokens=1), tmp_path)
    assert prepared.plan.check is not None and prepared.plan.check.regions
    whole, parts = (aggregate_of(prepared, shards) for shards in (1, 5))
    assert len(whole.checked.regions) > 12
    assert sorted(whole.checked.regions) == sorted(parts.checked.regions)
    for name in ("items", "predictions", "entities", "words", "outcomes"):
        same = whole.to_json()[name] == parts.to_json()[name]
        assert same, name


def test_hidden_nodes_are_those_of_the_model_itself(tmp_path: Path) -> None:
    """Every graph changed and answered again by hand."""
    prepared = prepare(make_graph_audit(tmp_path), tmp_path)
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
        items = list(results.iter_items(db, run))
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
