"""Autograd functions of the gradient form: the value is kept, the backward is the rule's."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.composites import InputRule
from transexplain.engine.item_axis import per_item, spread
from transexplain.engine.ledger import Booking
from transexplain.engine.linear_functions import LinearMap
from transexplain.engine.operator_call import Call
from transexplain.engine.traced import shapes_are_fixed


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
        ctx.axes = tuple(range(-len(shape), 0))
        work = _accumulator(x.dtype)
        if rstd.dtype != work:  # rounded on a CPU, and with it all relevance of a position
            variance = x.to(work).var(dim=ctx.axes, keepdim=True, correction=0)
            rstd = (variance + eps).rsqrt()
        ctx.save_for_backward(rstd, weight)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Scale by weight / std, then take off the mean: three operations, rounded once."""
        rstd, weight = ctx.saved_tensors
        g = gradients[0].to(rstd.dtype)
        g = (g if weight is None else g * weight) * rstd
        centred = g - g.mean(dim=ctx.axes, keepdim=True)
        return centred.to(gradients[0].dtype), None, None, None, None


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
        scale = work.pow(2).mean(dim=axes, keepdim=True).add(floor).rsqrt()
        ctx.save_for_backward(scale, weight)
        return torch.nn.functional.rms_norm(x, shape, weight, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Scale by weight / rms."""
        scale, weight = ctx.saved_tensors
        g = gradients[0].to(scale.dtype)
        g = (g if weight is None else g * weight) * scale
        return g.to(gradients[0].dtype), None, None, None


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


def writable(value: Tensor) -> Tensor:
    """A tensor that a model may write into."""
    return value.clone() if value._is_view() else value


class Multiplied(Function):
    """A value of the shape of x with a multiplier for its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[], Tensor], multiplier: Tensor) -> Tensor:
        """`value()`; `multiplier` broadcasts over x."""
        ctx.save_for_backward(multiplier)
        ctx.dtype = x.dtype
        return writable(value())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Gradient times multiplier."""
        (multiplier,) = ctx.saved_tensors
        return (gradients[0] * multiplier).to(ctx.dtype), None, None


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


#: attention scores that are held at once
_SCORES = 1 << 21


def recomputable(call: Call) -> bool:
    """Whether the weights of a call are cheaper to make again: on the CPU, heads one to one."""
    query, key = call.argument(0, "query", None), call.argument(1, "key", None)
    grouped = call.argument(7, "enable_gqa", False)
    return query.device.type == "cpu" and not grouped and query.shape[:-2] == key.shape[:-2]


class ConstantAttention(Function):
    """dV = A^T g with A = softmax(q k^T scale + mask)."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, call: Call) -> Tensor:
        """The fused result; value (B, H, S, E)."""
        query, key = call.argument(0, "query", None), call.argument(1, "key", None)
        scale = call.argument(6, "scale", None)
        ctx.save_for_backward(query.detach(), key.detach())
        ctx.scale = query.shape[-1] ** -0.5 if scale is None else scale
        ctx.mask, ctx.causal = (
            call.argument(3, "attn_mask", None),
            call.argument(5, "is_causal", False),
        )
        out: Tensor = call.run_detached()
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        """The transposed weights times the gradient, slice by slice."""
        query, key = ctx.saved_tensors
        g, length = gradients[0], query.shape[-2]
        # as many queries at once as keep the scores within the bound
        step = max(1, _SCORES * length // (query[..., :1].numel() * key.shape[-2]))
        out: Tensor | None = None
        for begin in range(0, length, step):
            rows = slice(begin, min(begin + step, length))
            part = g[..., rows, :]
            # behind the last block only the positions that are read have relevance
            if shapes_are_fixed() or part.count_nonzero():
                share = _weights(ctx, query, key, rows).to(g.dtype).transpose(-1, -2) @ part
                out = share if out is None else out.add_(share)
        return (
            torch.zeros_like(g[..., :1, :]).expand(*key.shape[:-1], -1) if out is None else out
        ), None


def _weights(ctx: Any, query: Tensor, key: Tensor, rows: slice) -> Tensor:
    # as the fused kernel has them: in bfloat16 a score of 8 is off by .016, its weight by 1.6 %
    work = _accumulator(query.dtype)
    scores: Tensor = (query[..., rows, :].to(work) * ctx.scale) @ key.to(work).transpose(-1, -2)
    if ctx.causal:
        later = torch.arange(key.shape[-2]) > torch.arange(rows.start, rows.stop)[:, None]
        scores.masked_fill_(later, -torch.inf)
    if ctx.mask is None:
        return scores.softmax(dim=-1)
    mask = ctx.mask if ctx.mask.shape[-2] == 1 else ctx.mask[..., rows, :]
    if mask.dtype == torch.bool:
        scores = scores.masked_fill_(~mask, -torch.inf)
    else:
        scores = scores.add_(mask)
    return scores.softmax(dim=-1).nan_to_num_(nan=0.0)  # a row that sees nothing


class AtInputLayer(Function):
    """The rules for the input layer itself (z^B, w^2, flat): relevance goes to its sink.

    The sink is a tensor of zeros that went through the same reshapes as the input layer; its
    gradient *is* relevance, so that an input of 0 can have some.
    """

    @staticmethod
    def forward(
        ctx: Any,
        sink: Tensor,
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


class Substitution(Function):
    """X = A^-1 B, or B A^-1, of a triangular A; the backward is that of the substitution."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, settings: dict[str, bool], share: float, to: Booking | None
    ) -> Tensor:
        """a (..., n, n), b (..., n, k) -> (..., n, k); `share` of a product goes to a factor."""
        x: Tensor = torch.linalg.solve_triangular(a, b, **settings)
        ctx.save_for_backward(a, b, x)
        ctx.rest = (settings, share, to)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """dA and dB; what a constant B takes is booked."""
        a, b, x = ctx.saved_tensors
        settings, share, to = ctx.rest
        upper, left = settings["upper"], settings.get("left", True)
        scaled = torch.diag_embed(a.diagonal(dim1=-2, dim2=-1)) + share * _beside(a, upper)
        transposed = {**settings, "upper": not upper}
        u = torch.linalg.solve_triangular(scaled.mT, gradients[0], **transposed)
        if to is not None and not ctx.needs_input_grad[1]:
            to.bias(u * b)
        to_a = _beside(u @ x.mT if left else x.mT @ u, upper) * -share
        return to_a.sum_to_size(a.shape), u.sum_to_size(b.shape), None, None, None


def _beside(a: Tensor, upper: bool) -> Tensor:
    """The part of a triangular matrix beside its diagonal."""
    return a.triu(1) if upper else a.tril(-1)
