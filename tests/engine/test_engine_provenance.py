"""Functions written out in small operators get the rule of the one function that they are."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import close, inputs, one_hot, run, seeded

from transexplain.engine.composites import COMPOSITES
from transexplain.errors import EngineError


def gelu_tanh(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def gelu_erf(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def silu_by_exp(x: Tensor) -> Tensor:
    return x / (1.0 + torch.exp(-x))


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(F.softplus(x))


def hard_swish(x: Tensor) -> Tensor:
    return x * F.relu6(x + 3.0) / 6.0


def squared_relu(x: Tensor) -> Tensor:
    return torch.square(F.relu(x))


WRITTEN_OUT = {
    gelu_tanh: lambda x: F.gelu(x, approximate="tanh"),
    gelu_erf: F.gelu,
    quick_gelu: quick_gelu,
    silu_by_exp: F.silu,
    mish: F.mish,
    hard_swish: F.hardswish,
    squared_relu: squared_relu,
}


@pytest.mark.parametrize("written", WRITTEN_OUT)
def test_an_activation_written_out_is_one_function(written) -> None:
    """All relevance that arrives at f(x) leaves at x, as for the fused operator."""
    fused, head = WRITTEN_OUT[written], seeded(nn.Linear(6, 3))
    x = inputs(2, 6)
    passes = run(lambda h: head(written(h)), x, "lrp")
    seed = one_hot(passes.logits, 0)
    relevance = passes.relevance(seed)
    torch.testing.assert_close(relevance, fused(x) * head.weight[0])
    for ledger in close(passes, relevance, seed):
        assert set(ledger.biases_by_kind) == {"linear"}, "no share for the constants inside f"
        assert ledger.relative_gap < 1e-12


@pytest.mark.parametrize("name", COMPOSITES)
def test_the_ledger_closes(name: str) -> None:
    first, second = seeded(nn.Linear(6, 6), 1), seeded(nn.Linear(6, 3), 2)
    for written in WRITTEN_OUT:
        network = lambda h, f=written: second(f(first(h)) + h).mean(1)  # noqa: E731
        passes = run(network, inputs(2, 4, 6), name)
        seed = torch.ones_like(passes.logits)
        for ledger in close(passes, passes.relevance(seed), seed):
            assert ledger.relative_gap < 1e-12, written


def rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def standardised(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + 1e-5)


def by_var(x: Tensor) -> Tensor:
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - x.mean(-1, keepdim=True)) * (variance + 1e-5).rsqrt()


def unit_length(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def inverse_square(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 0.1).pow(-1)


NORMS = {
    rms: lambda x: F.rms_norm(x, (6,), None, 1e-6),
    standardised: lambda x: F.layer_norm(x, (6,)),
    by_var: lambda x: F.layer_norm(x, (6,)),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_norm_written_out_is_the_norm(name: str) -> None:
    head = seeded(nn.Linear(6, 3))
    x = inputs(2, 6)
    for pair in NORMS.items():
        relevances = []
        for norm in pair:
            passes = run(lambda h, f=norm: head(f(h)), x, name)
            seed = one_hot(passes.logits, 1)
            relevances.append(passes.relevance(seed))
            for ledger in close(passes, relevances[-1], seed):
                assert ledger.relative_gap < 1e-12
        torch.testing.assert_close(*relevances)


@pytest.mark.parametrize("function", [unit_length, inverse_square])
def test_division_by_a_length_is_a_scale(function) -> None:
    head = seeded(nn.Linear(6, 3))
    x = inputs(2, 6)
    passes = run(lambda h: head(function(h)), x, "lrp")
    found = passes.relevance(one_hot(passes.logits, 0))
    torch.testing.assert_close(found, function(x) * head.weight[0])


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_gate_lets_all_relevance_to_the_signal(scale: float) -> None:
    """Signal takes all (Arras et al. 2019): the sigmoid of another carrier is a constant."""
    gate, signal = seeded(nn.Linear(5, 5), 1), seeded(nn.Linear(5, 5), 2)
    x = inputs(1, 5)
    passes = run(lambda h: (scale * torch.sigmoid(gate(h))) * signal(h), x, "lrp")
    found = passes.relevance(one_hot(passes.logits, 3))
    expected = scale * x[0] * signal.weight[3] * torch.sigmoid(gate(x))[0, 3]
    torch.testing.assert_close(found[0], expected)


def test_a_gated_unit_is_halved() -> None:
    """SwiGLU: silu(g) * u is a product of two signals."""
    gate, up = seeded(nn.Linear(5, 5), 1), seeded(nn.Linear(5, 5), 2)
    x = inputs(1, 5)
    g, u = gate(x)[0], up(x)[0]
    passes = run(lambda h: F.silu(gate(h)) * up(h), x, "lrp")
    found = passes.relevance(one_hot(passes.logits, 3))
    through_gate = gate.weight[3] * torch.sigmoid(g[3]) * u[3]
    through_up = up.weight[3] * F.silu(g[3])
    torch.testing.assert_close(found[0], 0.5 * x[0] * (through_gate + through_up))


def test_constants_that_differ_by_channel() -> None:
    """f_j(x) = tanh(a_j x + b_j): f_j(0) = tanh(b_j) is a constant, for every channel its own."""
    a, b, head = inputs(6, seed=3), inputs(6, seed=4), seeded(nn.Linear(6, 2))
    x = inputs(2, 6)
    passes = run(lambda h: head(torch.tanh(h * a + b)), x, "lrp")
    seed = one_hot(passes.logits, 0)
    relevance = passes.relevance(seed)
    torch.testing.assert_close(relevance, (torch.tanh(a * x + b) - torch.tanh(b)) * head.weight[0])
    for ledger in close(passes, relevance, seed):
        expected = (torch.tanh(b) * head.weight[0]).sum().item()
        assert ledger.biases_by_kind["activation"] == pytest.approx(expected)
        assert ledger.relative_gap < 1e-12


def test_functions_that_are_not_finite_at_zero_are_refused() -> None:
    for function in (torch.reciprocal, lambda x: 1.0 / x, lambda x: x.pow(-2.0)):
        with pytest.raises(EngineError, match=r"reciprocal|denominator|not finite"):
            run(function, inputs(2, 6), "lrp")


def test_the_plain_gradient_needs_no_value_at_zero() -> None:
    head = seeded(nn.Linear(6, 2))
    x = inputs(2, 6).abs() + 0.5
    passes = run(lambda h: head(h.pow(-2.0) + 1.0 / h), x, "gradient-x-input")
    seed = one_hot(passes.logits, 0)
    for ledger in close(passes, passes.relevance(seed), seed):
        assert ledger.relative_gap < 1e-12


def test_an_in_place_write_forgets_what_a_tensor_was() -> None:
    """After `y += other` y is no function of its root any more: the product is halved."""
    first, second = seeded(nn.Linear(5, 5), 1), seeded(nn.Linear(5, 5), 2)
    x = inputs(1, 5)

    def in_place(h: Tensor) -> Tensor:
        root, other = first(h), second(h)
        y = torch.tanh(root)
        y += other
        return root * y

    def out_of_place(h: Tensor) -> Tensor:
        root, other = first(h), second(h)
        return root * (torch.tanh(root) + other)

    left, right = (run(f, x, "lrp") for f in (in_place, out_of_place))
    seed = one_hot(left.logits, 2)
    torch.testing.assert_close(left.relevance(seed), right.relevance(seed))


def test_powers_and_products_in_every_spelling() -> None:
    layer, other = seeded(nn.Linear(6, 6), 1), seeded(nn.Linear(6, 6), 2)
    x = inputs(2, 6)

    def spelled(h: Tensor) -> Tensor:
        hidden = layer(h)
        y = (hidden**2 + 2.0 * hidden) * 0.5
        y *= other(h)
        y.mul_(torch.sigmoid(hidden))
        return 1.0 - y

    def plain(h: Tensor) -> Tensor:
        hidden = layer(h)
        y = torch.mul(torch.pow(hidden, 2) + torch.mul(hidden, 2.0), 0.5)
        y = torch.mul(y, other(h))
        return torch.sub(1.0, torch.mul(y, torch.sigmoid(hidden)))

    for name in COMPOSITES:
        left, right = run(spelled, x, name), run(plain, x, name)
        torch.testing.assert_close(left.logits, plain(x))
        seed = one_hot(left.logits, 2)
        torch.testing.assert_close(left.relevance(seed), right.relevance(seed))
        for ledger in close(left, left.relevance(seed), seed):
            assert ledger.relative_gap < 1e-12
