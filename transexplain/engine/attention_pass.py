"""Attention maps as they are met, kept in the graph, so that a backward pass can stop at them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from transexplain.engine import in_parts
from transexplain.engine.operator_call import LinearValues
from transexplain.engine.operators import operator_name
from transexplain.errors import EngineError


class PlainForward(Protocol):
    """Runs the model and lets the engine tap it; returns logits (B, C)."""

    def __call__(self, taps: "AttentionMode") -> Tensor:
        """Call `taps.input_layer(tensor)` at the input layer."""


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
    """What the backward pass of a seed (B, C) brings to each tensor, 0 where it does not come.

    `last` frees the graph afterwards.
    """
    if not at:
        return []
    found = torch.autograd.grad(
        logits, list(at), seed.to(logits), retain_graph=not last, allow_unused=True
    )
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(at, found, strict=True)
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
        whole = _IN_PARTS.get(name)
        if whole is not None:
            with self:
                return whole(func, name)(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        self.values.note(name, args, out)
        if name == "softmax" and out.requires_grad and out.dim() >= 3:
            self.maps.append(out)
        return out


def _parts_of_attention(_func: Callable[..., Any], _name: str) -> Callable[..., Any]:
    return in_parts.attention


_IN_PARTS: dict[str, Callable[[Callable[..., Any], str], Callable[..., Any]]] = {
    "scaled_dot_product_attention": _parts_of_attention,
    "multi_head_attention_forward": in_parts.written_out,
}


def read_attention(forward: PlainForward) -> AttentionPass:
    """Run `forward` and keep its attention maps; raises EngineError where there are none."""
    mode = AttentionMode()
    with torch.enable_grad(), mode:
        logits = forward(mode)
    if not mode.maps:
        raise EngineError(
            "the model has no attention map: no softmax over keys was met. Choose a method that "
            "needs none, such as lrp or gradient-x-input"
        )
    return AttentionPass(logits, tuple(mode.maps), mode.values)
