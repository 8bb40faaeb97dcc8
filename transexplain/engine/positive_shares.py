"""Alpha-beta of linear operators in relevance form: Chefer et al. 2021, Eq. 5-6 (alpha 1)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.linear_functions import LinearMap
from transexplain.engine.linear_rules import LinearRule
from transexplain.engine.nonzero import nonzero_part
from transexplain.engine.relevance_functions import How, quotient


class PositiveShares(Function):
    """x^+ w^+ and x^- w^- share what arrives, x^+ w^- and x^- w^+ take beta; biases nothing.

    Denominators are computed in the backward pass, where it is known for which outputs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        how: How,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        ctx.save_for_backward(x, z.clone())  # the model may write into z
        ctx.rest, ctx.seen = (rule, at, how), None
        return z

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


def _denominators(x: Tensor, z: Tensor, rule: LinearRule, at: LinearMap, how: How) -> list[Pair]:
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
    how: How,
) -> Tensor:
    shares = [_shares(arrived, pair, how) for pair in below]
    above, under = at.weight.clamp(min=0), at.weight.clamp(max=0)
    out = _signed(x, shares[0], above, under, at).mul_(rule.alpha or 1.0)
    if rule.beta:
        out = out.sub_(_signed(x, shares[1], under, above, at), alpha=rule.beta)
    return out


def _shares(arrived: Tensor, below: Pair, how: How) -> Pair:
    of_plus = quotient(arrived, below[0], how.rules)
    same = below[0] is below[1]
    return of_plus, of_plus if same else quotient(arrived, below[1], how.rules)


def _signed(x: Tensor, shares: Pair, of_plus: Tensor, of_minus: Tensor, at: LinearMap) -> Tensor:
    plus, minus = at.pull(shares[0], of_plus, x), at.pull(shares[1], of_minus, x)
    return torch.where(x > 0, plus, minus).mul_(x)
