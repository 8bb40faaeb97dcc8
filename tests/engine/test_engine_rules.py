"""Every rule against its slow matrix form: relevance of x_i as a sum over explicit messages."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import inputs, one_hot, run, seeded

from transexplain.engine.gradient_functions import ConstantScaleLayerNorm, ConstantScaleRmsNorm


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
