"""Functions that are made of other torch functions, written so that a mode sees the parts."""

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

_ASKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no(*_: object) -> bool:
    return False


def body(func: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What `func` computes, as calls of other torch functions.

    A function of torch that is written in Python asks first whether a mode is on, and hands itself
    over whole; a copy that answers no goes on to its parts (`nn.MultiheadAttention` arrives as one
    such call).
    """
    written = _WRITTEN.get(name)
    if written is not None:
        return written
    if not isinstance(func, FunctionType):
        raise TypeError(f"{name!r} is not written in Python")
    deaf = {**func.__globals__, **dict.fromkeys(_ASKS, _no)}
    copy = FunctionType(func.__code__, deaf, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention in parts; q (..., H, T, D), k and v (..., H', S, D)."""
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (side.repeat_interleave(repeats, -3) for side in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * factor, key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = _masked(scores, attn_mask)
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights, value)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    lowest = torch.finfo(mask.dtype).min / 2
    hidden = mask < lowest
    if not bool(mask.masked_fill(hidden, 0).any()):
        return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return (scores + mask.masked_fill(hidden, 0)).masked_fill(hidden, torch.finfo(scores.dtype).min)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """One half times the sigmoid of the other."""
    value, gate = x.chunk(2, dim)
    return value * torch.sigmoid(gate)


def baddbmm(
    x: Tensor, first: Tensor, second: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """A sum of a tensor and a batched matrix product."""
    product = torch.matmul(first, second)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (x if beta == 1 else x * beta) + product


def addcmul(x: Tensor, first: Tensor, second: Tensor, *, value: float = 1) -> Tensor:
    """A sum of a tensor and a product."""
    return x + (first * second if value == 1 else first * second * value)


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """A group norm with one channel in a group, or a batch norm where statistics are kept."""
    if use_input_stats or running_mean is None:
        return torch.nn.functional.group_norm(x, x.shape[1], weight, bias, eps)
    return torch.nn.functional.batch_norm(
        x, running_mean, running_var, weight, bias, False, momentum, eps
    )


#: what is not written in Python, or is clearer so
_WRITTEN: dict[str, Callable[..., Any]] = {
    "glu": glu,
    "baddbmm": baddbmm,
    "addcmul": addcmul,
    "instance_norm": instance_norm,
}
