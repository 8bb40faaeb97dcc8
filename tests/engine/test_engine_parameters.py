"""Overrides by the name of a weight, input rules, and messages about wrong parameters."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from matrix_rules import propagated
from tiny_models import bert, vit, wordpiece
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import close, inputs, one_hot, seeded

import transexplain as te
from transexplain.engine.composites import (
    COMPOSITES,
    Composite,
    InputRule,
    LinearRule,
    composite,
    parsed_overrides,
    tuned,
)
from transexplain.errors import ConfigurationError


class Stack(nn.Module):
    """Two named layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = F.relu(block(x))
        return self.head(x)


STACK = seeded(Stack())
X = inputs(2, 6)
BASES = ("lrp", "attnlrp", "chefer-lrp")


def relevance(rules: Composite) -> Tensor:
    passes = propagated(STACK, X, rules, STACK)
    found = passes.relevance(one_hot(passes.logits, 1))
    for ledger in close(passes, found, one_hot(passes.logits, 1)):
        assert ledger.relative_gap < 1e-12
    return found


def overridden(base: str, *pairs: tuple[str, Any]) -> Tensor:
    return relevance(tuned(composite(base), linear={}, overrides=parsed_overrides(pairs)))


@pytest.mark.parametrize("base", BASES)
def test_an_override_of_every_layer_is_the_rule_itself(base: str) -> None:
    expected = relevance(replace(COMPOSITES[base], linear=LinearRule(gamma=0.25)))
    torch.testing.assert_close(overridden(base, ("*", "gamma")), expected)
    assert not torch.allclose(expected, relevance(COMPOSITES[base]))


def test_a_weight_that_is_made_goes_by_its_module() -> None:
    """A weight norm makes the weight anew in every forward: no parameter has its place."""
    network = Stack()
    nn.utils.parametrizations.weight_norm(network.blocks[0])
    network = seeded(network)

    def found(*pairs: tuple[str, Any]) -> Tensor:
        rules = tuned(composite("lrp"), linear={}, overrides=parsed_overrides(pairs))
        passes = propagated(network, X, rules, network)
        return passes.relevance(one_hot(passes.logits, 1))

    assert not torch.allclose(found(("blocks.0", "gamma")), found())
    torch.testing.assert_close(found(("blocks.0", "lrp-0")), found())


@pytest.mark.parametrize("base", BASES)
def test_the_first_match_decides(base: str) -> None:
    both = overridden(base, ("blocks.0", "epsilon"), ("blocks.*", "gamma"))
    exact = overridden(base, ("blocks.0.weight", "epsilon"), ("blocks.1.weight", "gamma"))
    torch.testing.assert_close(both, exact)
    others = overridden(base, ("blocks.1", "gamma"), ("blocks.*", "epsilon"))
    torch.testing.assert_close(both, others)
    assert not torch.allclose(both, overridden(base, ("blocks.*", "gamma")))


@pytest.mark.parametrize("base", BASES)
def test_an_override_reaches_its_layer_alone(base: str) -> None:
    """LRP-gamma at the head alone: layers below share what arrives as before."""
    plain = relevance(COMPOSITES[base])
    gamma = overridden(base, ("head", {"rule": "gamma", "gamma": 2.0}))
    assert not torch.allclose(gamma, plain)
    own_rule = "z+" if base == "chefer-lrp" else "lrp-0"
    torch.testing.assert_close(overridden(base, ("head", own_rule)), plain)


