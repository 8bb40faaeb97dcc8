"""Attention and norms in gradient form against messages that are written out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from matrix_rules import propagated
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import close, inputs, one_hot, run, seeded

from transexplain.engine import gradient_functions
from transexplain.engine.composites import composite
from transexplain.engine.gradient_functions import ConstantScaleLayerNorm, ConstantScaleRmsNorm

CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()
BIAS = inputs(4, 4, seed=7)
#: name -> arguments of fused attention, what they add to the scores
MASKS: dict[str, tuple[dict[str, Any], Tensor]] = {
    "none": ({}, torch.zeros(4, 4).double()),
    "boolean": ({"attn_mask": CAUSAL}, torch.zeros(4, 4).double().masked_fill(~CAUSAL, -1e300)),
    "causal": ({"is_causal": True}, torch.zeros(4, 4).double().masked_fill(~CAUSAL, -1e300)),
    "float": ({"attn_mask": BIAS}, BIAS),
}


def messages(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, arrived: Tensor) -> list[Tensor]:
    """AttnLRP's relevance of queries, keys and values (T, D) of one head, one by one.

    Halved products, R_s = s (R_A - A sum R_A) for the softmax; an added bias has its own share.
    """
    plain = q @ k.T / q.shape[1] ** 0.5
    scores = plain + bias
    weights = torch.softmax(scores, -1)
    out = weights @ v
    of_q, of_k, of_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for i in range(len(q)):
        of_weights = torch.zeros(len(k)).double()
        for j in range(len(k)):
            share = weights[i, j] * v[j] / out[i] * arrived[i] / 2
            of_weights[j] = share.sum()
            of_v[j] += share
        for j in range(len(k)):
            if weights[i, j] == 0:
                continue
            of_score = scores[i, j] * (of_weights[j] - weights[i, j] * of_weights.sum())
            share = q[i] * k[j] / q.shape[1] ** 0.5 / scores[i, j] * of_score / 2
            of_q[i] += share
            of_k[j] += share
    return [of_q, of_k, of_v]


def attending(mask: str, fused: bool) -> Callable[[Tensor], Tensor]:
    """Attention whose queries, keys and values are the leaf's."""
    arguments, bias = MASKS[mask]

    def function(leaf: Tensor) -> Tensor:
        q, k, v = leaf.unbind(1)
        if fused:
            return F.scaled_dot_product_attention(q, k, v, **arguments)
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias, dim=-1) @ v

    return function


