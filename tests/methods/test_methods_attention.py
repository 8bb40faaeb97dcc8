"""Attention methods: parameters, readouts, ablations, refusals, flows by hand."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from architectures_measured import batch_of, ready
from torch import Tensor, nn

import transexplain as te
from transexplain.engine.operator_parts import AttentionPass, read_attention
from transexplain.engine.propagate import propagate
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods.global_maps import _flows, mean_heads
from transexplain.methods.map_passes import MapMethod, global_maps
from transexplain.methods.relevance import chefer_rules


def passed(name: str) -> AttentionPass:
    """A forward pass over one item that keeps its maps (1, H, T, T)."""
    model, batch = ready(name).model, batch_of(name, 0)
    return read_attention(lambda taps: model.run(batch, at=model.default_at, taps=taps))


def rows_read(name: str) -> Tensor:
    """(T,) the share of each row that the classifier reads."""
    method = MapMethod(key="rows", layers=range, compute=mean_heads)
    with global_maps(ready(name).model, batch_of(name, 0), method) as maps:
        return maps.rows_read()[0]


def relevance(name: str, method: str, label: int = 0, **params: Any) -> np.ndarray:
    target = f"class:{label}"
    found = te.explain(ready(name).model, ready(name).items[0], method, target, **params)
    return found[0].relevance


def test_attention_in_parts_changes_no_logit() -> None:
    for name in ("BERT", "Llama", "ViT"):
        one = ready(name)
        found = passed(name)
        np.testing.assert_allclose(found.logits.detach().numpy(), one.logits[:1], rtol=1e-6)
        for weights in found.maps:
            sums = weights.detach().sum(dim=-1)
            torch.testing.assert_close(sums, torch.ones_like(sums))


def test_the_row_that_is_read() -> None:
    assert rows_read("BERT").nonzero().flatten().tolist() == [0]
    assert rows_read("Llama").nonzero().flatten().tolist() == [7], "the last position"
    assert rows_read("DeiT distilled")[:2].tolist() == [0.5, 0.5], "class and distillation token"


def test_rollout_by_hand() -> None:
    product = np.eye(8)
    for weights in passed("BERT").maps:
        mean = weights.detach()[0].mean(dim=0).numpy()
        product = (0.5 * mean + 0.5 * np.eye(8)) @ product
    np.testing.assert_allclose(relevance("BERT", "rollout"), product[0], rtol=1e-12)


def test_ablations_of_transformer_attribution() -> None:
    """One block of two is what its own map says, and the product joins both."""
    first, last = (relevance("BERT", "transformer-attribution", only_block=b) for b in (0, -1))
    both = relevance("BERT", "transformer-attribution")
    assert not np.allclose(first, last)
    assert (both >= last - 1e-15).all(), "A + A S + S holds A"
    np.testing.assert_allclose(
        relevance("BERT", "transformer-attribution", start_layer=1), last, rtol=1e-12
    )
    without = relevance("BERT", "transformer-attribution", gradient=False)
    assert not np.allclose(without, both)


OfLayer = tuple[np.ndarray, np.ndarray, np.ndarray]


def at_maps(name: str, label: int = 0) -> list[OfLayer]:
    """Of each layer (H, T, T): attention, gradient of a class, relevance by Chefer's rules."""
    model, batch, found = ready(name).model, batch_of(name, 0), passed(name)
    seed = torch.eye(found.logits.shape[1])[label : label + 1]
    propagation = propagate(
        lambda taps: model.run(batch, at=model.default_at, taps=taps),
        chefer_rules("chefer-lrp", model.default_at, variant="paper"),
        1,
        module=model.module,
        record_attention=True,
    )
    arriving = propagation.relevance_of(seed, propagation.attention, last=True)
    gradients = found.gradients(seed, found.maps, last=True)
    weights, of_class, relevant = (
        [one.detach().double().numpy()[0] for one in layers]
        for layers in (found.maps, gradients, arriving)
    )
    return list(zip(weights, of_class, relevant, strict=True))


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("name", ["BERT", "ViT"])
def test_transformer_attribution_by_hand(name: str, gradient: bool) -> None:
    """C = prod (I + E_h[(F * R)^+]), F the gradient of A, or in the ablation A itself."""
    product: np.ndarray | float = 1.0
    for attention, of_class, arriving in at_maps(name):
        heads, size, _ = attention.shape
        factor = of_class if gradient else attention
        block = np.eye(size)
        for head, query, key in itertools.product(range(heads), range(size), range(size)):
            contribution = factor[head, query, key] * arriving[head, query, key]
            block[query, key] += max(0.0, contribution) / heads
        product = block @ product if np.ndim(product) else block
    found = relevance(name, "transformer-attribution", gradient=gradient).reshape(-1)
    expected = (product - np.eye(len(product)))[0, -found.size :]
    assert np.abs(expected).max() > 1e-9
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", ["BERT", "ViT"])
def test_attention_gradcam_by_hand(name: str, layer: int) -> None:
    """The class token's row without its column is the feature map, a head a channel."""
    largest = 0.0
    for label in (0, 1, 2):
        attention, gradient, _ = at_maps(name, label)[layer]
        heads, size, _ = attention.shape
        expected = [0.0] * size
        for key in range(1, size):
            total = 0.0
            for head in range(heads):
                weight = sum(gradient[head, 0, other] for other in range(1, size)) / (size - 1)
                total += weight * attention[head, 0, key]
            expected[key] = max(0.0, total / heads)
        found = relevance(name, "attention-gradcam", label, layer=layer).reshape(-1)
        np.testing.assert_allclose(found, expected[-found.size :], rtol=1e-6, atol=1e-12)
        largest = max(largest, *expected)
    assert largest > 1e-9


