"""Fused attention with constant weights: its backward makes the values' gradient only.

The fused backward of torch computes three gradients, two of which the AH rule throws away. Here
the weights are made again, a slice of queries at a time, so that memory stays linear in T.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.call import Call

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
            if part.count_nonzero():
                share = _weights(ctx, query, key, rows).transpose(-1, -2) @ part
                out = share if out is None else out.add_(share)
        return (
            torch.zeros_like(g[..., :1, :]).expand(*key.shape[:-1], -1) if out is None else out
        ), None


def _weights(ctx: Any, query: Tensor, key: Tensor, rows: slice) -> Tensor:
    scores: Tensor = (query[..., rows, :] * ctx.scale) @ key.transpose(-1, -2)
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
