"""Graph transformers: nodes as positions, graphs of several sizes in a batch, every bad item."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from everyday import only
from tiny_models import text_items
from torch import Tensor, nn
from toy_graphs import Biased, Graphormer, Unmasked, biased_item, graphormer_item, toy

import transexplain as te
from transexplain.doctor import examine
from transexplain.engine.composites import COMPOSITES
from transexplain.errors import ConfigurationError, EngineError, ItemError, ModelLoadError
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.reports.heatmap import segments
from transexplain.types.items import Item, PatchGrid

CLASSES = ("a", "b", "c")
LRP = [name for name, rules in COMPOSITES.items() if not rules.relevance_form]
KINDS: dict[str, tuple[type[nn.Module], Any]] = {
    "bias (T, T)": (Biased, biased_item),
    "bias (H, T, T)": (Biased, lambda nodes: biased_item(nodes, heads=3)),
    "no bias": (Biased, lambda nodes: {"node_features": biased_item(nodes)["node_features"]}),
    "distances": (Graphormer, graphormer_item),
    "no mask": (Unmasked, biased_item),
}


def wrapped(module: nn.Module) -> LoadedModel:
    return te.wrap(module, modality="nodes", classes=CLASSES)


def encoded(model: LoadedModel, *contents: Any) -> list[Encoded]:
    made = model.encode(text_items(*contents))
    assert all(isinstance(one, Encoded) for one in made), made
    return made  # type: ignore[return-value]


def refused(model: LoadedModel, content: Any) -> tuple[str, str]:
    [found] = te.explain(model, [content], on_error="record")
    return found.kind, found.message


@pytest.mark.parametrize("at", only("encoder", of=["encoder", "nodes"]))
@pytest.mark.parametrize(
    ("kind", "fused"),
    only(
        ("bias (H, T, T)", True),
        ("distances", True),
        of=[*((kind, True) for kind in KINDS), ("bias (H, T, T)", False)],
    ),
)
def test_the_ledger_closes_and_batches_change_nothing(kind: str, fused: bool, at: str) -> None:
    make, item = KINDS[kind]
    model = wrapped(toy(make, fused=fused))
    sizes = (7, 3, 7, 1)
    items = [item(nodes) for nodes in sizes]
    targets = ["predicted", "contrast:a-b"]
    virtual = int(make is Graphormer and at == "encoder")
    for method in LRP:
        together = te.explain(model, items, method, target=targets, at=at)
        alone = te.explain(model, items, method, target=targets, at=at, batch_tokens=1)
        assert len(together) == len(alone) == 2 * len(sizes)
        for number, (left, right) in enumerate(zip(together, alone, strict=True)):
            assert (left.at, left.unit) == (at, "logits")
            assert left.relevance.shape == (sizes[number // 2] + virtual,) == (len(left.features),)
            assert left.ledger.relative_gap < 1e-12
            assert left.logit == pytest.approx(right.logit, rel=1e-12)
            np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-10)


def test_lrp_is_the_gradient_with_attention_and_scales_held_constant() -> None:
    """The AH and LN rules (Ali et al. 2022, section 4), written out for these layers."""
    module = toy(Graphormer, fused=False)
    item = graphormer_item(5)
    one = {name: torch.as_tensor(values)[None] for name, values in item.items()}
    nodes = module.embed(one["x"]) + module.centrality(one["degrees"])
    start = torch.cat([module.virtual, nodes], dim=1).detach().requires_grad_(True)
    places = torch.nn.functional.pad(one["distances"].clamp(max=6), (1, 0, 1, 0), value=7)
    bias = module.spatial(places).permute(0, 3, 1, 2)

    def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
        scale = (x.var(-1, unbiased=False, keepdim=True) + layer.eps).sqrt().detach()
        return (x - x.mean(-1, keepdim=True)) / scale * layer.weight + layer.bias

    x = start
    for layer in module.layers:
        q, k, v = layer.qkv(norm(layer.first, x)).view(1, 6, 3, 3, 4).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / 2.0 + bias).softmax(-1).detach()
        x = x + layer.out((weights @ v).transpose(1, 2).reshape(1, 6, 12))
        x = x + layer.down(torch.nn.functional.gelu(layer.up(norm(layer.second, x))))
    logits = module.head(norm(module.norm, x)[:, 0])
    logits[0, 2].backward()
    [found] = te.explain(wrapped(module), item, "lrp-ah-ln", target="class:c")
    np.testing.assert_allclose(
        found.relevance, (start * start.grad).sum(-1)[0].detach(), atol=1e-11
    )


def test_positions_are_nodes_behind_the_virtual_one() -> None:
    model = wrapped(toy(Graphormer))
    [named, plain] = encoded(
        model, {**graphormer_item(3), "node_names": ["C", "N", "O"]}, graphormer_item(2)
    )
    assert [token.text for token in named.features] == ["[graph]", "C", "N", "O"]
    assert [token.text for token in plain.features] == ["[graph]", "node 0", "node 1"]
    assert [token.special for token in plain.features] == [True, False, False]
    assert (named.length, plain.length) == (4, 3)
    assert (model.default_at, model.input_layers) == ("encoder", ("encoder", "nodes"))
    [found] = te.explain(model, {**graphormer_item(3), "node_names": ["C", "N", "O"]})
    assert [word.text for word in found.words()] == ["C", "N", "O"]
    assert found.ledger.special == pytest.approx(found.relevance[0], rel=1e-12)
    assert "C" in te.render.html([found])
    assert [token.text for token in te.explain(model, graphormer_item(1), at="nodes")[0].features]


def test_a_batch_is_padded_on_every_axis_of_nodes_and_only_there() -> None:
    model = wrapped(toy(Biased))
    # three nodes and three heads: no single graph tells the axes apart
    batch = model.collate(encoded(model, biased_item(3, heads=3), biased_item(5, heads=3)))
    assert {name: tuple(values.shape) for name, values in batch.inputs.items()} == {
        "node_features": (2, 5, 5),
        "attention_bias": (2, 3, 5, 5),
        "attention_mask": (2, 5),
    }
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert not batch.inputs["attention_bias"][0, :, 3:].any()
    assert batch.lengths.tolist() == [3, 5]


def test_numpy_torch_and_lists_are_one_and_number_types_follow_the_model() -> None:
    for dtype in (torch.float64, torch.float32):
        model = wrapped(toy(Biased).to(dtype))
        item = biased_item(4)
        lists = {name: values.tolist() for name, values in item.items()}
        tensors = {name: torch.as_tensor(values) for name, values in item.items()}
        found = te.explain(model, [item, lists, tensors])
        assert {str(one.relevance.dtype) for one in found} == {str(dtype).removeprefix("torch.")}
        close = 1e-12 if dtype == torch.float64 else 1e-4
        for one in found[1:]:
            np.testing.assert_allclose(one.relevance, found[0].relevance, rtol=close, atol=close)
    whole = {"node_features": np.eye(5, dtype=np.int64)}
    mixed = te.explain(wrapped(toy(Biased)), [whole, {"node_features": np.eye(5)}])
    np.testing.assert_allclose(mixed[0].relevance, mixed[1].relevance, rtol=1e-12)


def test_padding_that_the_item_brings_is_cut_off() -> None:
    model = wrapped(toy(Graphormer))
    full = graphormer_item(7)
    cut = {
        "x": full["x"][:4],
        "distances": full["distances"][:4, :4],
        "degrees": full["degrees"][:4],
    }
    padded = {**full, "attention_mask": [1, 1, 1, 1, 0, 0, 0]}
    left, right = te.explain(model, [cut, padded])
    np.testing.assert_allclose(left.relevance, right.relevance, atol=1e-12)
    unmasked = wrapped(toy(Unmasked))
    given = {**biased_item(3), "attention_mask": [1, 1, 0]}
    assert len(te.explain(unmasked, given)[0].relevance) == 2


def test_a_model_without_a_mask_gets_graphs_of_one_size() -> None:
    sizes: list[tuple[int, ...]] = []

    class Watched(Unmasked):
        def forward(self, node_features: Tensor, attention_bias: Tensor | None = None) -> Tensor:  # type: ignore[override]
            sizes.append(tuple(node_features.shape[:2]))
            return super().forward(node_features, attention_bias)

    model = wrapped(toy(Watched))
    items = [biased_item(nodes) for nodes in (7, 3, 7, 3)]
    te.explain(model, items)
    assert sizes[-2:] == [(2, 3), (2, 7)]
    [sample] = encoded(model, items[0])
    found = invariance_of(model, sample)
    assert (found.batch, found.padding) == (True, False)
    masked = wrapped(toy(Biased))
    assert invariance_of(masked, encoded(masked, items[0])[0]).padding is True


class PositionsFirst(Biased):
    """Its layers read (T, B, D), as Graphormer's own code does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Turned() for _ in range(2))

    def forward(self, node_features: Tensor) -> Tensor:  # type: ignore[override]
        x = self.embed(node_features).transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(0))


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x)) + x.mean(0, keepdim=True)