def test_gae_is_the_sum_over_paths() -> None:
    """(I + A2)(I + A1) - I at the row that is read, from gradients by the model's own graph."""
    found = passed("BERT")
    seed = torch.eye(found.logits.shape[1])[:1]
    gradients = found.gradients(seed, found.maps, last=True)
    first, last = (
        (gradient * weights.detach()).clamp(min=0).mean(dim=1)[0]
        for weights, gradient in zip(found.maps, gradients, strict=True)
    )
    expected = (last + last @ first + first)[0]
    np.testing.assert_allclose(relevance("BERT", "gae"), expected.numpy(), rtol=1e-12)


def test_flow_is_the_smallest_cut() -> None:
    """Maximum flow equals the smallest cut (Ford & Fulkerson 1956), found by trying all cuts."""
    generator = np.random.default_rng(0)
    layers = [generator.dirichlet(np.ones(3), size=3) for _ in range(2)]
    found = _flows(layers, np.array([0.0, 1.0, 0.0]), scaled=False)
    for sink in range(3):
        assert found[sink] == pytest.approx(_smallest_cut(layers, source=1, sink=sink))


def _smallest_cut(layers: list[np.ndarray], *, source: int, sink: int) -> float:
    """The least that leaves the side of the source, whichever places stand on it."""
    cuts = []
    for middle, low in itertools.product(itertools.product([0, 1], repeat=3), repeat=2):
        if low[sink]:
            continue
        inside, outside = np.array(middle), 1 - np.array(low)
        cuts.append(layers[1][source] @ (1 - inside) + inside @ layers[0] @ outside)
    return float(min(cuts))


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("rollout", {"start_layer": 2}, "the model has 2"),
        ("rollout", {"stop_layer": 0}, "must come before"),
        ("rollout", {"readout": "mean"}, "'token' or 'all'"),
        ("attention-last", {"layer": 5}, "0 to 1"),
        ("gae", {"variant": "official"}, "'paper' or 'authors'"),
        ("gae", {"padded_length": 9}, "variant='authors' only"),
        ("gae", {"padded_length": 3, "variant": "authors"}, "less than the 8 positions"),
        ("gae", {"padded_length": 30, "variant": "authors"}, "for texts"),
        ("transformer-attribution", {"only_block": 1, "start_layer": 1}, "leave start_layer out"),
        ("partial-lrp", {"layer": -3}, "0 to 1"),
    ],
)
def test_bad_parameters(method: str, params: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        relevance("ViT" if named == "for texts" else "BERT", method, **params)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("BART", "encoder-decoder"),
        ("Swin", "windows"),
        ("DINOv2", "pools"),
        ("FNet", "no attention"),
    ],
)
def test_models_without_a_global_map_are_refused(name: str, named: str) -> None:
    with pytest.raises(EngineError, match=named):
        relevance(name, "rollout")
    if named == "pools":
        assert np.isfinite(relevance(name, "rollout", readout="all")).all()


def test_multihead_attention_of_torch_is_split_into_parts() -> None:
    """nn.TransformerEncoder arrives as whole layers, and its maps are found inside."""

    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 8)
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(8, 3)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.encoder(self.embedding(input_ids))[:, 0])

    torch.manual_seed(0)
    model = te.wrap(Tiny().double(), modality="text")
    items = [{"input_ids": [1, 2, 3, 4]}, {"input_ids": [5, 6, 7, 8]}]
    for method in ("rollout", "gae", "transformer-attribution", "partial-lrp"):
        together = te.explain(model, items, method)
        alone = [te.explain(model, item, method)[0] for item in items]
        for left, right in zip(together, alone, strict=True):
            np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-12)
        assert np.abs(together[0].relevance).max() > 1e-9
