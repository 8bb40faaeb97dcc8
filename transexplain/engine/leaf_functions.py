"""The autograd function of the rules for the input layer itself: z^B, w^2 and flat."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.items import per_item, spread
from transexplain.engine.linear_functions import Booking, LinearMap
from transexplain.engine.linear_rules import InputRule


class AtInputLayer(Function):
    """The rules for the input layer itself (z^B, w^2, flat): relevance goes to its twin.

    The twin is a tensor of zeros that went through the same reshapes as the input layer; its
    gradient *is* relevance, so that an input of 0 can have some.
    """

    @staticmethod
    def forward(
        ctx: Any,
        twin: Tensor,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: InputRule,
        at: LinearMap,
        to: Booking,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        low, high = _range(rule, x, to)
        if rule.name == "zb":
            below, above = at.weight.clamp(min=0), at.weight.clamp(max=0)
            total = at.apply(x, at.weight)
            total = total - at.apply(low.expand_as(x), below) - at.apply(high.expand_as(x), above)
        else:
            total = at.apply(torch.ones_like(x), _squared_or_flat(rule, at.weight))
        # where nothing contributes, all that arrives is lost and booked so
        share = torch.where(total == 0, 0, z / total)
        ctx.save_for_backward(x, share, low, high, torch.where(total == 0, z, 0))
        ctx.rest = (rule, at, to)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Relevance of the input layer."""
        x, share, low, high, lost = ctx.saved_tensors
        rule, at, to = ctx.rest
        s = share * gradients[0]
        to.rule(lost * gradients[0])
        if rule.name == "zb":
            out = x * at.pull(s, at.weight, x) - low * at.pull(s, at.weight.clamp(min=0), x)
            out = out - high * at.pull(s, at.weight.clamp(max=0), x)
        else:
            out = at.pull(s, _squared_or_flat(rule, at.weight), x)
        return out, None, None, None, None, None


def _squared_or_flat(rule: InputRule, weight: Tensor) -> Tensor:
    return weight.square() if rule.name == "w2" else torch.ones_like(weight)


def _range(rule: InputRule, x: Tensor, to: Booking) -> tuple[Tensor, Tensor]:
    """Lowest and highest possible input, per item where they are not given."""
    highest = per_item(x, to.axis, to.items, largest=True)
    lowest = -per_item(-x, to.axis, to.items, largest=True)
    low = lowest if rule.low is None else torch.full_like(lowest, rule.low)
    high = highest if rule.high is None else torch.full_like(highest, rule.high)
    return spread(low.to(x.dtype), x, to.axis, to.items), spread(
        high.to(x.dtype), x, to.axis, to.items
    )
