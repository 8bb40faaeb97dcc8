"""Autograd functions of the relevance form: the backward pass carries relevance itself."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.composites import ChefersRules, LinearRule
from transexplain.engine.item_axis import per_item, spread
from transexplain.engine.linear_functions import Booking, LinearMap, SharesOfOutput, nonzero_part
from transexplain.engine.traced import shapes_are_fixed

_AUTHORS = 1e-9


def quotient(above: Tensor, below: Tensor, rules: ChefersRules) -> Tensor:
    """above / below, 0 where `below` is 0; the authors add 1e-9 to it whatever its sign."""
    if rules.authors:
        shifted = below + _AUTHORS
        below, zero = torch.where(shifted == 0, _AUTHORS, shifted), below == 0
    else:
        zero = below == 0
        looks = below.device.type == "cpu" and not shapes_are_fixed()
        if looks and not zero.any():  # a check is cheaper than a selection
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
        if to is not None:  # otherwise the operators below book all of it
            to.rule(_parts_summed(relevance[0]))
        return _by_part(partial(quotient, rules=rules), relevance[0], z), None, None


@dataclass(frozen=True, slots=True, eq=False)
class ChefersSetting:
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
    def forward(
        ctx: Any, a: Tensor, b: Tensor, value: Callable[[], Tensor], how: ChefersSetting
    ) -> Tensor:
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
        how: ChefersSetting = ctx.how
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


def _normalised(parts: list[Tensor], arrived: Tensor, how: ChefersSetting) -> list[Tensor]:
    total = per_item(arrived, how.to.axis, how.items)
    sums = [per_item(part, how.to.axis, how.items) for part in parts]
    both = sums[0].abs() + sums[1].abs()
    rescaled = []
    for part, own in zip(parts, sums, strict=True):
        goal = quotient(own.abs(), both, how.rules) * total
        factor = quotient(goal, own, how.rules).to(part.dtype)
        rescaled.append(part * spread(factor, part, how.to.axis, how.items))
    return rescaled


class PositiveShares(SharesOfOutput):
    """x^+ w^+ and x^- w^- share what arrives, x^+ w^- and x^- w^+ take beta; biases nothing.

    Denominators are computed in the backward pass, where it is known for which outputs.
    """

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor | None, ...]:
        """Relevance of x."""
        x, z = ctx.saved_tensors
        rule, at, how = ctx.rest
        arrived = relevance[0]
        if at.rowwise:
            nonzero = nonzero_part(arrived)
            part, rows = at.part(nonzero.columns), nonzero.of(x, columns=False)
            if ctx.seen is None or not ctx.seen[0].same(nonzero):
                ctx.seen = (nonzero, _denominators(rows, nonzero.of(z), rule, part, how))
            out = nonzero.back(_shared(rows, nonzero.of(arrived), ctx.seen[1], rule, part, how), x)
        else:
            below = _denominators(x, z, rule, at, how)
            out = _shared(x, arrived, below, rule, at, how)
        how.to.passed(arrived, out)
        return out, None, None, None, None


#: denominators of the contributions of x^+ and of x^-
Pair = tuple[Tensor, Tensor]


def _denominators(
    x: Tensor, z: Tensor, rule: LinearRule, at: LinearMap, how: ChefersSetting
) -> list[Pair]:
    """For positive and (with beta) negative contributions.

    Sum of positive contributions = (sum + sum of sizes) / 2, one product in place of two, for
    the sum is the output itself without its bias. The authors' LRP baseline divides the
    contributions of x^+ and of x^- each by its own sum.
    """
    if how.rules.normalised:
        total = z if at.bias is None else z - at.bias
        sizes = at.apply(x.abs(), at.weight.abs())
        both = [(sizes + total).div_(2), *([(total - sizes).div_(2)] if rule.beta else [])]
        return [(one, one) for one in both]
    above, below = at.weight.clamp(min=0), at.weight.clamp(max=0)
    return [
        (at.apply(x.clamp(min=0), of_plus), at.apply(x.clamp(max=0), of_minus))
        for of_plus, of_minus in ((above, below), (below, above))[: 1 + bool(rule.beta)]
    ]


def _shared(
    x: Tensor,
    arrived: Tensor,
    below: list[Pair],
    rule: LinearRule,
    at: LinearMap,
    how: ChefersSetting,
) -> Tensor:
    shares = [_shares(arrived, pair, how) for pair in below]
    above, under = at.weight.clamp(min=0), at.weight.clamp(max=0)
    out = _signed(x, shares[0], above, under, at).mul_(rule.alpha or 1.0)
    if rule.beta:
        out = out.sub_(_signed(x, shares[1], under, above, at), alpha=rule.beta)
    return out


def _shares(arrived: Tensor, below: Pair, how: ChefersSetting) -> Pair:
    of_plus = quotient(arrived, below[0], how.rules)
    same = below[0] is below[1]
    return of_plus, of_plus if same else quotient(arrived, below[1], how.rules)


def _signed(x: Tensor, shares: Pair, of_plus: Tensor, of_minus: Tensor, at: LinearMap) -> Tensor:
    plus, minus = at.pull(shares[0], of_plus, x), at.pull(shares[1], of_minus, x)
    return torch.where(x > 0, plus, minus).mul_(x)
