"""Autograd functions of the gradient form: the value is kept, the backward is the rule's.

With R the relevance and g the gradient that the pass carries, R = x * g at every carrier x.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class IdentityRule(Function):
    """An elementwise f whose backward is the slope (f(x) - f(0)) / x, its limit f'(0) at 0.

    Relevance passes through unchanged but for the constant f(0), which is booked by itself
    (the identity rule for elementwise functions, as in Achtibat et al. 2024, without an epsilon).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        compute: Callable[[], Tensor],
        at_zero: Tensor | float,
        slope_at_zero: Tensor | float,
    ) -> Tensor:
        """`compute` gives f(x); `at_zero` is f(0) and `slope_at_zero` f'(0), both broadcastable."""
        value = compute()
        work = _accumulator(x.dtype)
        if isinstance(at_zero, Tensor) or isinstance(slope_at_zero, Tensor) or at_zero:
            # f(x) - f(0) cancels near 0, and its quotient by x would amplify the rounding error
            near = x.abs() < math.sqrt(torch.finfo(work).eps)
            limit = torch.as_tensor(slope_at_zero, dtype=work, device=x.device)
            base = torch.as_tensor(at_zero, dtype=work, device=x.device)
            slope = torch.where(near, limit, (value.to(work) - base).div_(x.to(work)))
        else:
            # 0 / 0 at x = 0: the limit of the quotient is f'(0)
            slope = value.to(work).div(x.to(work)).nan_to_num_(nan=slope_at_zero)
        ctx.save_for_backward(slope.to(x.dtype))
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Gradient times slope."""
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None, None


class ConstantScaleLayerNorm(Function):
    """Layer norm whose 1/std is a constant (LN-rule, Ali et al. 2022); the mean is not."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shape: list[int],
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> Tensor:
        """x (..., D) normalised over the last `len(shape)` axes."""
        y, _, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(rstd, weight)
        ctx.axes = tuple(range(-len(shape), 0))
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Scale by weight / std, then take off the mean: three operations."""
        rstd, weight = ctx.saved_tensors
        g = gradients[0] if weight is None else gradients[0] * weight
        g = g * rstd.to(g.dtype)
        return g - g.mean(dim=ctx.axes, keepdim=True), None, None, None, None


class ConstantScaleRmsNorm(Function):
    """RMS norm whose 1/rms is a constant: the LN rule without a mean."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None
    ) -> Tensor:
        """x (..., D) divided by its root mean square over the last `len(shape)` axes."""
        axes = tuple(range(-len(shape), 0))
        work = x.to(_accumulator(x.dtype))
        floor = torch.finfo(work.dtype).eps if eps is None else eps
        scale = work.pow(2).mean(dim=axes, keepdim=True).add(floor).rsqrt().to(x.dtype)
        ctx.save_for_backward(scale, weight)
        return torch.nn.functional.rms_norm(x, shape, weight, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Scale by weight / rms."""
        scale, weight = ctx.saved_tensors
        g = gradients[0] if weight is None else gradients[0] * weight
        return g * scale, None, None, None


class ConstantScaleGroupNorm(Function):
    """Group norm whose 1/std is a constant; the mean of the group is not."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """x (B, C, ...) normalised over each of `groups` groups of channels."""
        batch, channels = x.shape[:2]
        size = x[0, 0].numel()
        y, _, rstd = torch.native_group_norm(
            x.contiguous(), weight, bias, batch, channels, size, groups, eps
        )
        ctx.save_for_backward(rstd, weight)
        return y.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Scale by weight / std, then take off the mean of the group."""
        rstd, weight = ctx.saved_tensors
        g = gradients[0]
        if weight is not None:
            g = g * weight.view(-1, *[1] * (g.dim() - 2))
        grouped = g.reshape(*rstd.shape, -1) * rstd.to(g.dtype).unsqueeze(-1)
        centred = grouped - grouped.mean(dim=-1, keepdim=True)
        return centred.view_as(g), None, None, None, None


class FixedScale(Function):
    """y = scale * x + shift with constants; torch's own backward of a batch norm in evaluation is
    wrong for some strides of the gradient (2.15, CPU)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Callable[[], Tensor], scale: Tensor) -> Tensor:
        """`compute()` gives y; `scale` broadcasts over x."""
        ctx.save_for_backward(scale)
        return compute()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Gradient times scale."""
        (scale,) = ctx.saved_tensors
        return gradients[0] * scale, None, None


class ScaledGradient(Function):
    """The identity whose backward multiplies by a constant (1/2 for a product of two signals)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        """X itself."""
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Gradient times the factor."""
        return gradients[0] * ctx.factor, None


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
