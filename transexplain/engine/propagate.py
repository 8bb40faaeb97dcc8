"""Propagates relevance: one forward pass, then one backward pass per explained target."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.engine.census import Census
from transexplain.engine.composites import Composite
from transexplain.engine.ledger import LedgerBook
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import LinearValues
from transexplain.engine.operator_parts import arriving
from transexplain.engine.operators import rules_of_form
from transexplain.engine.tensor_record import was_seen
from transexplain.engine.traced import shapes_are_fixed
from transexplain.errors import ConfigurationError, EngineError

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
                hooks = _ExpertHooks()
                handles.append(part.register_forward_pre_hook(hooks.before))
                handles.append(part.register_forward_hook(hooks.after))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _loops(experts: Any) -> bool:
    """Return whether the experts are computed one after the other, by the model's own code."""
    chosen = getattr(experts.config, "_experts_implementation", None)
    return chosen == "eager" and not getattr(experts, "_is_expert_parallel", False)


class _ExpertHooks:
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
            mixed = (by_expert * taken).sum(0) * weights[:, place, None]
            total.index_add_(
                0, every, mixed.to(output.dtype)
            )  # as experts are summed, rule by rule
        return total


def _is_routing(experts: int, args: tuple[Any, ...]) -> bool:
    """Whether these are tokens (N, D), chosen experts (N, k) and weights (N, k), and not too many.

    In float16 an expert may overflow for a token that was never meant for it.
    """
    if len(args) != 3 or not all(
        isinstance(argument, Tensor) and argument.dim() == 2 for argument in args
    ):
        return False
    tokens, chosen, weights = args
    return (
        chosen.shape == weights.shape
        and len(chosen) == len(tokens)
        and not chosen.is_floating_point()
        and tokens.dtype != torch.float16
        and experts * tokens.numel() <= _MOST
    )


#: runs the model and lets the engine tap it, by `taps.input_layer(tensor)` there and
#: `taps.encoder_begins()` at the first block; gives logits (B, C)
Forward = Callable[[RelevanceMode], Tensor]


@dataclass(frozen=True, slots=True)
class Propagation:
    """A forward pass whose graph holds the composite's rules; each call of `relevance` is one
    backward pass through it."""

    #: (B, C), or (B, P, C) of a model that answers at P positions; in the graph
    logits: Tensor
    input_layer: Tensor  #: (B, ...), what relevance is measured at
    book: LedgerBook  #: constants and losses of the latest pass
    composite: Composite
    sink: Tensor | None = None  #: takes the relevance of rules for the input layer itself
    cut_softmax: bool = False  #: the model ends in a softmax, whose input is explained
    attention: tuple[Tensor, ...] = ()  #: maps in the order of the layers, if recorded
    summed: Callable[[Tensor], Tensor] | None = None  #: done to relevance (B, ...)

    def relevance(self, seed: Tensor, *, last: bool = False) -> Tensor:
        """Relevance of every element of the input layer for the sum of seed * logits of an item.

        The seed is shaped as the logits; the graph is freed where it is the `last`. It is input
        layer * gradient, shape of the input layer, float64, in logits; in relevance form what
        arrives, in units of the seed. Both summed, where there is `summed`.
        """
        self.book.start()
        leaves = [self.input_layer] if self.sink is None else [self.input_layer, self.sink]
        gradients = torch.autograd.grad(
            self.logits,
            leaves,
            seed.to(self.logits),
            retain_graph=not last,
            allow_unused=self.sink is not None,
        )
        # an input rule at the first operator may give everything to the sink
        gradient = torch.zeros_like(self.input_layer) if gradients[0] is None else gradients[0]
        out = gradient.double()
        if not self.composite.relevance_form:
            out = out * self.input_layer.detach().double()
        out = out if self.sink is None or gradients[1] is None else out + gradients[1].double()
        return out if self.summed is None else self.summed(out)

    def relevance_of(
        self, seed: Tensor, maps: Sequence[Tensor], *, last: bool = False
    ) -> list[Tensor]:
        """Relevance of some of the maps in `attention` for a seed (B, C), in relevance form.

        The pass ends there, above the input layer, and has no ledger.
        """
        self.book.start(keep=False)
        return arriving(self.logits, maps, seed, last=last)


def explained_sums(
    composite: Composite, logits: Tensor, seed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(B,) what the relevances of a seed sum to: the seeded logits, or the seeds.

    The seed is shaped as the logits: (B, C), or (B, P, C).
    """
    seeded = seed if composite.relevance_form else seed * logits.detach().double().cpu().numpy()
    return np.asarray(seeded.reshape(len(seed), -1).sum(axis=1))


def propagate(
    forward: Forward,
    composite: Composite,
    items: int,
    *,
    module: nn.Module | None = None,
    record_attention: bool = False,
    known_values: LinearValues | None = None,
    census: Census | None = None,
    summed: Callable[[Tensor], Tensor] | None = None,
) -> Propagation:
    """Run the model (`forward`) under the rules of `composite` for a batch of `items` (B).

    Args:
        module: names the weights that overrides match.
        record_attention: keep the attention maps (relevance form).
        known_values: outputs of linear operators from an earlier pass over the same batch.
        census: notes every operator, and lets the pass go on through those without a rule.
        summed: done to the relevance of the input layer (B, ...), such as a sum over an axis.

    Raises:
        EngineError: an operator without a rule, or logits that do not depend on the input layer.
        ConfigurationError: an override or an input rule that no operator takes.
    """
    rules = rules_of_form("relevance" if composite.relevance_form else "gradient")
    mode = RelevanceMode(composite, rules, items, module=module, census=census)
    mode.known_values = known_values
    if record_attention:
        mode.attention = []
    with torch.enable_grad(), every_expert(module), mode:
        logits = forward(mode)
    return _propagation(mode, logits, summed)


def _propagation(
    mode: RelevanceMode, logits: Tensor, summed: Callable[[Tensor], Tensor] | None
) -> Propagation:
    if mode.input_tensor is None:
        raise EngineError("the model's forward never reached the input layer; choose another `at`")
    below = mode.before_softmax(logits)
    explained = logits if below is None else below
    if not explained.requires_grad:
        raise EngineError(
            "the logits do not depend on the input layer: the model detaches its path"
        )
    if not was_seen(explained):
        raise EngineError("the logits were computed by scripted or compiled code, unseen")
    # a rule without an operator would silently change nothing
    rule = mode.composite.input_rule
    if rule is not None and rule.required and not mode.met_input_rule:
        raise ConfigurationError(
            "input_rule is for the linear operator that reads the input layer, and none does; "
            "measure at 'pixels', or leave the input rule out"
        )
    for override in mode.composite.overrides:
        if override.pattern not in mode.met_overrides:
            known = [name for name, _ in (mode.module or nn.Module()).named_parameters()][:3]
            raise ConfigurationError(
                f"override {override.pattern!r} matches no linear operator; weights are called "
                f"{', '.join(known)}, ..."
            )
    return Propagation(
        logits=explained,
        input_layer=mode.input_tensor,
        book=mode.books.book,
        composite=mode.composite,
        sink=mode.input_sink,
        cut_softmax=below is not None,
        attention=tuple(mode.attention or ()),
        summed=summed,
    )
