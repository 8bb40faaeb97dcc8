"""Functions written out in small operators get the rule of the one function that they are."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import close, inputs, one_hot, run, seeded

from transexplain.engine.composites import COMPOSITES

Function = Callable[[Tensor], Tensor]
ROOT = math.sqrt(2.0 / math.pi)
#: name -> an activation written out, and the one function that it is
WRITTEN_OUT: dict[str, tuple[Function, Function]] = {
    "gelu by tanh": (
        lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "gelu by erf": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), F.gelu),
    "quick gelu": 2 * (lambda x: x * torch.sigmoid(1.702 * x),),
    "silu by exp": (lambda x: x / (1.0 + torch.exp(-x)), F.silu),
    "mish": (lambda x: x * torch.tanh(F.softplus(x)), F.mish),
    "hard swish": (lambda x: x * F.relu6(x + 3.0) / 6.0, F.hardswish),
    "squared relu": 2 * (lambda x: torch.square(F.relu(x)),),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_an_activation_written_out_is_one_function(name: str) -> None:
    """All relevance that arrives at f(x) leaves at x, as for the fused operator."""
    written, fused = WRITTEN_OUT[name]
    x, head = inputs(2, 6), seeded(nn.Linear(6, 3))
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
    for written, _ in WRITTEN_OUT.values():
        network = lambda h, f=written: second(f(first(h)) + h).mean(1)  # noqa: E731
        passes = run(network, inputs(2, 4, 6), name)
        seed = torch.ones_like(passes.logits)
        for ledger in close(passes, passes.relevance(seed), seed):
            assert ledger.relative_gap < 1e-12


def variance(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)


#: norms written out, and fused
NORMS: list[tuple[Function, Function]] = [
    (
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda x: F.rms_norm(x, (6,), None, 1e-6),
    ),
    (
        lambda x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance(x) + 1e-5),
        lambda x: F.layer_norm(x, (6,)),
    ),
    (
        lambda x: (x - x.mean(-1, keepdim=True)) * (x.var(-1, False, keepdim=True) + 1e-5).rsqrt(),
        lambda x: F.layer_norm(x, (6,)),
    ),
]


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_norm_written_out_is_the_norm(name: str) -> None:
    head = seeded(nn.Linear(6, 3))
    x = inputs(2, 6)
    for pair in NORMS:
        relevances = []
        for norm in pair:
            passes = run(lambda h, f=norm: head(f(h)), x, name)
            seed = one_hot(passes.logits, 1)
            relevances.append(passes.relevance(seed))
            for ledger in close(passes, relevances[-1], seed):
                assert ledger.relative_gap < 1e-12
        torch.testing.assert_close(*relevances)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: x * (x.square().mean(-1, keepdim=True) + 0.1).pow(-1),
    ],
)
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
