"""Operators written out in parts that a mode sees: recurrent layers, fused attention, and others.

So an LSTM or GRU cell has no rule of its own: its gates are sigmoids and let through what they are
multiplied with (signal takes all, Arras et al. 2017 and 2019), the products of weights and the sum
of the cell's state share by value, tanh is a function of one carrier.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from transexplain.engine.operator_call import LinearValues
from transexplain.engine.operators import operator_name
from transexplain.errors import EngineError

#: of one direction of one layer: for the input, for the state, their biases, a projection
Weights = Sequence[Tensor]
#: one step: what the input gives to the gates, the states (B, ...), the weights -> states
Cell = Callable[[Tensor, Sequence[Tensor], Weights], Sequence[Tensor]]


def lstm(
    input: Tensor, hx: Sequence[Tensor], params: Weights, bias: Any, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.lstm`: (T, B, D) -> outputs (T, B, H), and the last states (layers, B, H).

    Raises:
        EngineError: packed sequences, or active dropout.
    """
    out, states = _layers(_lstm_cell, input, hx, params, bias, settings)
    return (out, states[0], states[1])


def gru(
    input: Tensor, hx: Tensor, params: Weights, bias: Any, *settings: Any
) -> tuple[Tensor, Tensor]:
    """`torch.gru`: (T, B, D) -> outputs (T, B, H), and the last state (layers, B, H).

    Raises:
        EngineError: packed sequences, or active dropout.
    """
    out, states = _layers(_gru_cell, input, [hx], params, bias, settings)
    return out, states[0]


def refuse_dropout(active: Any) -> None:
    """Raise EngineError where a dropout is active."""
    if active:
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")


def _layers(
    cell: Cell,
    x: Tensor,
    initial: Sequence[Tensor],
    params: Any,
    bias: Any,
    settings: tuple[Any, ...],
) -> tuple[Tensor, list[Tensor]]:
    if not isinstance(bias, bool):
        raise EngineError(
            "packed sequences have no rule: give a recurrent layer its texts unpacked, padded at "
            "the end"
        )
    layers, dropout, training, both_ways, batch_first = settings
    refuse_dropout(dropout and training)
    steps = 1 if batch_first else 0
    ways = 2 if both_ways else 1
    size = len(params) // (layers * ways)
    last: list[Sequence[Tensor]] = []
    for layer in range(layers):
        outputs = []
        for way in range(layer * ways, (layer + 1) * ways):
            states = [state[way] for state in initial]
            weights = params[way * size : (way + 1) * size]
            output, ends = _one_way(cell, x, states, weights, bias, steps, bool(way % ways))
            outputs.append(output)
            last.append(ends)
        x = torch.cat(outputs, dim=-1) if both_ways else outputs[0]
    return x, [torch.stack(ends) for ends in zip(*last, strict=True)]