class Last(PositionsFirst):
    """Its virtual node comes after the nodes."""

    def forward(self, node_features: Tensor) -> Tensor:  # type: ignore[override]
        x = self.embed(node_features)
        x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1).transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[-1])


class Beside(Biased):
    """Reads the nodes past its layers."""

    def forward(self, node_features: Tensor) -> Tensor:  # type: ignore[override]
        x = self.embed(node_features)
        y = x
        for layer in self.layers:
            y = layer(y, None)
        return self.head((x + y).mean(1))


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, nodes: Tensor) -> Tensor:
        return self.head(torch.relu(self.embed(nodes)).mean(1))


def test_layers_may_read_positions_first() -> None:
    items = [{"node_features": biased_item(nodes)["node_features"]} for nodes in (4, 1, 6)]
    model = wrapped(toy(PositionsFirst))
    found = te.explain(model, items)
    assert [one.at for one in found] == ["encoder"] * 3
    assert [one.relevance.shape for one in found] == [(4,), (1,), (6,)]
    assert max(one.ledger.relative_gap for one in found) < 1e-12
    assert model.sites.layout == "positions_first"


@pytest.mark.parametrize("kind", [Last, Beside, Flat])
def test_the_input_layer_is_the_nodes_where_the_layers_hold_more_than_nodes(
    kind: type[nn.Module],
) -> None:
    model = wrapped(toy(kind))
    name = "nodes" if kind is Flat else "node_features"
    [found] = te.explain(model, {name: biased_item(4)["node_features"]})
    assert (found.at, found.relevance.shape, model.input_layers) == ("nodes", (4,), ("nodes",))
    assert found.ledger.relative_gap < 1e-12
    with pytest.raises(EngineError, match="no input layer 'encoder'; it has: nodes"):
        te.explain(model, {name: biased_item(4)["node_features"]}, at="encoder")


