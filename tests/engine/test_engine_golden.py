"""The composites on real architectures against reference outputs, in float64."""

import numpy as np
import pytest
import torch
from golden_models import (
    GOLDEN,
    arrays,
    bert,
    difference,
    embedded,
    load_ali_network,
    load_language_model,
    picture_of,
    text_of,
    vit,
)
from matrix_rules import propagated

import transexplain as te
from transexplain.engine.composites import composite
from transexplain.types.items import Attribution

PREFIX = {
    "gradient-x-input": "gi",
    "lrp-ah": "ah",
    "lrp-ln": "ln",
    "lrp-ah-ln": "ah_ln",
    "lrp": "ah_ln.act_identity",
    "attnlrp": "attnlrp",
}
TOLERANCE = 1e-9
LEDGER = 1e-12


def check_ledger(attribution: Attribution) -> None:
    assert attribution.ledger is not None
    assert attribution.ledger.relative_gap < LEDGER


@pytest.mark.parametrize("name", PREFIX)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_bert(name: str, given: str) -> None:
    golden = arrays("bert_tiny", "rederived_detach")
    item, real = text_of(golden, given)
    for at, suffix in (("encoder", "layers"), ("words", "word")):
        expected = golden[f"{given}.{PREFIX[name]}.{suffix}"]
        expected = expected[:, 0] if at == "encoder" else expected
        found = te.explain(bert(), item, method=name, target="all", at=at)
        assert len(found) == len(expected)
        for attribution, row in zip(found, expected, strict=True):
            assert attribution.at == at
            assert difference(attribution.relevance[:real], row[:real]) < TOLERANCE
            assert attribution.logit == pytest.approx(
                golden[f"{given}.logits"][attribution.class_index], abs=1e-12
            )
            check_ledger(attribution)


@pytest.mark.parametrize("name", PREFIX)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_vit(name: str, given: str) -> None:
    golden = arrays("vit_tiny", "rederived_detach")
    item = picture_of(golden, given)
    at_encoder = te.explain(vit(), item, method=name, target="all")
    at_pixels = te.explain(vit(), item, method=name, target="all", at="pixels")
    layers = golden[f"{given}.{PREFIX[name]}.layers"][:, 0]
    pixels = golden[f"{given}.{PREFIX[name]}.pixels"].sum(axis=1)
    for first, second, tokens, picture in zip(at_encoder, at_pixels, layers, pixels, strict=True):
        assert first.features.prefix == 1
        assert first.relevance.shape == (4, 4)
        positions = np.concatenate([first.prefix_relevance, first.relevance.ravel()])
        assert difference(positions, tokens) < TOLERANCE
        assert second.relevance.shape == (32, 32)
        assert difference(second.relevance, picture) < TOLERANCE
        check_ledger(first)
        check_ledger(second)
    assert sum(a.ledger.embeddings for a in at_encoder) == 0
    assert all(a.ledger.embeddings != 0 for a in at_pixels)


@pytest.mark.parametrize(("source", "tolerance"), [("efficient", 1e-6), ("explicit", 2e-3)])
@pytest.mark.parametrize("given", ["d0", "d1", "d1u"])
def test_attnlrp_as_lxt(given: str, source: str, tolerance: float) -> None:
    golden = arrays("bert_tiny", f"lxt_attnlrp_{source}")
    item, real = text_of(golden, given)
    for at, key in (("words", "word"), ("encoder", "emb_out")):
        found = te.explain(bert(), item, method="attnlrp", target="all", at=at)
        together = np.stack([attribution.relevance for attribution in found])
        assert difference(together[:, :real], golden[f"{given}.{key}"][:, :real]) < tolerance


#: what zennit's Gamma reached: its hooks do not see the projections of attention
GAMMAS = {
    "conv0.25_lin0.05": (0.25, 0.05, 1e-4),
    "conv0.25_lin0.25": (0.25, 0.25, 1e-4),
    "conv100.0_lin0.0": (100.0, 0.0, 1e-2),
}


@pytest.mark.parametrize("name", GAMMAS)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_gamma_as_zennit(given: str, name: str) -> None:
    golden = arrays("vit_tiny", "lxt_cplrp")
    of_conv, of_linear, tolerance = GAMMAS[name]
    item = picture_of(golden, given)
    overrides = [("patch_embed.proj", {"rule": "gamma", "gamma": of_conv})]
    if of_linear:
        gamma = {"rule": "gamma", "gamma": of_linear}
        overrides += [("*.mlp.fc?", gamma), ("head", gamma)]
    found = te.explain(vit(), item, method="lrp", target="all", at="pixels", overrides=overrides)
    expected = golden[f"{given}.cp_lrp_gamma.{name}.pixels"].sum(axis=1)
    assert difference(np.stack([one.relevance for one in found]), expected) < tolerance
    for attribution in found:
        check_ledger(attribution)


@pytest.mark.parametrize("given", ["d0", "d1"])
def test_cp_lrp_as_lxt(given: str) -> None:
    golden = arrays("vit_tiny", "lxt_cplrp")
    item = picture_of(golden, given)
    for method, name in (("lrp", "cp_lrp_eps"), ("gradient-x-input", "gi")):
        found = te.explain(vit(), item, method=method, target="all", at="pixels")
        expected = golden[f"{given}.{name}.pixels"].sum(axis=1)
        assert difference(np.stack([one.relevance for one in found]), expected) < 1e-4


@pytest.mark.parametrize("given", ["d0", "d1"])
@pytest.mark.parametrize(
    ("name", "family"), [("llama_tiny", "LlamaForCausalLM"), ("qwen2_tiny", "Qwen2ForCausalLM")]
)
def test_language_models_as_lxt(name: str, family: str, given: str) -> None:
    model = load_language_model(name, family)
    golden = arrays(name, "lxt_attnlrp_efficient")
    item, ids = {"input_ids": golden[f"{given}.input_ids"]}, golden[f"{given}.targets"]
    targets = [f"class:v{index}" for index in ids]
    found = te.explain(model, item, "attnlrp", targets, at="words")
    together = np.stack([one.relevance for one in found])
    assert difference(together, golden[f"{given}.attnlrp.embed"]) < 1e-4
    contrast = te.explain(model, item, "attnlrp", f"contrast:v{ids[0]}-v{ids[1]}", at="words")
    expected = golden[f"{given}.attnlrp.embed.contrast_t0_minus_t1"]
    assert difference(contrast[0].relevance, expected) < 1e-4


@pytest.mark.parametrize("given", ["d0", "d1u"])
def test_the_network_of_ali(given: str) -> None:
    """Their own network and code, without gamma: norms and attention written out."""
    folder = GOLDEN / "ali_attn_only"
    network, weights = load_ali_network(folder / "weights_A")
    golden = arrays("ali_attn_only", "ali")
    x = embedded(weights, torch.from_numpy(golden[f"{given}.input_ids"]))
    for name, variant in list(PREFIX.items())[:4]:
        passes = propagated(network, x, composite(name))
        logits = passes.logits.detach()
        np.testing.assert_allclose(logits[0].numpy(), golden[f"{given}.logits"], atol=1e-12)
        seeds = torch.eye(3, dtype=torch.float64)[:, None]
        found = torch.stack([passes.relevance(seed)[0].sum(-1) for seed in seeds])
        assert difference(found.numpy(), golden[f"{given}.{variant}.gamma0.0"]) < TOLERANCE
