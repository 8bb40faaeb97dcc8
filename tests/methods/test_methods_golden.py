"""Attention methods against the arrays that the authors' own code made, in float64."""

from typing import Any

import numpy as np
import pytest
from golden_models import arrays, bert, difference, picture_of, text_of, vit

import transexplain as te

ATTENTION, RELEVANCE = 1e-9, 1e-5
STARTS, OF_CHEFER = (0, 1, 2), "transformer-attribution"


def relevance(model: Any, content: Any, method: str, **params: Any) -> np.ndarray:
    """(C, T) or (C, T) of patches, for all classes."""
    found = te.explain(model, content, method, "all", **params)
    return np.stack([one.relevance.reshape(-1) for one in found])


OF_BERT: dict[str, tuple[str, dict[str, Any], float]] = {
    "attn_last": ("attention-last", {}, ATTENTION),
    "attn_gradcam": ("attention-gradcam", {}, ATTENTION),
    "partial_lrp": ("partial-lrp", {}, RELEVANCE),
    **{f"rollout.start{s}": ("rollout", {"start_layer": s}, ATTENTION) for s in STARTS[:2]},
    **{
        f"{OF_CHEFER.replace('-', '_')}.start{s}": (OF_CHEFER, {"start_layer": s}, RELEVANCE)
        for s in STARTS
    },
}


@pytest.mark.parametrize("array", OF_BERT)
@pytest.mark.parametrize("given", ["d0", "d1", "d1u"])
def test_bert(given: str, array: str) -> None:
    golden = arrays("bert_tiny", "chefer")
    content, own = text_of(golden, given)
    length = len(content["input_ids"])
    method, params, tolerance = OF_BERT[array]
    found = relevance(bert(), content, method, variant="authors", padded_length=length, **params)
    expected = np.nan_to_num(golden[f"{given}.{array}"])
    expected = np.broadcast_to(expected, (3, length))[:, :own]
    assert difference(found, expected) < tolerance


@pytest.mark.parametrize("given", ["d0", "d1", "d1u"])
def test_gae_of_bert(given: str) -> None:
    golden = arrays("bert_tiny", "chefer")
    content, own = text_of(golden, given)
    length = len(content["input_ids"])
    found = relevance(bert(), content, "gae", variant="authors", padded_length=length)
    assert difference(found, golden[f"{given}.gae.R"][:, 0, :own]) < ATTENTION


@pytest.mark.parametrize("given", ["d0", "d1u"])
def test_alis_baselines(given: str) -> None:
    golden = arrays("bert_tiny", "ali_attention_baselines")
    content, _ = text_of(arrays("bert_tiny", "chefer"), given)
    last = relevance(bert(), content, "attention-last", readout="all")[0]
    assert difference(last, golden[f"{given}.attn_last.headmean_colsum"]) < ATTENTION
    for layer in range(3):
        rolled = relevance(bert(), content, "rollout", readout="all", stop_layer=layer + 1)[0]
        assert difference(rolled, golden[f"{given}.rollout.layer{layer}.colsum"]) < ATTENTION
    flow = relevance(bert(), content, "attention-flow", readout="all", variant="authors")[0]
    assert difference(flow, golden[f"{given}.attention_flow.layer2"]) < ATTENTION


OF_VIT: dict[str, tuple[str, dict[str, Any], float]] = {
    **{name: entry for name, entry in OF_BERT.items() if not name.endswith("start2")},
    "partial_lrp.ablation_grad": ("partial-lrp", {"gradient": True}, RELEVANCE),
    "gae": ("gae", {}, ATTENTION),
    **{
        f"lrp_rollout.start{s}": (OF_CHEFER, {"start_layer": s, "gradient": False}, RELEVANCE)
        for s in STARTS[:2]
    },
}


@pytest.mark.parametrize("array", OF_VIT)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_vit(given: str, array: str) -> None:
    golden = arrays("vit_tiny", "chefer")
    method, params, tolerance = OF_VIT[array]
    found = relevance(vit(), picture_of(golden, given), method, variant="authors", **params)
    expected = np.broadcast_to(np.nan_to_num(golden[f"{given}.{array}"]), (5, 16))
    assert difference(found, expected) < tolerance


@pytest.mark.parametrize("given", ["d0", "d1"])
def test_full_lrp(given: str) -> None:
    golden = arrays("bert_tiny", "chefer")
    content, own = text_of(golden, given)
    found = relevance(bert(), content, "full-lrp", variant="authors")
    found[:, 0] = 0  # the authors leave [CLS] out
    assert difference(found, golden[f"{given}.full_lrp"][:, :own]) < RELEVANCE
    golden = arrays("vit_tiny", "chefer")
    found = relevance(vit(), picture_of(golden, given), "full-lrp", variant="authors", at="pixels")
    assert difference(found, golden[f"{given}.full_lrp"].reshape(5, -1)) < 10 * RELEVANCE
