"""Propagates relevance: one forward pass, then one backward pass per explained target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.engine.attention_parts import arriving
from transexplain.engine.census import Census
from transexplain.engine.composites import Composite
from transexplain.engine.experts import every_expert
from transexplain.engine.ledger import LedgerBook
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import LinearValues
from transexplain.engine.operators import rules_of_form
from transexplain.engine.tensor_record import was_seen
from transexplain.errors import ConfigurationError, EngineError


class Forward(Protocol):
    """Runs the model and lets the engine tap it; returns logits (B, C)."""

    def __call__(self, taps: RelevanceMode) -> Tensor:
        """Call `taps.input_layer(tensor)` there, `taps.encoder_begins()` at the first block."""


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

        Args:
            seed: coefficients, shaped as the logits.
            last: free the graph afterwards.

        Returns:
            input layer * gradient, shape of the input layer, float64, in logits; in relevance form
            the relevance that arrives, in units of the seed. Both summed, where there is `summed`.
        """
        self.book.start()
        leaves = [self.input_layer] if self.sink is None else [self.input_layer, self.sink]
        found = torch.autograd.grad(
            self.logits,
            leaves,
            seed.to(self.logits),
            retain_graph=not last,
            allow_unused=self.sink is not None,
        )
        # an input rule at the first operator may give everything to the sink
        gradient = torch.zeros_like(self.input_layer) if found[0] is None else found[0]
        out = gradient.double()
        if not self.composite.relevance_form:
            out = out * self.input_layer.detach().double()
        out = out if self.sink is None or found[1] is None else out + found[1].double()
        return out if self.summed is None else self.summed(out)

    def relevance_of(
        self, seed: Tensor, maps: Sequence[Tensor], *, last: bool = False
    ) -> list[Tensor]:
        """Relevance of attention maps (relevance form); the pass ends there, above the input.

        There is no ledger of such a pass.

        Args:
            seed: (B, C) coefficients.
            maps: some of `attention`.
            last: free the graph afterwards.
        """
        self.book.start(keep=False)
        return arriving(self.logits, maps, seed, last=last)

    def explained(self, seed: NDArray[np.float64]) -> NDArray[np.float64]:
        """(B,) what the relevances of a pass sum to: the seeded logits, or the seeds."""
        return explained_sums(self.composite, self.logits, seed)


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
    """Run `forward` under `composite` for a batch of `items` (B).

    Args:
        forward: runs the model.
        composite: the rules.
        items: B.
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
    return replace(_propagation(mode, logits), summed=summed)


def _propagation(mode: RelevanceMode, logits: Tensor) -> Propagation:
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
    _check_used(mode)
    return Propagation(
        logits=explained,
        input_layer=mode.input_tensor,
        book=mode.books.book,
        composite=mode.composite,
        sink=mode.input_sink,
        cut_softmax=below is not None,
        attention=tuple(mode.attention or ()),
    )


def _check_used(mode: RelevanceMode) -> None:
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
