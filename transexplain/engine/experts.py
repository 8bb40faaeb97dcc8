"""Mixtures of experts without data-dependent shapes: while traced, each expert takes every token.

A mixture of experts gives a token to the few experts that a router chose, so how many tokens an
expert gets depends on values, which a trace cannot follow. Here the model's own code gives every
token to every expert, and what was not chosen counts nothing. Relevance follows: what is multiplied
by 0 gets none. The module is not changed; hooks are on it for one forward pass, in one thread.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.engine.traced import shapes_are_fixed

#: by which transformers marks modules whose forward(tokens, chosen experts, their weights) means
#: the weighted sum of the chosen experts, however it is computed (`use_experts_implementation`)
_MARKS = ("num_experts", "has_gate", "is_transposed", "config")
#: elements of all outputs of the experts of one layer, above which routing stays as it is
_MOST = 2**26


@contextmanager
def every_expert(module: nn.Module | None) -> Iterator[None]:
    """Give every token to every expert of `module` where shapes are fixed; else change nothing."""
    if module is None or not shapes_are_fixed():
        yield
        return
    handles = []
    try:
        for part in module.modules():
            if all(hasattr(part, mark) for mark in _MARKS) and _loops(part):
                hooks = _Hooks()
                handles.append(part.register_forward_pre_hook(hooks.before))
                handles.append(part.register_forward_hook(hooks.after))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _loops(experts: Any) -> bool:
    """Whether the experts are computed one after the other, by the model's own code."""
    chosen = getattr(experts.config, "_experts_implementation", None)
    return chosen == "eager" and not getattr(experts, "_is_expert_parallel", False)


class _Hooks:
    """The hooks of one module of experts, for one forward pass."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.routing: tuple[Tensor, Tensor] | None = None  # chosen experts and their weights (N, k)

    def before(self, experts: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...] | None:
        """Every token once for each expert in the place of the tokens, with weight 1."""
        self.routing = None
        if threading.get_ident() != self.thread or not _is_routing(experts.num_experts, args):
            return None
        tokens, chosen, weights = args
        self.routing = chosen, weights
        every = torch.arange(experts.num_experts, device=chosen.device, dtype=chosen.dtype)
        every = every.repeat_interleave(len(tokens)).unsqueeze(1)
        return (
            tokens.repeat(experts.num_experts, 1),
            every,
            torch.ones(every.shape, dtype=weights.dtype, device=weights.device),
        )

    def after(self, experts: Any, _args: Any, output: Any) -> Tensor | None:
        """The weighted sum over the chosen experts (N, D) of outputs (experts * N, D)."""
        if threading.get_ident() != self.thread or self.routing is None:
            return None
        chosen, weights = self.routing
        by_expert = output.view(experts.num_experts, len(chosen), -1)
        numbers = torch.arange(experts.num_experts, device=chosen.device).unsqueeze(1)
        every = torch.arange(len(chosen), device=chosen.device)
        total = torch.zeros(by_expert.shape[1:], dtype=output.dtype, device=output.device)
        for place in range(chosen.shape[1]):
            taken = (chosen[:, place] == numbers).to(output.dtype).unsqueeze(-1)
            one = (by_expert * taken).sum(0) * weights[:, place, None]
            total.index_add_(0, every, one.to(output.dtype))  # as experts are summed, rule by rule
        return total


def _is_routing(experts: int, args: tuple[Any, ...]) -> bool:
    """Whether these are tokens (N, D), chosen experts (N, k) and weights (N, k), and not too many.

    In float16 an expert may overflow for a token that was never meant for it.
    """
    if len(args) != 3 or not all(isinstance(one, Tensor) and one.dim() == 2 for one in args):
        return False
    tokens, chosen, weights = args
    return (
        chosen.shape == weights.shape
        and len(chosen) == len(tokens)
        and not chosen.is_floating_point()
        and tokens.dtype != torch.float16
        and experts * tokens.numel() <= _MOST
    )
