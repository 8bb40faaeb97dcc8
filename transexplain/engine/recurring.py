"""What recurs in explanations: a step over one batch, or a plain function of tensors."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.engine.composites import Composite
from transexplain.engine.ledger import LedgerBook
from transexplain.engine.propagate import propagate
from transexplain.engine.replay import InputForward, Summed, TracedStep, traced_step
from transexplain.engine.traced import Traced, traced


class Passes(Protocol):
    """A forward pass, and backward passes through it: eager or replayed."""

    @property
    def logits(self) -> Tensor:
        """(B, C), or (B, P, C) of a model that answers at P positions."""

    @property
    def book(self) -> LedgerBook:
        """Constants and losses of the latest pass."""

    @property
    def cut_softmax(self) -> bool:
        """Whether the model ends in a softmax, whose input is explained."""

    def relevance(self, seed: Tensor, *, last: bool = False) -> Tensor:
        """Summed relevance of the input layer; a seed is shaped as the logits; `last` frees all."""

    def explained(self, seed: NDArray[np.float64]) -> NDArray[np.float64]:
        """(B,) what the relevances of a pass sum to."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Step:
    """What an explanation of one batch computes."""

    forward: InputForward
    composite: Composite
    inputs: Mapping[str, Tensor]  #: (B, ...) by name
    shape: tuple[int, ...]  #: of the logits: (B, C), or (B, P, C)
    module: nn.Module
    summed: Summed
    at: Hashable  #: what `forward` and `summed` depend on besides the inputs: the input layer
    rows: int | None = None  #: rows to fill the batch up to for a replay; None: it stays as it is

    def eager(self) -> Passes:
        """Run the forward pass as it is."""
        return propagate(
            lambda taps: self.forward(self.inputs, taps),
            self.composite,
            self.shape[0],
            module=self.module,
            summed=self.summed,
        )

    def traced(self) -> TracedStep:
        """A trace of this step; see `traced_step`."""
        return traced_step(
            self.forward,
            self.composite,
            self.inputs,
            self.shape,
            module=self.module,
            summed=self.summed,
        )

    @property
    def device(self) -> torch.device:
        """Where the inputs are."""
        return next(iter(self.inputs.values())).device

    @property
    def given(self) -> list[Tensor]:
        """The inputs in order."""
        return list(self.inputs.values())

    @property
    def examples(self) -> list[Tensor]:
        """What its trace is given: the inputs, and a seed."""
        return [*self.given, torch.ones(self.shape, dtype=torch.float64, device=self.device)]

    @property
    def key(self) -> Hashable:
        """Equal for steps that one trace may serve."""
        return self.composite, self.at, tuple(self.inputs), self.shape, _kinds(self.given)

    def filled(self) -> "Step":
        """The same step with its first row repeated until there are `rows`."""
        more = (self.rows or 0) - self.shape[0]
        if more <= 0:
            return self
        inputs = {
            name: torch.cat([one, one[:1].expand(more, *one.shape[1:])])
            for name, one in self.inputs.items()
        }
        return Step(
            forward=self.forward,
            composite=self.composite,
            inputs=inputs,
            shape=(self.shape[0] + more, *self.shape[1:]),
            module=self.module,
            summed=self.summed,
            at=self.at,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorFunction:
    """A plain function of tensors that recurs: logits, their gradient, attention maps."""

    function: Callable[..., Sequence[Tensor]]  #: of `examples`
    examples: Sequence[Tensor]  #: what it is called with
    module: nn.Module
    at: Hashable  #: what it depends on besides

    @property
    def given(self) -> Sequence[Tensor]:
        """All inputs but the last."""
        return self.examples[:-1]

    @property
    def device(self) -> torch.device:
        """Where the inputs are."""
        return self.examples[0].device

    @property
    def key(self) -> Hashable:
        """Equal for functions that one trace may serve."""
        return self.at, _kinds(self.examples)

    def traced(self) -> Traced:
        """A trace; see `engine.traced.traced`."""
        return traced(self.function, self.examples)


def _kinds(tensors: Sequence[Tensor]) -> Hashable:
    """Shapes and types, the device, and whether it computes in mixed precision."""
    device = tensors[0].device
    found = tuple((one.shape, one.dtype) for one in tensors)
    return found, device, torch.is_autocast_enabled(device.type)


def positions_of(work: Step | TensorFunction) -> int:
    """B * T; of pictures B * H, or more."""
    return max(one[..., 0].numel() if one.dim() > 2 else one.numel() for one in work.given)
