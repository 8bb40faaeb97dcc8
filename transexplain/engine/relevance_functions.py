"""Autograd functions of the relevance form: the backward pass carries relevance R itself."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.composites import ChefersRules
from transexplain.engine.items import per_item, spread
from transexplain.engine.linear_functions import Booking

_AUTHORS = 1e-9


def quotient(above: Tensor, below: Tensor, rules: ChefersRules) -> Tensor:
    """above / below, 0 where `below` is 0; the authors add 1e-9 to it whatever its sign."""
    if rules.authors:
        shifted = below + _AUTHORS
        below, zero = torch.where(shifted == 0, _AUTHORS, shifted), below == 0
    else:
        zero = below == 0
        if below.device.type == "cpu" and not zero.any():  # looking is cheaper than choosing
            return above / below
    return torch.where(zero, 0, above / below)


def _by_part(join: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Real and imaginary parts apart: they are values of their own, as in a gradient."""
    if not (a.is_complex() or b.is_complex()):
        return join(a, b)
    if not b.is_complex():
        return join(a.real, b)
    if not a.is_complex():
        return join(a, b.real)
    return torch.complex(join(a.real, b.real), join(a.imag, b.imag))


def _parts_summed(relevance: Tensor) -> Tensor:
    return relevance.real + relevance.imag if relevance.is_complex() else relevance


class PassOn(Function):
    """All relevance that arrives at f(x) leaves at x: norms, activations, softmax, scales."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[], Tensor], share: float) -> Tensor:
        """`value()` is f(x); `share` of its relevance goes to x."""
        ctx.shape, ctx.share = x.shape, share
        return value()

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, None, None]:
        """R, summed where x was broadcast."""
        passed = relevance[0].sum_to_size(ctx.shape)
        return passed if ctx.share == 1 else passed * ctx.share, None, None


class ToRelevance(Function):
    """Below a rule in gradient form: g arrives, R = x * g leaves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, to: Booking) -> Tensor:
        """X itself."""
        ctx.save_for_backward(x.clone())  # the model may write into it
        ctx.rest = (share, to)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """R = share * x * g, taken off what the rule has to answer for."""
        (x,) = ctx.saved_tensors
        share, to = ctx.rest
        relevance = _by_part(torch.mul, x, gradients[0])
        if share != 1:
            relevance = relevance * share
        to.rule(-_parts_summed(relevance))
        return relevance, None, None


class ToGradient(Function):
    """Above a rule in gradient form: R arrives, g = R / z leaves."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, rules: ChefersRules, to: Booking | None) -> Tensor:
        """Z itself."""
        ctx.save_for_backward(z)
        ctx.rest = (rules, to)
        return z.clone()  # the model may write into it

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, None, None]:
        """g = R / z."""
        (z,) = ctx.saved_tensors
        rules, to = ctx.rest
        if to is not None:  # else what lies below books it all
            to.rule(_parts_summed(relevance[0]))
        return _by_part(partial(quotient, rules=rules), relevance[0], z), None, None


@dataclass(frozen=True, slots=True, eq=False)
class How:
    """Which of Chefer's rules, for how many items, and where to book."""

    rules: ChefersRules
    items: int
    to: Booking


class SumOfTwo(Function):
    """a + b: relevance by value; with `normalised` rescaled so that the two totals keep R's sum.

    Chefer et al. 2021, Eq. 9-10; the sums run over one item, where the authors' run over a batch
    of one.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, value: Callable[[], Tensor], how: How) -> Tensor:
        """`value()` is a + b."""
        out = value()
        how.to.locate(out)
        ctx.save_for_backward(a.clone(), b.clone())  # the model may write into either
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor | None, ...]:
        """Relevance of both; a constant's is booked as its own."""
        a, b = ctx.saved_tensors
        how: How = ctx.how
        arrived = relevance[0]
        share = quotient(arrived, a + b, how.rules)
        # masked scores hold -inf, and have no relevance
        parts = [torch.where(share == 0, 0, share * operand) for operand in (a, b)]
        if how.rules.normalised:
            parts = _normalised(parts, arrived, how)
        how.to.rule(arrived - parts[0] - parts[1])
        for needed, part in zip(ctx.needs_input_grad[:2], parts, strict=True):
            if not needed:
                how.to.bias(part)
        return parts[0].sum_to_size(a.shape), parts[1].sum_to_size(b.shape), None, None


def _normalised(parts: list[Tensor], arrived: Tensor, how: How) -> list[Tensor]:
    total = per_item(arrived, how.to.axis, how.items)
    sums = [per_item(part, how.to.axis, how.items) for part in parts]
    both = sums[0].abs() + sums[1].abs()
    rescaled = []
    for part, own in zip(parts, sums, strict=True):
        goal = quotient(own.abs(), both, how.rules) * total
        factor = quotient(goal, own, how.rules).to(part.dtype)
        rescaled.append(part * spread(factor, part, how.to.axis, how.items))
    return rescaled