def relevance(function: Callable[[Tensor], Tensor], x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Relevance of the leaf, and what arrives at the outputs."""
    passes = propagated(lambda leaf: function(leaf).flatten(1), x, composite(name))
    torch.testing.assert_close(passes.logits, function(x).flatten(1))
    seed = inputs(*passes.logits.shape, seed=8)
    found = passes.relevance(seed)
    for ledger in close(passes, found, seed):
        assert ledger.relative_gap < 1e-12
    return found, seed * passes.logits.detach()


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eager"])
@pytest.mark.parametrize("mask", MASKS)
def test_attnlrp(mask: str, fused: bool) -> None:
    x = inputs(2, 3, 2, 4, 5)  # item, role, head, position, channel
    _, bias = MASKS[mask]
    found, arrived = relevance(attending(mask, fused), x, "attnlrp")
    arrived = arrived.view(2, 2, 4, 5)
    for item in range(2):
        for head in range(2):
            expected = messages(*x[item, :, head], bias, arrived[item, head])
            torch.testing.assert_close(found[item, :, head], torch.stack(expected))


@pytest.mark.parametrize(("row", "mask"), list(enumerate(MASKS)))
@pytest.mark.parametrize(("column", "name"), list(enumerate(["lrp", "lrp-ah", "lrp-ah-ln"])))
def test_constant_weights(row: int, mask: str, column: int, name: str) -> None:
    """AH: values take all, R_j = sum_i a_ij v_j / z_i R_i."""
    x = inputs(2, 3, 2, 4, 5)
    _, bias = MASKS[mask]
    fused = (row + column) % 2 == 0
    found, arrived = relevance(attending(mask, fused), x, name)
    arrived = arrived.view(2, 2, 4, 5)
    assert not found[:, :2].any(), "queries and keys take nothing"
    for item in range(2):
        for head in range(2):
            q, k, v = x[item, :, head]
            weights = torch.softmax(q @ k.T / 5**0.5 + bias, -1)
            shares = weights[:, :, None] * v / (weights @ v)[:, None]
            expected = (shares * arrived[item, head][:, None]).sum(0)
            torch.testing.assert_close(found[item, 2, head], expected)


def test_queries_in_slices_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = inputs(3, 2, 2, 4, 5)

    def function(leaf: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, leaf, is_causal=True)

    whole = relevance(function, v, "lrp")
    monkeypatch.setattr(gradient_functions, "_SCORES", 1)
    torch.testing.assert_close(relevance(function, v, "lrp"), whole)


@pytest.mark.parametrize("name", ["lrp", "attnlrp", "gradient-x-input", "chefer-lrp"])
def test_grouped_queries_are_repeated_keys_and_values(name: str) -> None:
    x = inputs(2, 6, 4, 5)  # four heads of queries, one of keys, one of values

    def fused(leaf: Tensor) -> Tensor:
        q, k, v = leaf[:, :4], leaf[:, 4:5], leaf[:, 5:]
        return F.scaled_dot_product_attention(query=q, key=k, value=v, enable_gqa=True)

    def written(leaf: Tensor) -> Tensor:
        q, k, v = leaf[:, :4], leaf[:, 4:5].expand(-1, 4, -1, -1), leaf[:, 5:].expand(-1, 4, -1, -1)
        return torch.softmax(q @ k.transpose(-1, -2) / 5**0.5, -1) @ v

    torch.testing.assert_close(relevance(fused, x, name), relevance(written, x, name))


#: name -> norm of (B, 4, 3), how many groups of places share a scale, its weight at each place
NORMS: dict[str, tuple[Callable[[Tensor], Tensor], int, Tensor]] = {
    "layer": (
        lambda x: F.layer_norm(x, (4, 3), inputs(4, 3, seed=3), inputs(4, 3, seed=4)),
        1,
        inputs(4, 3, seed=3).flatten(),
    ),
    "group": (
        lambda x: F.group_norm(x, 2, inputs(4, seed=3), inputs(4, seed=4)),
        2,
        inputs(4, seed=3).repeat_interleave(3),
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_layer_norm_over_two_axes(name: str) -> None:
    """R_i = sum_j x_i (delta_ij - 1/N) w_j / std / z_j R_j, sums over one group."""
    norm, groups, weight = NORMS[name]
    x = inputs(2, 4, 3)
    found, arrived = relevance(norm, x, "lrp")
    for item in range(2):
        places = (x[item], weight, arrived[item] / norm(x)[item].flatten(), found[item])
        for values, scale, share, expected in zip(
            *(one.flatten().chunk(groups) for one in places), strict=True
        ):
            std = (values.var(unbiased=False) + 1e-5).sqrt()
            centring = torch.eye(len(values)).double() - 1 / len(values)
            rows = values[:, None] * centring * (scale / std * share)
            torch.testing.assert_close(expected, rows.sum(1))


def relevance_of(function, x: Tensor, name: str, index: int = 0) -> Tensor:
    passes = run(function, x, name)
    return passes.relevance(one_hot(passes.logits, index))


@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh, F.hardswish, torch.sigmoid])
def test_identity_rule_at_zero_is_the_slope(function) -> None:
    x = torch.tensor([[0.0, -0.0, 1e-300, -1e-9, 2.0]], dtype=torch.float64)
    passes = run(function, x, "lrp")
    (gradient,) = torch.autograd.grad(
        passes.logits, passes.input_layer, torch.ones_like(passes.logits), retain_graph=True
    )
    slope = torch.func.grad(function)(torch.tensor(0.0, dtype=torch.float64))
    torch.testing.assert_close(gradient[0, :4], slope.expand(4), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", [ConstantScaleLayerNorm, ConstantScaleRmsNorm])
def test_the_scale_of_a_norm_is_not_rounded(function) -> None:
    """Rounded to bfloat16 it would scale all relevance of a position, by up to 0.4 %."""
    generator = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(64, 768, generator=generator).bfloat16() for _ in range(2))
    weight = torch.randn(768, generator=generator).bfloat16()

    def backward(x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        leaf = x.clone().requires_grad_(True)
        rest = (None, 1e-5) if function is ConstantScaleLayerNorm else (1e-5,)
        return torch.autograd.grad(function.apply(leaf, [768], weight, *rest), leaf, gradient)[0]

    wanted = backward(x.double(), weight.double(), gradient.double())
    found = backward(x, weight, gradient).double()
    scale = (found * wanted).sum(-1) / (wanted * wanted).sum(-1)
    assert (scale - 1).abs().max() < 1e-3


def test_attention_of_a_tensor_to_itself() -> None:
    """Query, key and value are one tensor: only the value's role carries relevance."""
    x = inputs(1, 4, 6)
    weights = (x @ x.transpose(-1, -2) / 6**0.5).softmax(-1)

    def function(leaf: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(leaf, leaf, leaf).flatten(1)

    expected = torch.zeros_like(x)
    expected[0, :, 2] = weights[0, 1] * x[0, :, 2]
    torch.testing.assert_close(relevance_of(function, x, "lrp", index=8), expected)


def test_gradient_x_input_is_the_plain_gradient() -> None:
    norm, head = seeded(nn.LayerNorm(6), 3), seeded(nn.Linear(6, 2), 4)
    x = inputs(2, 6)

    def function(leaf: Tensor) -> Tensor:
        return head(F.gelu(norm(leaf)) * torch.softmax(leaf, -1))

    plain = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(plain)[:, 1].sum(), plain)
    found = relevance_of(function, x, "gradient-x-input", index=1)
    torch.testing.assert_close(found, x * gradient)