NAN = np.full((4, 5), np.nan)
BAD: dict[str, tuple[Any, str, str]] = {
    "text": ("a graph", "wrong-type", "node_features.*not str"),
    "array": (np.ones((3, 5)), "wrong-type", "not ndarray"),
    "null": (Item(id="0", index=0, content=None), "null", "null"),
    "no features": ({"attention_bias": np.eye(3)}, "bad-input", "given: attention_bias"),
    "unknown input": (
        {**biased_item(4), "adjacency": np.eye(4)},
        "bad-input",
        "no input 'adjacency'",
    ),
    "no nodes": ({"node_features": np.ones((0, 5))}, "empty-graph", "no nodes"),
    "no width": ({"node_features": np.ones((3, 0))}, "bad-input", "no features"),
    "one axis": ({"node_features": np.ones(5)}, "bad-input", r"\(5,\); expected \(T, F\)"),
    "no numbers": ({"node_features": [["x"]]}, "bad-input", "not an array of numbers"),
    "complex": ({"node_features": np.ones((3, 5)) * 1j}, "bad-input", "complex"),
    "NaN": ({"node_features": NAN}, "bad-input", "NaN or infinity"),
    "bias NaN": (
        {**biased_item(4), "attention_bias": NAN[:, :4]},
        "bad-input",
        "attention_bias holds NaN",
    ),
    "bias shape": (
        {**biased_item(4), "attention_bias": np.zeros((4, 5))},
        "bad-input",
        r"\(4, 5\); expected \(T, T\) or \(H, T, T\) with T = 4",
    ),
    "all hidden": ({**biased_item(2), "attention_mask": [0, 0]}, "empty-graph", "hides every node"),
    "hidden first": ({**biased_item(2), "attention_mask": [0, 1]}, "bad-input", "at the end"),
    "mask shape": ({**biased_item(3), "attention_mask": [1, 1]}, "bad-input", "each of 3 nodes"),
    "few names": ({**biased_item(3), "node_names": ["x"]}, "bad-input", "3 names"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_items_say_what_is_wrong(case: str) -> None:
    content, kind, reported = BAD[case]
    found = refused(wrapped(toy(Biased)), content)
    assert found[0] == kind
    with pytest.raises(ItemError, match=reported):
        te.explain(wrapped(toy(Biased)), [content])


def test_widths_are_known_from_the_first_graph_that_the_model_takes() -> None:
    model = wrapped(toy(Biased))
    wide = {"node_features": np.ones((3, 6))}
    kind, reported = refused(model, wide)
    assert kind == "model-error"
    assert "the model failed on it" in reported
    te.explain(model, biased_item(3))
    assert refused(model, wide) == ("bad-input", "node_features has width 6; the model takes 5")
    graphs = wrapped(toy(Graphormer))
    kind, reported = refused(graphs, {"x": np.ones((3, 5))})
    assert kind == "model-error"
    assert "distances" in reported
    kind, reported = refused(graphs, {**graphormer_item(3), "degrees": [1, 2]})
    assert "one row for each of 3 nodes" in reported
    kind, reported = refused(graphs, {**graphormer_item(3), "degrees": [1, 2, 99]})
    assert kind == "model-error"


def test_some_graphs_with_a_bias_and_some_without_cannot_share_a_batch() -> None:
    model = wrapped(toy(Biased))
    made = encoded(model, biased_item(4), {"node_features": biased_item(4)["node_features"]})
    with pytest.raises(ConfigurationError, match="item i1 has no 'attention_bias', others do"):
        model.collate(made)
    with pytest.raises(ConfigurationError, match="at least one"):
        model.collate([])


def test_relevance_is_drawn_on_the_parts_that_nodes_are() -> None:
    labels = np.arange(6).reshape(2, 3)
    [found] = te.explain(wrapped(toy(Graphormer)), graphormer_item(6))
    drawn = te.render.segments(found, labels)
    assert drawn.size == (192, 128)
    assert drawn.tobytes() == segments(found.relevance[1:], labels).tobytes()
    with pytest.raises(ConfigurationError, match="do not fit"):
        te.render.segments(found, labels + 1)
    with pytest.raises(TypeError, match="for graphs"):
        grid = PatchGrid(rows=1, cols=1, height=8, width=8)
        te.render.segments(replace(found, features=grid), labels)


def test_the_doctor_examines_a_graph() -> None:
    model = wrapped(toy(Graphormer))
    found = examine(model, graphormer_item(6))
    assert (found.verdict, found.positions) == ("covered", 7)
    assert found.batching == "similar lengths, padded"
    with pytest.raises(ConfigurationError, match=r"pass an item, \{'x'"):
        examine(wrapped(toy(Graphormer)))
    beside = examine(wrapped(toy(Beside)), {"node_features": biased_item(4)["node_features"]})
    assert beside.at == "nodes"


def test_wrap_needs_the_classes_and_a_named_input() -> None:
    with pytest.raises(ModelLoadError, match="classes="):
        te.wrap(toy(Biased), modality="nodes")

    class Anything(Biased):
        def forward(self, *args: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(*args)

    with pytest.raises(ModelLoadError, match="named parameters"):
        wrapped(toy(Anything))
    model = te.wrap(toy(Biased), modality="nodes", classes=["x", "x", "y"])
    assert model.classes == ("x (0)", "x (1)", "y")
    assert (model.modality, model.ref.modality) == ("nodes", "nodes")
    wrong = te.wrap(toy(Biased), modality="nodes", classes=["x", "y"])
    with pytest.raises(EngineError, match="logits of shape"):
        te.explain(wrong, biased_item(3))
