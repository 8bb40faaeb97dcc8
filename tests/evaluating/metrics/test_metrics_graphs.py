"""Evaluation on graphs: nodes removed by hand beside `evaluate`, and what cannot be removed."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from toy_graphs import Biased, Graphormer, Unmasked, biased_item, graphormer_item, toy

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import TABLE
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item
from transexplain.types.scores import MetricSpec

CLASSES = ("a", "b", "c")
SIZES = (7, 3, 5, 12, 9, 2)
FOR_GRAPHS = sorted(name for name, facts in TABLE.items() if "nodes" in facts.modalities)


def wrapped(kind: type[nn.Module]) -> LoadedModel:
    return te.wrap(toy(kind).double(), modality="nodes", classes=CLASSES)


def without_nodes(graph: dict[str, Any], kept: list[int]) -> dict[str, torch.Tensor]:
    """The inputs of a batch of one: rows of nodes, rows and columns of pairs."""
    cut = {}
    for name, values in graph.items():
        array = np.asarray(values)[kept]
        cut[name] = torch.from_numpy(array[:, kept] if name == "distances" else array)[None]
    cut["attention_mask"] = torch.ones(1, len(kept), dtype=torch.long)
    return cut


def slow_curve(
    network: nn.Module, graph: dict[str, Any], relevance: np.ndarray, metric: str, steps: int = 10
) -> float:
    """Ali et al. 2022, section 6.2, graph by graph and node by node."""
    nodes = len(relevance)
    with torch.no_grad():
        whole = network(**without_nodes(graph, list(range(nodes))))[0]
    explained = int(whole.argmax())
    key = -relevance if metric == "activation" else np.abs(relevance)
    order = sorted(range(nodes), key=lambda node: key[node])
    points = []
    for step in range(steps + 1):
        count = round(step / steps * nodes)
        kept = order[:count] if metric == "activation" else order[count:]
        with torch.no_grad():
            logits = network(**without_nodes(graph, sorted(kept)))[0]
        if metric == "activation":
            points.append(float(logits.softmax(0)[explained]))
        else:
            points.append(float((logits - whole).square().sum()))
    return float(np.trapezoid(points, dx=1 / steps))


@pytest.mark.parametrize("metric", ["activation", "pruning"])
def test_removing_nodes_is_what_it_is_by_hand(metric: str) -> None:
    model = wrapped(Graphormer)
    graphs = [graphormer_item(nodes, seed=4) for nodes in SIZES]
    methods = ("lrp", "gradient-x-input", "attention-last")
    [table] = te.evaluate(model, graphs, methods=methods, metrics=metric)
    assert {one.method for one in table.rows} == {*methods, "random"}
    for method in methods:
        found = te.explain(model, graphs, method=method)
        relevances = [
            one.relevance[np.array([not token.special for token in one.features])] for one in found
        ]
        assert [len(one) for one in relevances] == list(SIZES)
        slow = [
            slow_curve(model.module, graph, relevance, metric)
            for graph, relevance in zip(graphs, relevances, strict=True)
        ]
        [row] = [one for one in table.rows if one.method == method]
        assert row.items == len(SIZES)
        assert row.mean == pytest.approx(np.mean(slow), rel=1e-9)
        assert np.std(slow) > 0


def test_without_a_mask_features_become_zero() -> None:
    model = wrapped(Unmasked)
    graphs = [biased_item(nodes) for nodes in (5, 8)]
    [table] = te.evaluate(model, graphs, methods="lrp", metrics="activation")
    [row] = [one for one in table.rows if one.method == "lrp"]
    found = te.explain(model, graphs, method="lrp")
    areas = []
    for graph, one in zip(graphs, found, strict=True):
        points = []
        for count in (round(step / 10 * len(one.relevance)) for step in range(11)):
            shown = np.argsort(-one.relevance, kind="stable")[:count]
            features = np.zeros_like(graph["node_features"])
            features[shown] = graph["node_features"][shown]
            inputs = {**graph, "node_features": features}
            with torch.no_grad():
                logits = model.module(**{n: torch.from_numpy(v)[None] for n, v in inputs.items()})
            points.append(float(logits[0].softmax(0)[one.class_index]))
        areas.append(np.trapezoid(points, dx=0.1))
    assert row.mean == pytest.approx(np.mean(areas), rel=1e-9)
    refused = MetricSpec(name="activation", params={"baseline": "remove"})
    with pytest.raises(ConfigurationError, match=r"no attention_mask.*use baseline=\"zero\""):
        te.evaluate(model, graphs, metrics=[refused])


class MaskedInVain(Biased):
    """Pools over padding, too, so that masking a node does not remove it."""

    def pooled(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return x.mean(1)


def test_a_mask_that_does_not_remove_is_not_used() -> None:
    model = wrapped(MaskedInVain)
    graphs = [biased_item(nodes) for nodes in (5, 8)]
    refused = MetricSpec(name="activation", params={"baseline": "remove"})
    with pytest.raises(ConfigurationError, match="gives other logits beside masked nodes"):
        te.evaluate(model, graphs, metrics=[refused])
    zero = MetricSpec(name="activation", params={"baseline": "zero"})
    tables = [te.evaluate(model, graphs, metrics=[one])[0] for one in ("activation", zero)]
    assert tables[0].rows[0].mean == tables[1].rows[0].mean


def test_what_graphs_do_not_have_is_refused() -> None:
    model, graphs = wrapped(Graphormer), [graphormer_item(5)]
    with pytest.raises(ConfigurationError, match="baselines of graphs are: auto, remove, zero"):
        te.evaluate(model, graphs, metrics=[MetricSpec(name="pruning", params={"baseline": "unk"})])
    with pytest.raises(ConfigurationError, match="a graph has tokens: its nodes"):
        te.evaluate(model, graphs, metrics=[MetricSpec(name="pruning", params={"over": "words"})])


def test_every_metric_for_graphs_has_a_value() -> None:
    model = wrapped(Graphormer)
    graphs = [
        Item(id=str(row), index=row, content=graphormer_item(nodes, seed=1), label=CLASSES[0])
        for row, nodes in enumerate(SIZES)
    ]
    tables = te.evaluate(model, graphs, methods=["lrp"], metrics=FOR_GRAPHS)
    assert {"activation", "pruning", "conservation", "ledger-gap", "runtime", "sparsity"} <= {
        table.metric for table in tables
    }
    assert [table.metric for table in tables] == FOR_GRAPHS
    for table in tables:
        [row] = [one for one in table.rows if one.method == "lrp"]
        assert row.items == len(SIZES), table.metric
        assert row.mean is not None and np.isfinite(row.mean), table.metric
    assert not {"insertion", "token-f1", "pixel-accuracy"} & {*FOR_GRAPHS}
