"""The rules of linear operators against messages that are written out one by one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import matrix_rules as sink
import numpy as np
import pytest
import torch
from matrix_rules import Messages, Operator, propagated
from torch import Tensor
from torch.nn import functional as F
from toy_networks import close, inputs

from transexplain.engine.composites import COMPOSITES, Composite, InputRule, LinearRule
from transexplain.engine.linear_functions import nonzero_part


def weights(*shape: int) -> tuple[Tensor, Tensor]:
    return inputs(*shape, seed=5), inputs(shape[0], seed=6)


def gpt(x: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    weight, bias = weights(4, 6)
    flat = torch.addmm(bias, x.reshape(-1, 6), weight.T.contiguous(), alpha=alpha, beta=beta)
    return flat.view(*x.shape[:-1], 4)


#: name -> shape of one item, operator
OPERATORS: dict[str, tuple[tuple[int, ...], Operator]] = {
    "linear": ((3, 6), lambda x: F.linear(x, *weights(4, 6))),
    "linear without bias": ((6,), lambda x: F.linear(x, inputs(4, 6, seed=5))),
    "linear by name": ((6,), lambda x: F.linear(x, weight=weights(4, 6)[0], bias=weights(4)[0])),
    "addmm": ((3, 6), gpt),
    "addmm scaled": ((3, 6), lambda x: gpt(x, 2.0, 0.5)),
    "conv1d": ((2, 7), lambda x: F.conv1d(x, *weights(4, 2, 3), 2, 1)),
    "conv1d dilated": ((2, 7), lambda x: F.conv1d(x, *weights(3, 2, 3), dilation=2)),
    "conv2d": ((2, 5, 4), lambda x: F.conv2d(x, *weights(4, 2, 2, 2), stride=(2, 1), padding=1)),
    "conv2d same": ((2, 3, 4), lambda x: F.conv2d(x, *weights(2, 2, 3, 3), padding="same")),
    "conv2d depthwise": ((4, 4, 3), lambda x: F.conv2d(x, *weights(4, 1, 2, 2), groups=4)),
    "conv2d grouped": ((4, 3, 3), lambda x: F.conv2d(x, *weights(6, 2, 2, 2), groups=2)),
    "conv3d": ((1, 3, 4, 3), lambda x: F.conv3d(x, *weights(2, 1, 2, 2, 2), dilation=(1, 2, 1))),
    "conv_transpose2d": (
        (2, 3, 2),
        lambda x: F.conv_transpose2d(x, inputs(2, 3, 2, 2, seed=5), inputs(3, seed=6), stride=2),
    ),
}

#: name -> parameters, twin
RULES: dict[str, tuple[LinearRule, sink.Rule]] = {
    "lrp-0": (LinearRule(), sink.epsilon(0.0)),
    "epsilon": (LinearRule(epsilon=0.3), sink.epsilon(0.3)),
    "gamma": (LinearRule(gamma=0.25), sink.gamma(0.25)),
    "large gamma": (LinearRule(gamma=50.0), sink.gamma(50.0)),
    "z+": (LinearRule(alpha=1.0), sink.alpha_beta(1.0, 0.0)),
    "alpha2-beta1": (LinearRule(alpha=2.0, beta=1.0), sink.alpha_beta(2.0, 1.0)),
}
PLAIN = Composite(name="test")
RELEVANCE = COMPOSITES["chefer-lrp"]


def check(
    rules: Composite, shape: tuple[int, ...], operator: Operator, of: Callable[[Tensor], Messages]
) -> None:
    """Relevance, bias and loss of two items against the messages of each alone."""
    x = inputs(2, *shape)
    passes = propagated(lambda leaf: operator(leaf).flatten(1), x, rules)
    torch.testing.assert_close(passes.logits, operator(x).flatten(1))
    seed = inputs(*passes.logits.shape, seed=8)
    relevance = passes.relevance(seed)
    arrived = seed if rules.relevance_form else seed * passes.logits.detach()
    ledgers = close(passes, relevance, seed)
    for index, ledger in enumerate(ledgers):
        messages = of(x[index : index + 1])
        expected = arrived[index] @ messages.inputs
        torch.testing.assert_close(relevance[index].flatten(), expected, rtol=1e-9, atol=1e-10)
        size = float(arrived[index].abs() @ messages.inputs.abs().sum(1)) + 1.0
        of_bias, lost = (float(arrived[index] @ part) for part in (messages.bias, messages.lost))
        assert ledger.biases + ledger.rules == pytest.approx(of_bias + lost, abs=1e-11 * size)
        if not rules.relevance_form:  # there, what a bias takes may count as a loss
            assert ledger.biases == pytest.approx(of_bias, abs=1e-11 * size)
        assert ledger.relative_gap < 1e-12


def written_out(operator: Operator, rule: sink.Rule) -> Callable[[Tensor], Messages]:
    return lambda x: sink.by_output(*sink.contributions(operator, x), rule)


@pytest.mark.parametrize("name", OPERATORS)
def test_rules_of_an_operator(name: str, subtests: pytest.Subtests) -> None:
    """In gradient form all; between R = z g above and g = R / z below those that may stand there.

    TransExplain's gamma raises contributions, not weights, which differs for inputs below 0.
    """
    shape, operator = OPERATORS[name]
    assert (inputs(2, *shape) < 0).any()
    stated = LinearRule(gamma=0.25, epsilon=0.05, gamma_form="transexplain")
    rules = {**RULES, "gamma as stated": (stated, sink.transexplain_gamma(0.25, 0.05))}
    for rule, (parameters, twin) in rules.items():
        with subtests.test(rule=rule):
            check(replace(PLAIN, linear=parameters), shape, operator, written_out(operator, twin))
    number = list(OPERATORS).index(name)
    for rule in (("lrp-0", "epsilon", "gamma")[number % 3], "gamma as stated"):
        parameters, twin = rules[rule]
        with subtests.test(rule=rule, form="relevance"):
            check(
                replace(RELEVANCE, linear=parameters), shape, operator, written_out(operator, twin)
            )


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        # contributions 2 and -1 count 3 and -1, z = 1: shares 3/2 and -1/2
        ([2.0, -1.0], [1.5, -0.5]),
        # contributions -2 and 1 count -2 and 1.5, z = -1: shares 4 and -3 of -1
        ([-2.0, 1.0], [-4.0, 3.0]),
    ],
)
def test_transexplains_gamma_on_one_output(x: list[float], expected: list[float]) -> None:
    rule = LinearRule(gamma=0.5, epsilon=1e-12, gamma_form="transexplain")
    weight = torch.ones(1, 2).double()
    leaf = torch.tensor([x]).double()
    passes = propagated(lambda x: F.linear(x, weight), leaf, replace(PLAIN, linear=rule))
    found = passes.relevance(torch.ones(1, 1))
    torch.testing.assert_close(found, torch.tensor([expected]).double(), rtol=1e-9, atol=1e-9)


def test_what_meets_a_denominator_of_0_is_booked_as_lost() -> None:
    """z = -0.25 and gamma P = 0.5: epsilon = 0.25 brings the denominator to 0."""
    rule = LinearRule(gamma=0.5, epsilon=0.25, gamma_form="transexplain")
    passes = propagated(lambda x: F.linear(x, WEIGHT), X, replace(PLAIN, linear=rule))
    seed = torch.ones(1, 1).double()
    relevance = passes.relevance(seed)
    assert not relevance.any()
    [ledger] = close(passes, relevance, seed)
    assert ledger.rules == -0.25


#: name -> rule, twin
INPUT_RULES: dict[str, tuple[InputRule, Callable[[Operator, Tensor], Messages]]] = {
    "zb": (
        InputRule(name="zb", low=-3.0, high=3.5),
        lambda operator, x: sink.box(operator, x, -3.0, 3.5),
    ),
    "zb of the item's own range": (
        InputRule(name="zb"),
        lambda operator, x: sink.box(operator, x, float(x.min()), float(x.max())),
    ),
    "w2": (InputRule(name="w2"), lambda op, x: sink.by_weight(op, x, lambda w: w * w)),
    "flat": (InputRule(name="flat"), lambda op, x: sink.by_weight(op, x, lambda w: float(w != 0))),
}


@pytest.mark.parametrize("rule", INPUT_RULES)
def test_input_rules(rule: str, subtests: pytest.Subtests) -> None:
    parameters, written = INPUT_RULES[rule]
    for number, (name, (shape, operator)) in enumerate(OPERATORS.items()):
        base = (PLAIN, RELEVANCE)[number % 2]
        with subtests.test(operator=name, base=base.name):
            twin = partial(written, operator)
            check(replace(base, input_rule=parameters), shape, operator, twin)


@pytest.mark.parametrize("name", ["w2", "zb"])
def test_what_no_input_contributes_to_is_lost(name: str) -> None:
    weight = torch.tensor([[1.0, -2.0], [0.0, 0.0]]).double()
    bias = torch.tensor([0.5, 3.0]).double()
    rules = replace(PLAIN, input_rule=InputRule(name=name))
    passes = propagated(lambda x: F.linear(x, weight, bias), X, rules)
    seed = torch.ones(1, 2).double()
    [ledger] = close(passes, passes.relevance(seed), seed)
    assert ledger.rules == pytest.approx(3.0 if name == "w2" else 2.5)
    assert ledger.relative_gap < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_zero_of_a_gradient(seed: int) -> None:
    """Rows and columns that are left out hold nothing but zeros."""
    draw = np.random.default_rng(seed)
    gradient = torch.zeros(3, 8, 24).double()
    rows, low = draw.choice(24, 12, replace=False), int(draw.integers(20))
    gradient.view(24, 24)[rows, low : low + 3] = 1.0
    if seed % 2:  # one number elsewhere, in a row that is seldom looked at
        gradient.view(24, 24)[draw.integers(24), draw.integers(24)] = 1.0
    part = nonzero_part(gradient)
    weight = inputs(24, 5)
    found = part.back(part.of(gradient) @ weight[part.columns], torch.empty(3, 8, 5).double())
    torch.testing.assert_close(found, gradient @ weight)


def test_an_input_of_zero_has_relevance_under_an_input_rule() -> None:
    x = torch.zeros(1, 6, dtype=torch.float64)
    _, operator = OPERATORS["linear"]
    passes = propagated(operator, x, replace(PLAIN, input_rule=InputRule(name="flat")))
    seed = torch.ones_like(passes.logits)
    found = passes.relevance(seed)
    torch.testing.assert_close(found, (passes.logits.detach().sum() / 6).expand(1, 6))


# one output of three inputs whose contributions 1 and -1.25 cancel once the first counts 1.25 fold
X, WEIGHT = torch.tensor([[1.0, 1.0]]).double(), torch.tensor([[1.0, -1.25]]).double()


def test_the_singular_case_of_transexplains_gamma() -> None:
    """z = -0.25, the equation's denominator is 0: epsilon alone decides what comes out."""
    for floor in (1e-3, 1e-6, 1e-9):
        rule = LinearRule(gamma=0.25, epsilon=floor, gamma_form="transexplain")
        passes = propagated(lambda x: F.linear(x, WEIGHT), X, replace(PLAIN, linear=rule))
        relevance = passes.relevance(torch.ones(1, 1))
        amplification = passes.book.amplification
        assert amplification[0] == pytest.approx(0.25 / floor, rel=1e-9)
        assert float(relevance.abs().max()) == pytest.approx(1.25 * 0.25 / floor, rel=1e-9)


def test_the_generalised_gamma_has_no_singular_case() -> None:
    rules = replace(PLAIN, linear=LinearRule(gamma=0.25))
    passes = propagated(lambda x: F.linear(x, WEIGHT), X, rules)
    relevance = passes.relevance(torch.ones(1, 1))
    below = 1.0 - 1.25 * 1.25
    expected = torch.tensor([[-0.25 / below, -0.25 * -1.25 * 1.25 / below]]).double()
    torch.testing.assert_close(relevance, expected)
    assert passes.book.amplification is None