@pytest.mark.parametrize("base", BASES)
def test_an_override_that_never_applies_is_an_error(base: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'encoder\.\*' matches no.*blocks\.0\.weight"):
        overridden(base, ("head", "gamma"), ("encoder.*", "gamma"))
    with pytest.raises(ConfigurationError, match=r"'head' matches no"):
        overridden(base, ("*", "gamma"), ("head", "epsilon"))


def test_overrides_in_every_spelling() -> None:
    pairs = parsed_overrides([("head", "gamma"), ["blocks.*", {"rule": "epsilon", "epsilon": 0.1}]])
    mapping = {"head": "gamma", "blocks.*": {"rule": "epsilon", "epsilon": 0.1}}
    assert pairs == parsed_overrides(mapping) == parsed_overrides(pairs)
    assert pairs[1].rule == LinearRule(epsilon=0.1)


@pytest.mark.parametrize("base", ["lrp", "chefer-lrp"])
def test_an_input_rule_needs_an_operator_that_reads_the_input_layer(base: str) -> None:
    rules = replace(COMPOSITES[base], input_rule=InputRule(name="w2"))
    with pytest.raises(ConfigurationError, match="reads the input layer, and none does"):
        propagated(lambda x: STACK(torch.tanh(x)), X, rules, STACK)
    assert relevance(rules).shape == X.shape


@pytest.fixture(scope="module")
def image() -> Any:
    return te.wrap(vit().double(), modality="image")


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("lrp", {"epsilon": -1e-3}, "must not be negative"),
        ("lrp", {"gamma": -0.1}, "must not be negative"),
        ("lrp", {"alpha": 2.0, "beta": 0.5}, r"alpha - beta must be 1.*alpha=2\.0, beta=0\.5"),
        ("lrp", {"alpha": 0.5}, "alpha >= 1"),
        ("lrp", {"alpha": 2.0, "gamma": 0.25}, "no epsilon and no gamma"),
        ("lrp-gamma", {"alpha": 2.0}, "no epsilon and no gamma"),
        ("lrp-alpha-beta", {"epsilon": 1e-3}, "no epsilon and no gamma"),
        ("lrp", {"gamma_form": "transexplain", "epsilon": 0.1}, "give gamma > 0"),
        ("lrp-gamma", {"gamma_form": "transexplain"}, "needs epsilon > 0"),
        ("lrp", {"gamma": 0.1, "gamma_form": "paper"}, "'generalised' or 'transexplain'"),
        ("lrp", {"beta": 1.0}, "alpha"),
        ("lrp", {"overrides": [("head", "lrq")]}, r"unknown rule 'lrq'.*lrp-0.*z\+"),
        ("lrp", {"overrides": ["head"]}, r"a pair \(pattern, rule\)"),
        ("lrp", {"overrides": [("x", {"rule": "gamma", "delta": 1})]}, "no parameter 'delta'"),
        ("lrp", {"overrides": [("no.such.*", "gamma")]}, r"'no\.such\.\*' matches no"),
        ("lrp", {"input_rule": "zbox"}, "'zb', 'w2' or 'flat', not 'zbox'"),
        ("lrp", {"input_rule": {"rule": "zb", "lowest": 0}}, "no 'lowest'"),
        ("lrp", {"input_rule": {"rule": "zb", "low": 1.0, "high": 0.0}}, "range is empty"),
        ("lrp", {"input_rule": "zb", "at": "encoder"}, "reads the input layer"),
        ("chefer-lrp", {"variant": "code"}, "'paper' or 'authors', not 'code'"),
        ("gradient-x-input", {"gamma": 0.1}, "'gradient-x-input' has no parameter 'gamma'"),
    ],
)
def test_wrong_parameters(image: Any, method: str, params: dict[str, Any], words: str) -> None:
    picture = {"pixel_values": inputs(3, 24, 24)}
    with pytest.raises(ConfigurationError, match=words):
        te.explain(image, picture, method, **params)


def test_rules_of_text_and_pictures(image: Any) -> None:
    """Parameters reach the engine through the public function."""
    text = te.wrap(bert().double(), tokenizer=wordpiece(), modality="text")
    plain, gamma = (te.explain(text, "a good film", m)[0] for m in ("lrp", "lrp-gamma"))
    assert plain.logit == gamma.logit
    assert abs(plain.relevance - gamma.relevance).max() > 1e-6
    same = te.explain(text, "a good film", "lrp", overrides=[("*", "gamma")])[0]
    assert abs(same.relevance - gamma.relevance).max() < 1e-9
    picture = {"pixel_values": inputs(3, 24, 24)}
    for name in ("zb", "w2", "flat"):
        found = te.explain(image, picture, "lrp", at="pixels", input_rule=name)[0]
        assert found.ledger.relative_gap < 1e-12
