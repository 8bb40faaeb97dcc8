"""Autograd functions of the rules for linear operators, in gradient form.

With x the input, z the output and g the gradient that the pass carries, R = z * g arrives and the
function returns g_x with R = x * g_x. Every share of relevance depends on x_i only through its
sign, so nothing is ever divided by x.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.items import ItemAxis
from transexplain.engine.linear_rules import LinearRule


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """z = apply(x, weight) + bias, and its transpose."""

    weight: Tensor
    bias: Tensor | None  #: broadcastable to z
    apply: Callable[[Tensor, Tensor], Tensor]  #: (x, w) -> z without bias
    pull: Callable[[Tensor, Tensor, Tensor], Tensor]  #: (s, w, like) -> shape of like

    def value(self, x: Tensor) -> Tensor:
        """The operator's own value."""
        z = self.apply(x, self.weight)
        return z if self.bias is None else z + self.bias


class Booking:
    """Where an operator books what its constants take and what its rule loses."""

    axis: ItemAxis | None  #: the item axis of what is booked

    def locate(self, out: Tensor) -> None:
        """Set `axis` to the item axis of the operator's output."""
        raise NotImplementedError

    def bias(self, shares: Tensor) -> None:
        """`shares` (shape of z): what the bias takes."""
        raise NotImplementedError

    def rule(self, lost: Tensor) -> None:
        """`lost` (shape of z): what the rule loses."""
        raise NotImplementedError

    def amplification(self, factors: Tensor) -> None:
        """`factors` (shape of z): by how much relevance is amplified at most."""
        raise NotImplementedError


class SignedShares(Function):
    """LRP-epsilon and generalised LRP-gamma in one: two products forward, two backward.

    For z_j > 0 contributions count c + gamma c^+, for z_j < 0 they count c + gamma c^-; with
    A_j = sum_i |c_ij| + |b_j| both denominators are sign(z) (|z| + gamma (|z| + A) / 2), which
    cannot cross zero. Transposed: g_x = (1 + gamma/2) W^T s + gamma/2 sign(x) |W|^T (sign(z) s).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        to: Booking,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        denominator = z.abs()
        if rule.gamma:
            spread = at.apply(x.abs(), at.weight.abs())
            if at.bias is not None:
                spread = spread + at.bias.abs()
            spread = spread.add_(denominator).mul_(rule.gamma / 2)
            denominator = denominator.add_(spread)
        if rule.epsilon:
            denominator = denominator.add_(rule.epsilon)
        share = torch.where(denominator == 0, 0, z / denominator)
        ctx.save_for_backward(x, share)
        ctx.rest = (rule, at, to)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Both transposed products, with the bias' and epsilon's shares booked."""
        x, share = ctx.saved_tensors
        rule, at, to = ctx.rest
        signed = share * gradients[0]
        s = share.abs().mul_(gradients[0])
        half = rule.gamma / 2
        out = at.pull(s, at.weight, x)
        if half:
            out = out.mul_(1 + half)
            out = out.add_(at.pull(signed, at.weight.abs(), x).mul_(x.sign()), alpha=half)
        if at.bias is not None:
            to.bias(at.bias * s * (1 + half) + at.bias.abs() * signed * half)
        if rule.epsilon:
            to.rule(signed * rule.epsilon)
        return out, None, None, None, None


class PaperGamma(Function):
    """LRP-gamma as TransExplain 3.2.4.2 states it: w + gamma w^+ above and below.

    The denominator can cross zero, where only epsilon keeps it finite; the largest amplification
    |z / denominator| is booked.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        to: Booking,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        denominator = at.apply(x, _raised(at.weight, rule.gamma))
        if at.bias is not None:
            denominator = denominator + _raised(at.bias, rule.gamma)
        sign = torch.where(denominator < 0, -1.0, 1.0).to(z.dtype)
        share = z / (denominator + rule.epsilon * sign)
        to.amplification(share)
        lost = z * (rule.epsilon / (denominator.abs() + rule.epsilon))
        ctx.save_for_backward(x, share, lost)
        ctx.rest = (rule, at, to)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """One transposed product."""
        x, share, lost = ctx.saved_tensors
        rule, at, to = ctx.rest
        s = share * gradients[0]
        if at.bias is not None:
            to.bias(_raised(at.bias, rule.gamma) * s)
        to.rule(lost * gradients[0])
        return at.pull(s, _raised(at.weight, rule.gamma), x), None, None, None, None


class AlphaBeta(Function):
    """LRP-alpha-beta (z+ where beta is 0): positive and negative contributions apart."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        to: Booking,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        alpha = rule.alpha or 1.0
        positive = contributions(at, x, positive=True)
        shares = [torch.where(positive == 0, 0, z / positive).mul_(alpha)]
        kept = torch.where(positive == 0, 0.0, alpha).to(z.dtype)
        if rule.beta:
            negative = contributions(at, x, positive=False)
            shares.append(torch.where(negative == 0, 0, z / negative).mul_(-rule.beta))
            kept = kept - torch.where(negative == 0, 0.0, rule.beta).to(z.dtype)
        ctx.loses = bool((kept != 1).any())
        ctx.save_for_backward(x, *shares, *([z * (1 - kept)] if ctx.loses else []))
        ctx.rest = (rule, at, to)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Two transposed products, four with beta."""
        x, *shares = ctx.saved_tensors
        rule, at, to = ctx.rest
        if ctx.loses:
            to.rule(shares.pop() * gradients[0])
        above, below = at.weight.clamp(min=0), at.weight.clamp(max=0)
        s = shares[0] * gradients[0]
        of_positive, of_negative = at.pull(s, above, x), at.pull(s, below, x)
        taken = None if at.bias is None else at.bias.clamp(min=0) * s
        if rule.beta:
            s = shares[1] * gradients[0]
            of_positive = of_positive + at.pull(s, below, x)
            of_negative = of_negative + at.pull(s, above, x)
            taken = None if taken is None else taken + at.bias.clamp(max=0) * s
        if taken is not None:
            to.bias(taken)
        return torch.where(x > 0, of_positive, of_negative), None, None, None, None


def contributions(at: LinearMap, x: Tensor, *, positive: bool, bias: bool = True) -> Tensor:
    """Sum of the contributions x_i w_ij (and b_j) of one sign, shape of z."""
    above, below = at.weight.clamp(min=0), at.weight.clamp(max=0)
    if not positive:
        above, below = below, above
    found = at.apply(x.clamp(min=0), above) + at.apply(x.clamp(max=0), below)
    if at.bias is None or not bias:
        return found
    return found + (at.bias.clamp(min=0) if positive else at.bias.clamp(max=0))


def _raised(value: Tensor, gamma: float) -> Tensor:
    return value + gamma * value.clamp(min=0)