def _one_way(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    bias: bool,
    steps: int,
    backwards: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    """One direction of one layer; `steps` is the axis of time."""
    given = F.linear(x, weights[0], weights[2] if bias else None).unbind(steps)
    of_state = [weights[1], weights[3] if bias else None, *weights[4 if bias else 2 :]]
    outputs = []
    for step in reversed(given) if backwards else given:
        states = cell(step, states, of_state)  # type: ignore[arg-type]
        outputs.append(states[0])
    return torch.stack(outputs[::-1] if backwards else outputs, dim=steps), states


def _lstm_cell(given: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
    hidden, cell = states
    gates = given + F.linear(hidden, weights[0], weights[1])
    enter, forget, signal, leave = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(signal)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    if len(weights) > 2:  # a projection of what leaves
        hidden = F.linear(hidden, weights[2])
    return hidden, cell


def _gru_cell(given: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
    (hidden,) = states
    of_input = given.chunk(3, dim=-1)
    of_state = F.linear(hidden, weights[0], weights[1]).chunk(3, dim=-1)
    reset = torch.sigmoid(of_input[0] + of_state[0])
    update = of_input[1] + of_state[1]
    signal = torch.tanh(of_input[2] + reset * of_state[2])
    # 1 - sigmoid(u) is sigmoid(-u), a gate
    return (torch.sigmoid(-update) * signal + torch.sigmoid(update) * hidden,)


_GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def written_out(func: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return what `func` computes, as calls of other torch functions.

    A function of torch that is written in Python first checks whether a mode is on, and then hands
    itself over whole (`nn.MultiheadAttention` arrives as one such call). In a copy of it that check
    always gives no, so it goes on to its parts.
    """
    written = _WRITTEN.get(name)
    if written is not None:
        return written
    if not isinstance(func, FunctionType):
        raise TypeError(f"{name!r} is not written in Python")
    unguarded = {**func.__globals__, **dict.fromkeys(_GUARDS, lambda *_: False)}
    copy = FunctionType(
        func.__code__, unguarded, func.__name__, func.__defaults__, func.__closure__
    )
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
    blind = None
    if attn_mask is not None:
        scores, hidden = _masked(scores, attn_mask)
        blind = hidden.all(dim=-1, keepdim=True)
    weights = torch.softmax(scores, dim=-1)
    if blind is not None:  # a fully masked position attends to nothing
        weights = weights.masked_fill(blind, 0.0)
    return torch.matmul(weights, value)


def _masked(scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The scores without hidden entries, and the hidden entries."""
    lowest = torch.finfo(scores.dtype).min
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, lowest), ~mask
    hidden = mask == -torch.inf
    unseen = mask < torch.finfo(mask.dtype).min / 2
    kept = mask.masked_fill(unseen, 0)
    if bool(kept.any()):
        scores = scores + kept
    return scores.masked_fill(unseen, lowest), hidden


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """One half times the sigmoid of the other."""
    value, gate = x.chunk(2, dim)
    return value * torch.sigmoid(gate)


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """A sum of a tensor and a batched matrix product."""
    product = torch.matmul(batch1, batch2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """A sum of a tensor and a product."""
    return input + (tensor1 * tensor2 if value == 1 else tensor1 * tensor2 * value)


def larger(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two."""
    return torch.where(input >= other, input, other)


def smaller(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two."""
    return torch.where(input <= other, input, other)


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """No less than `min` and no more than `max`, which may carry too; `max` goes before `min`."""
    if min is not None:
        tensor = isinstance(min, Tensor)
        input = torch.maximum(input, min) if tensor else torch.clamp_min(input, min)
    if max is not None:
        tensor = isinstance(max, Tensor)
        input = torch.minimum(input, max) if tensor else torch.clamp_max(input, max)
    return input


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """A slope of its own below zero for every channel."""
    if weight.numel() > 1:
        weight = weight.view(1, -1, *[1] * (input.dim() - 2))
    return torch.where(input > 0, input, input * weight)


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
    **dict.fromkeys(("clamp", "clamp_", "clip", "clamp_min"), clamp),
    "clamp_max": lambda input, max: clamp(input, max=max),
    "lstm": lstm,
    "gru": gru,
    "baddbmm": baddbmm,
    "addcmul": addcmul,
    "instance_norm": instance_norm,
    "prelu": prelu,
    "scaled_dot_product_attention": attention,
}


@dataclass(frozen=True, slots=True)
class AttentionPass:
    """A forward pass with its attention maps in the graph, in the order of the layers."""

    logits: Tensor  #: (B, C)
    maps: tuple[Tensor, ...]  #: softmax over keys, most often (B, H, T, T)
    values: LinearValues  #: of this pass, for another over the same batch

    def gradients(
        self, seed: Tensor, maps: Sequence[Tensor], *, last: bool = False
    ) -> list[Tensor]:
        """The gradient of sum_c seed[:, c] * logit_c at each of `maps`; no deeper than these."""
        return arriving(self.logits, maps, seed, last=last)


def arriving(logits: Tensor, at: Sequence[Tensor], seed: Tensor, *, last: bool) -> list[Tensor]:
    """The gradient of a seed (B, C) at each tensor; 0 where none arrives.

    `last` frees the graph afterwards.
    """
    if not at:
        return []
    gradients = torch.autograd.grad(
        logits, list(at), seed.to(logits), retain_graph=not last, allow_unused=True
    )
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(at, gradients, strict=True)
    ]


class AttentionMode(TorchFunctionMode):
    """Splits fused attention into its parts and keeps every softmax over keys; changes no value.

    Gradients are the model's own: operators need no rule here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[Tensor] = []
        self.values = LinearValues()

    def input_layer(self, tensor: Tensor) -> Tensor:
        """Gradients begin here, whether or not parameters require them."""
        return tensor.detach().requires_grad_(True)

    def encoder_begins(self) -> None:
        """Nothing depends on where the encoder begins."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = operator_name(func)
        if name in _IN_PARTS:
            with self:
                return written_out(func, name)(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        self.values.note(name, args, out)
        if name == "softmax" and out.requires_grad and out.dim() >= 3:
            self.maps.append(out)
        return out


_IN_PARTS = ("scaled_dot_product_attention", "multi_head_attention_forward")


def read_attention(forward: Callable[[AttentionMode], Tensor]) -> AttentionPass:
    """Run `forward`, which gives logits (B, C), and keep its attention maps.

    `forward` calls `taps.input_layer(tensor)` at the input layer. Raises EngineError where there
    are no maps.
    """
    mode = AttentionMode()
    with torch.enable_grad(), mode:
        logits = forward(mode)
    if not mode.maps:
        raise EngineError(
            "the model has no attention map: no softmax over keys was met. Choose a method that "
            "needs none, such as lrp or gradient-x-input"
        )
    return AttentionPass(logits, tuple(mode.maps), mode.values)
