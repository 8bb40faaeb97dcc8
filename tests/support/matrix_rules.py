"""Slow twins of the rules for linear operators: every message R_{i<-j} written out.

The operator is turned into a dense matrix by its values at unit vectors, so nothing of the
engine's algebra (signed weights, transposes, autograd) is used here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transexplain.engine.composites import Composite
from transexplain.engine.propagate import Propagation, propagate

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Messages:
    """What output j sends when one unit of relevance arrives at it."""

    inputs: Tensor  #: (outputs, inputs)
    bias: Tensor  #: (outputs,)

    @property
    def lost(self) -> Tensor:
        """(outputs,) what neither an input nor the bias gets."""
        return 1 - self.inputs.sum(1) - self.bias


Rule = Callable[[Tensor, float], tuple[list[float], float]]


def dense(operator: Operator, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (outputs, inputs) and biases (outputs,) of an operator on one item x (1, ...)."""
    zero = torch.zeros_like(x)
    bias = operator(zero).flatten()
    columns = []
    for index in range(x.numel()):
        unit = zero.clone()
        unit.view(-1)[index] = 1.0
        columns.append(operator(unit).flatten() - bias)
    return torch.stack(columns, dim=1), bias


def contributions(operator: Operator, x: Tensor) -> tuple[Tensor, Tensor]:
    """c_ji = w_ji x_i (outputs, inputs) and the biases (outputs,) of one item."""
    weight, bias = dense(operator, x)
    return weight * x.flatten(), bias


def by_output(c: Tensor, bias: Tensor, rule: Rule) -> Messages:
    """Messages of `rule`, which sees the contributions and the bias of one output at a time."""
    rows, taken = [], []
    for row, own in zip(c, bias, strict=True):
        shares, of_bias = rule(row, float(own))
        rows.append(shares)
        taken.append(of_bias)
    return Messages(torch.tensor(rows, dtype=c.dtype), torch.tensor(taken, dtype=c.dtype))


def epsilon(value: float) -> Rule:
    """c / (z + epsilon sign z)."""

    def rule(row: Tensor, bias: float) -> tuple[list[float], float]:
        z = sum(row.tolist()) + bias
        below = z + value if z >= 0 else z - value
        return [c / below for c in row.tolist()], bias / below

    return rule


def gamma(value: float) -> Rule:
    """Contributions of the output's sign count 1 + gamma times, the bias as one more of them."""

    def rule(row: Tensor, bias: float) -> tuple[list[float], float]:
        sign = 1 if sum(row.tolist()) + bias > 0 else -1
        raised = [c * (1 + value) if c * sign > 0 else c for c in [*row.tolist(), bias]]
        return [c / sum(raised) for c in raised[:-1]], raised[-1] / sum(raised)

    return rule


def transexplain_gamma(value: float, floor: float) -> Rule:
    """(c + gamma c^+) / (sum c + gamma sum c^+ + epsilon sign(sum c)), the bias one more c."""

    def rule(row: Tensor, bias: float) -> tuple[list[float], float]:
        parts = [*row.tolist(), bias]
        z = sum(parts)
        below = z + value * sum(c for c in parts if c > 0) + (floor if z >= 0 else -floor)
        shares = [(c + value * c if c > 0 else c) / below for c in parts]
        return shares[:-1], shares[-1]

    return rule


def alpha_beta(alpha: float, beta: float) -> Rule:
    """Alpha times the positive contributions' shares, beta taken off by the negative ones'."""

    def rule(row: Tensor, bias: float) -> tuple[list[float], float]:
        parts = [*row.tolist(), bias]
        positive, negative = sum(c for c in parts if c > 0), sum(c for c in parts if c < 0)
        shares = [
            (alpha * c / positive if c > 0 else 0.0)
            - (beta * c / negative if c < 0 and beta else 0.0)
            for c in parts
        ]
        return shares[:-1], shares[-1]

    return rule


def box(operator: Operator, x: Tensor, low: float, high: float) -> Messages:
    """z^B: x w - low w^+ - high w^-; the bias takes nothing."""
    weight, _ = dense(operator, x)
    rows = []
    for row in weight.tolist():
        above = [
            xi * w - low * max(w, 0) - high * min(w, 0)
            for xi, w in zip(x.flatten().tolist(), row, strict=True)
        ]
        rows.append([part / sum(above) for part in above])
    return Messages(torch.tensor(rows, dtype=x.dtype), torch.zeros(len(rows), dtype=x.dtype))


def by_weight(operator: Operator, x: Tensor, measure: Callable[[float], float]) -> Messages:
    """Shares by a measure of the weight alone: its square, or 1 wherever there is one."""
    weight, _ = dense(operator, x)
    rows = []
    for row in weight.tolist():
        measured = [measure(w) for w in row]
        rows.append([part / sum(measured) for part in measured])
    return Messages(torch.tensor(rows, dtype=x.dtype), torch.zeros(len(rows), dtype=x.dtype))


def positive_shares(
    operator: Operator, x: Tensor, *, apart: bool = False, floor: float = 0.0
) -> Messages:
    """Chefer's z+: without bias; `apart`, x^+ and x^- each have a denominator of their own."""
    weight, _ = dense(operator, x)
    values = x.flatten().tolist()
    rows = []
    for row in weight.tolist():
        positive = [max(xi * w, 0.0) for xi, w in zip(values, row, strict=True)]
        of_plus = sum(c for c, xi in zip(positive, values, strict=True) if xi > 0)
        of_minus = sum(c for c, xi in zip(positive, values, strict=True) if xi < 0)
        both = of_plus + of_minus
        below = [(of_plus if xi > 0 else of_minus) if apart else both for xi in values]
        rows.append([c / (b + floor) if c else 0.0 for c, b in zip(positive, below, strict=True)])
    return Messages(torch.tensor(rows, dtype=x.dtype), torch.zeros(len(rows), dtype=x.dtype))


def propagated(
    function: Operator,
    x: Tensor,
    rules: Composite,
    module: nn.Module | None = None,
    *,
    in_encoder: bool = True,
) -> Propagation:
    """A forward pass under `rules` with `x` (B, ...) as the input layer."""

    def forward(taps):
        h = taps.input_layer(x)
        if in_encoder:
            taps.encoder_begins()
        return function(h)

    return propagate(forward, rules, items=len(x), module=module)
