"""Autograd functions of the rescale rule: the backward pass carries multipliers (Shrikumar et al.
2017).

With dx = x - x' the difference from the reference, the multipliers m of an operator satisfy
sum m dx = dy exactly, and follow the chain rule (their Eq. 3) as gradients do. All that depends
on values is computed in the forward pass, so a model may write into its tensors afterwards.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Value = Callable[[], Tensor]


class Multiplied(Function):
    """An elementwise value with a multiplier for its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Value, multiplier: Tensor) -> Tensor:
        """`value()` and `multiplier`, both of the shape of x."""
        ctx.save_for_backward(multiplier)
        ctx.dtype = x.dtype
        return _own(value())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Gradient times multiplier."""
        (multiplier,) = ctx.saved_tensors
        return (gradients[0] * multiplier).to(ctx.dtype), None, None


class Instead(Function):
    """The value of one tensor with the graph of another: values stay those of the model."""

    @staticmethod
    def forward(ctx: Any, graph: Tensor, value: Value) -> Tensor:
        """`value()`, of the shape of `graph`."""
        ctx.dtype = graph.dtype
        return _own(value())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Everything goes to `graph`."""
        return gradients[0].to(ctx.dtype), None


class Normalised(Function):
    """y = c r with c = x (minus its mean) and r = 1 / s, s = sqrt(mean(c^2) + eps), per row.

    A bar (_) being the mean of both values: dy = dc r_ + c_ dr, dr = -d(s^2) / (s s' (s + s')),
    d(s^2) = 2 mean(c_ dc). These are a product, a root and a square that each sum to their
    difference, without a quotient of small differences.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, reference: Tensor, eps: float, centred: bool) -> Tensor:
        """x and its reference (..., n), normalised over the last axis -> c_ r_ (..., n)."""
        one, other = (_centred(side) if centred else side for side in (x, reference))
        s, s_other = (side.square().mean(-1, keepdim=True).add(eps).sqrt() for side in (one, other))
        middle, rate = (one + other) / 2, (1 / s + 1 / s_other) / 2
        ctx.save_for_backward(middle, rate, 2 / (s * s_other * (s + s_other)))
        ctx.centred = centred
        return middle * rate

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Gradient times multipliers."""
        middle, rate, fall = ctx.saved_tensors
        g = gradients[0]
        out = g * rate - middle * (fall * (g * middle).mean(-1, keepdim=True))
        return (_centred(out) if ctx.centred else out), None, None, None


class SoftmaxMultiplier(Function):
    """Softmax s_i = exp(x_i - z), the exponential by the rescale rule and z by what it must be.

    With the logarithmic mean l_i = (s_i - s_i') / (log s_i - log s_i'):
    ds_i = l_i (dx_i - dz), and because the s sum to 1, dz = sum_j l_j dx_j / sum_j l_j. Both are
    exact; where x = x' this is the gradient, l being s. The log-softmax is dx_i - dz.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Value, mean: Tensor, dim: int, log: bool) -> Tensor:
        """`value()` (..., n) is the operator's own, `mean` (..., n) holds l."""
        total = mean.sum(dim, keepdim=True)
        share = torch.where(total == 0, 0, mean / total)  # a row that sees nothing
        ctx.save_for_backward(mean, share)
        ctx.rest = (dim, log, x.dtype)
        return _own(value())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Gradient times multipliers."""
        mean, share = ctx.saved_tensors
        dim, log, dtype = ctx.rest
        g = gradients[0]
        if log:
            out = g - share * g.sum(dim, keepdim=True)
        else:
            out = mean * (g - (share * g).sum(dim, keepdim=True))
        return out.to(dtype), None, None, None, None


class Winner(Function):
    """The largest (or smallest) of several: the difference goes to the winner.

    Where the item's winner lies beyond the reference's, the item's winner takes it, else the
    reference's: that one's own difference is never smaller, so no quotient is above 1.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, ends: tuple[Tensor, ...], largest: bool) -> Tensor:
        """`ends` are inputs and outputs, at the item and at the reference, with their graphs."""
        ctx.ends, ctx.largest, ctx.dtype = ends, largest, x.dtype
        return ends[2].detach().clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Gradient times multipliers; 0 where nothing changed."""
        x, x_other, y, y_other = ctx.ends
        change = (y - y_other).detach()
        given = gradients[0] * change
        own = (change > 0) == ctx.largest
        shares = (torch.where(own, given, 0), torch.where(own, 0, given))
        pulled = torch.autograd.grad((y, y_other), (x, x_other), shares, retain_graph=True)
        taken = pulled[0] + pulled[1]
        difference = (x - x_other).detach()
        out = torch.where(difference == 0, 0, taken / difference)
        return out.to(ctx.dtype), None, None


def _own(value: Tensor) -> Tensor:
    """A tensor that a model may write into."""
    return value.clone() if value._is_view() else value


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(-1, keepdim=True)
