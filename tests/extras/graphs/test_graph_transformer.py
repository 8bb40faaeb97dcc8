"""The graph transformer of the house: what it computes, saved and loaded, and bad directories."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import text_items
from torch import Tensor
from torch.nn import functional as F

import transexplain as te
from transexplain.errors import ModelLoadError
from transexplain.extras.graphs.graph_transformer import DEGREES, GraphTransformer
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import ItemFailure

WIDTH, CLASSES = 5, ("no", "yes", "perhaps")


def network(**arguments: Any) -> GraphTransformer:
    torch.manual_seed(3)
    arguments = {"hidden": 16, "heads": 4, "layers": 2, "far": 4, **arguments}
    made = GraphTransformer(width=WIDTH, classes=len(CLASSES), **arguments).eval()
    with torch.no_grad():
        made.virtual.mul_(50)
        for one in (made.centrality, made.spatial, *([made.edges] if made.edges else [])):
            one.weight.mul_(50)
    return made


def graph(nodes: int, *, kinds: int = 0) -> dict[str, Any]:
    """A ring of nodes, with edges of several kinds."""
    random = np.random.default_rng(nodes)
    steps = np.abs(np.arange(nodes)[:, None] - np.arange(nodes))
    distances = np.minimum(steps, nodes - steps)
    made = {
        "node_features": random.standard_normal((nodes, WIDTH)),
        "distances": distances,
        "degrees": (distances == 1).sum(1),
    }
    if kinds:
        colours = 1 + random.integers(kinds, size=(nodes, nodes))
        made["edge_kinds"] = (distances == 1) * np.maximum(colours, colours.T)
    return made


def batched(content: dict[str, Any]) -> dict[str, Tensor]:
    return {
        name: torch.from_numpy(np.asarray(value))[None].to(
            torch.float32 if name == "node_features" else torch.long
        )
        for name, value in content.items()
    }


def slow_logits(made: GraphTransformer, content: dict[str, Any]) -> Tensor:
    """The network written out for one graph, pair by pair (Ying et al. 2021, Eq. 5 to 9)."""
    far, most = made.arguments["far"], DEGREES
    heads = made.arguments["heads"]
    features = torch.from_numpy(content["node_features"]).float()
    rows = [made.virtual[0, 0]]
    for one, degree in zip(features, content["degrees"], strict=True):
        rows.append(made.embed(one) + made.centrality.weight[min(int(degree), most - 1)])
    for layer in made.layers:
        normed = [layer.first(row) for row in rows]
        parts = [layer.project(row).view(3, heads, -1) for row in normed]
        mixed = []
        for i in range(len(rows)):
            heads_out = []
            for head in range(heads):
                scores = []
                for j in range(len(rows)):
                    score = parts[i][0, head] @ parts[j][1, head] / parts[i].shape[-1] ** 0.5
                    if i and j:
                        distance = int(content["distances"][i - 1, j - 1])
                        score = score + made.spatial.weight[min(distance, far), head]
                    else:
                        score = score + made.spatial.weight[far + 1, head]
                    if made.edges is not None:
                        kind = int(content["edge_kinds"][i - 1, j - 1]) if i and j else 0
                        score = score + made.edges.weight[kind, head]
                    scores.append(score)
                weights = torch.stack(scores).softmax(0)
                values = [part[2, head] for part in parts]
                heads_out.append(sum(w * v for w, v in zip(weights, values, strict=True)))
            mixed.append(torch.cat(heads_out))
        rows = [row + layer.out(one) for row, one in zip(rows, mixed, strict=True)]
        first, act, second = layer.mlp
        rows = [row + second(F.gelu(first(layer.second(row)))) for row in rows]
        assert isinstance(act, torch.nn.GELU)
    return made.head(made.norm(rows[0]))


@pytest.mark.parametrize("kinds", [0, 3])
@pytest.mark.parametrize("nodes", [1, 2, 9])
def test_the_logits_are_those_of_its_slow_form(nodes: int, kinds: int) -> None:
    made = network(edge_kinds=kinds)
    content = graph(nodes, kinds=kinds)
    with torch.no_grad():
        torch.testing.assert_close(made(**batched(content))[0], slow_logits(made, content))


@pytest.mark.parametrize("kinds", [0, 3])
def test_what_was_saved_is_loaded_again(tmp_path: Path, kinds: int) -> None:
    made = network(edge_kinds=kinds)
    made.save(tmp_path / "model", CLASSES, accuracy=0.5)
    model = te.load_model(tmp_path / "model")
    assert (model.modality, model.classes) == ("nodes", CLASSES)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["accuracy"] == 0.5
    contents = [graph(nodes, kinds=kinds) for nodes in (7, 1, 4)]
    found = te.explain(model, contents)
    with torch.no_grad():
        logits = torch.cat([made(**batched(one)) for one in contents])
    np.testing.assert_allclose([one.logit for one in found], logits.amax(1), rtol=1e-4)
    assert max(one.ledger.relative_gap for one in found) < 5e-6
    assert [token.special for token in found[0].features] == [True] + 7 * [False]
    encoded = model.encode(text_items(*contents))
    assert invariance_of(model, encoded[0], ragged=True).padding
    doubled = te.load_model(tmp_path / "model", dtype="float64")
    assert max(one.ledger.relative_gap for one in te.explain(doubled, contents)) < 1e-12


def test_a_missing_input_is_the_error_of_its_item(tmp_path: Path) -> None:
    network(edge_kinds=3).save(tmp_path, CLASSES)
    model = te.load_model(tmp_path)
    (failed, fine) = model.encode(text_items(graph(4), graph(4, kinds=3)))
    assert isinstance(failed, ItemFailure)
    assert "needs edge_kinds, of 3 kinds" in failed.message
    assert isinstance(fine, Encoded)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"graph_args": [1]}, "graph_args is no object"),
        ({"graph_args": {"hidden": 16}}, "graph_args lacks width"),
        ({"graph_args": {"width": WIDTH, "colour": 1}}, "has no 'colour'; it has: width, hidden"),
        ({"graph_args": {"width": WIDTH, "layers": 0}}, "layers is 0; it is a whole number from 1"),
        ({"graph_args": {"width": WIDTH, "layers": True}}, "layers is True"),
        ({"graph_args": {"width": WIDTH, "layers": 1.5}}, "layers is 1.5"),
        ({"graph_args": {"width": WIDTH, "hidden": 18}}, "hidden is no multiple of heads"),
        ({"graph_args": {"width": WIDTH, "hidden": 16}}, "missing.*layers.2"),
        ({"graph_args": {"width": 1 << 16, "hidden": 1 << 14}}, "far larger model than its weig"),
        ({"classes": None}, "classes is no list"),
        ({"classes": ["a"]}, r"head.bias has shape \(3,\)"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    network().save(tmp_path, CLASSES)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelLoadError, match=expected):
        te.load_model(tmp_path)


def test_what_cannot_be_built_or_saved_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hidden=18 is no multiple of heads=4"):
        GraphTransformer(width=1, classes=2, hidden=18)
    with pytest.raises(ValueError, match="2 class names for 3 classes"):
        network().save(tmp_path, ["a", "b"])
    assert not list(tmp_path.iterdir())
