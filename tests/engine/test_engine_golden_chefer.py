"""Chefer's rules in relevance form against the authors' own arrays, in float64."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from golden_models import arrays, bert, difference, picture_of, text_of, vit

import transexplain as te
from transexplain.engine.composites import COMPOSITES, ChefersRules, InputRule
from transexplain.engine.propagate import propagate
from transexplain.types.items import Item

#: of their layers: sums rescaled (`ours`), or the LRP they compare with
NORMALISED = {"ours": True, "orig_lrp": False}
TOLERANCE = 1e-5


def attention_relevance(
    model: Any, content: Any, layers: str, *, at: str, authors: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Relevance at the input layer (C, ...) and of every attention map (C, L, H, T, T)."""
    batch = model.collate(model.encode([Item(id="0", index=0, content=content)]))
    rules = replace(
        COMPOSITES["chefer-lrp"],
        chefer=ChefersRules(normalised=NORMALISED[layers], authors=authors),
        input_rule=InputRule(name="zb") if at == "pixels" else None,
    )
    passes = propagate(
        lambda taps: model.run(batch, at=at, taps=taps), rules, 1, record_attention=True
    )
    at_input, maps = [], []
    for seed in torch.eye(passes.logits.shape[1], dtype=torch.float64)[:, None]:
        at_input.append(passes.relevance(seed)[0].numpy())
        found = passes.relevance_of(seed, passes.attention)
        assert not passes.book.sites, "such a pass has no ledger"
        maps.append(np.stack([of_layer[0].numpy() for of_layer in found]))
    return np.stack(at_input), np.stack(maps)


def from_last_layer(maps: np.ndarray) -> np.ndarray:
    """Partial LRP: row [CLS] of the positive part of the last layer, mean over heads."""
    return maps[:, -1].clip(min=0).mean(axis=1)[:, 0]


@pytest.mark.parametrize("layers", NORMALISED)
@pytest.mark.parametrize("given", ["d0", "d1", "d1u"])
def test_bert(given: str, layers: str) -> None:
    golden = arrays("bert_tiny", "chefer")
    content, real = text_of(golden, given)
    relevance, maps = attention_relevance(bert(), content, layers, at="encoder")
    expected = golden[f"{given}.attn_cam.{layers}"]
    assert difference(maps, expected[..., :real, :real]) < TOLERANCE
    assert not expected[..., real:].any(), "no padding receives relevance"
    assert not expected[..., real:, :].any()
    at_input = golden[f"{given}.relprop_input.{layers}"]
    assert difference(relevance, at_input[:, :real]) < TOLERANCE
    assert not at_input[:, real:].any()
    suffix = ".ours_layers" if layers == "ours" else ""
    partial = from_last_layer(maps)
    partial[:, 0] = 0  # the authors leave [CLS] out
    assert difference(partial, golden[f"{given}.partial_lrp{suffix}"][:, :real]) < TOLERANCE


@pytest.mark.parametrize("layers", NORMALISED)
@pytest.mark.parametrize("given", ["d0", "d1", "d1u"])
def test_full_lrp_of_bert(given: str, layers: str) -> None:
    golden = arrays("bert_tiny", "chefer")
    content, real = text_of(golden, given)
    found = te.explain(
        bert(), content, "chefer-lrp", "all", variant="authors", baseline=layers == "orig_lrp"
    )
    together = np.stack([one.relevance for one in found])
    together[:, 0] = 0  # the authors leave [CLS] out
    suffix = ".ours_layers" if layers == "ours" else ""
    expected = golden[f"{given}.full_lrp{suffix}"][:, :real]
    assert difference(together, expected) < TOLERANCE
    assert {one.unit for one in found} == {"unit_relevance"}


@pytest.mark.parametrize("layers", NORMALISED)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_vit(given: str, layers: str) -> None:
    golden = arrays("vit_tiny", "chefer")
    content = picture_of(golden, given)
    _, maps = attention_relevance(vit(), content, layers, at="encoder")
    assert difference(maps, golden[f"{given}.attn_cam.{layers}"]) < TOLERANCE
    suffix = ".ours_layers" if layers == "ours" else ""
    expected = golden[f"{given}.partial_lrp{suffix}"]
    assert difference(from_last_layer(maps)[:, 1:], expected) < TOLERANCE


@pytest.mark.parametrize("layers", NORMALISED)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_full_lrp_of_vit(given: str, layers: str) -> None:
    """At the pixels, with z^B at the patch convolution."""
    golden = arrays("vit_tiny", "chefer")
    content = picture_of(golden, given)
    baseline = layers == "orig_lrp"
    found = te.explain(
        vit(), content, "chefer-lrp", "all", at="pixels", variant="authors", baseline=baseline
    )
    suffix = "" if baseline else ".ours_layers"
    expected = golden[f"{given}.full_lrp{suffix}"]
    assert difference(np.stack([one.relevance for one in found]), expected) < 1e-4


@pytest.mark.parametrize("layers", NORMALISED)
def test_the_paper_differs_by_the_stabiliser_alone(layers: str) -> None:
    golden = arrays("bert_tiny", "chefer")
    content = {"input_ids": golden["d0.input_ids"]}
    _, paper = attention_relevance(bert(), content, layers, at="encoder", authors=False)
    _, authors = attention_relevance(bert(), content, layers, at="encoder")
    assert 0 < difference(paper, authors) < 1e-3
