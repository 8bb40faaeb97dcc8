"""LRP-alpha-beta of linear operators in gradient form; z+ is alpha 1."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.linear_functions import Booking, LinearMap
from transexplain.engine.linear_rules import LinearRule


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
        # where no input contributes with a sign, the share of that sign is lost
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
