"""Propagation from a trace: the same answers as `propagate`, without the model's Python code."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.engine.composites import Composite
from transexplain.engine.ledger import Entry, LedgerBook
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.propagate import explained_sums, propagate
from transexplain.engine.traced import Begun, Traced, traced
from transexplain.errors import EngineError

#: runs the model on these inputs and lets the engine tap it; gives logits (B, C)
InputForward = Callable[[Mapping[str, Tensor], RelevanceMode], Tensor]
#: done to the relevance of the input layer (B, ...), such as a sum over the hidden axis
Summed = Callable[[Tensor], Tensor]
_LOGITS, _RELEVANCE, _AMPLIFICATION = range(3)  # places in a step's outputs; the ledger follows


@dataclass(frozen=True, slots=True)
class TracedStep:
    """Forward pass, backward pass and bookings of a batch of one shape, as a flat graph."""

    traced: Traced
    composite: Composite
    shape: tuple[int, ...]  #: of the logits: (B, C), or (B, P, C)
    device: torch.device
    shapes: Mapping[str, tuple[int, ...]]  #: of the inputs, by name
    sites: tuple[tuple[Entry, str, int], ...]  #: of the ledger, in the order of the outputs
    amplifies: bool  #: whether a rule may amplify relevance
    cut_softmax: bool

    def propagation(
        self, inputs: Mapping[str, Tensor], items: int | None = None
    ) -> "ReplayedPropagation | None":
        """A forward pass over other inputs of these shapes.

        None where the trace does not apply to them: a mask that hid nothing hides something, or
        the other way round. Only the first `items` rows are answered for, by default all of them.
        Raises EngineError for other shapes.
        """
        shapes = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
        if shapes != self.shapes:
            raise EngineError(f"the step was traced for inputs of {self.shapes}, not {shapes}")
        applies = self.traced.applies(*inputs.values())
        return self.replayed(inputs, items or self.shape[0]) if applies else None

    def replayed(self, inputs: Mapping[str, Tensor], items: int) -> "ReplayedPropagation":
        """The same for inputs that the trace is known to apply to."""
        return ReplayedPropagation(self, self.traced.begin(*inputs.values()), LedgerBook(items))


@dataclass(frozen=True, slots=True)
class ReplayedPropagation:
    """As `propagate.Propagation`, of a replayed forward pass."""

    step: TracedStep
    begun: Begun
    book: LedgerBook  #: constants and losses of the latest pass

    @property
    def logits(self) -> Tensor:
        """(B, C) or (B, P, C), without a graph."""
        return self.begun.outputs[_LOGITS][: self.book.items]

    @property
    def cut_softmax(self) -> bool:
        """Whether the model ends in a softmax, whose input is explained."""
        return self.step.cut_softmax

    @property
    def kind(self) -> str:
        """`replayed`, or `compiled`."""
        return self.step.traced.kind

    def relevance(self, seed: Tensor, *, last: bool = False) -> Tensor:
        """As `Propagation.relevance`, for a seed; what was kept for it stays either way."""
        items = self.book.items
        whole = torch.zeros(self.step.shape, dtype=torch.float64)
        whole[:items] = seed
        found = self.begun.end(whole.to(self.step.device))
        self.book.start()
        if self.step.amplifies:
            self.book.amplified_by(found[_AMPLIFICATION][:items])
        for (entry, kind, site), values in zip(
            self.step.sites, found[_AMPLIFICATION + self.step.amplifies :], strict=True
        ):
            self.book.add(entry, kind, site, values[:items])
        return found[_RELEVANCE][:items]

    def explained(self, seed: NDArray[np.float64]) -> NDArray[np.float64]:
        """(B,) what the relevances of a pass sum to: the seeded logits, or the seeds."""
        return explained_sums(self.step.composite, self.logits, seed)


def traced_step(
    forward: InputForward,
    composite: Composite,
    inputs: Mapping[str, Tensor],
    shape: tuple[int, ...],
    *,
    module: nn.Module | None = None,
    summed: Summed | None = None,
) -> TracedStep:
    """Trace one step of a batch; see `propagate` for what is raised besides.

    Args:
        forward: runs the model.
        composite: the rules.
        inputs: of the batch, by name; the trace is for their shapes.
        shape: of the logits.
        module: names the weights that overrides match.
        summed: done to the relevance, as a part of the trace.

    Raises UntraceableError where a shape depends on numbers that the model computes.
    """
    found: list[tuple[tuple[tuple[Entry, str, int], ...], bool, bool]] = []

    def step(*given: Tensor) -> Sequence[Tensor]:
        *tensors, seed = given
        named = dict(zip(inputs, tensors, strict=True))
        passes = propagate(
            lambda taps: forward(named, taps), composite, shape[0], module=module, summed=summed
        )
        relevance = passes.relevance(seed, last=True)
        amplified, booked = passes.book.amplified_most, passes.book.sites
        found[:] = [(tuple(booked), amplified is not None, passes.cut_softmax)]
        most = () if amplified is None else (amplified,)
        return [passes.logits.detach(), relevance, *most, *booked.values()]

    tensors = list(inputs.values())
    seed = torch.ones(shape, dtype=torch.float64, device=tensors[0].device)
    graph = traced(step, [*tensors, seed])
    ((sites, amplifies, cut_softmax),) = found
    return TracedStep(
        traced=graph,
        composite=composite,
        shape=shape,
        device=tensors[0].device,
        shapes={name: tuple(tensor.shape) for name, tensor in inputs.items()},
        sites=sites,
        amplifies=amplifies,
        cut_softmax=cut_softmax,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracing:
    """Whether a step becomes a flat graph, and what a replay of it costs."""

    operators: int | None  #: that a replay calls; None: it could not be traced
    guards: int  #: values read while tracing; a replay holds for inputs that read the same
    seconds: float  #: that tracing took
    replay: float | None  #: seconds of one replay, median of three
    why: str  #: why it could not be traced; else empty


def try_tracing(
    forward: InputForward,
    composite: Composite,
    inputs: Mapping[str, Tensor],
    shape: tuple[int, ...],
    *,
    module: nn.Module | None = None,
) -> Tracing:
    """Trace as `traced_step` does, and time replays over the same inputs."""
    begun = time.perf_counter()
    try:
        step = traced_step(forward, composite, inputs, shape, module=module)
    except EngineError as error:
        took = time.perf_counter() - begun
        return Tracing(operators=None, guards=0, seconds=took, replay=None, why=str(error))
    took, seed, rounds = time.perf_counter() - begun, torch.ones(shape), []
    for _ in range(3):
        begun = time.perf_counter()
        passes = step.propagation(inputs)
        if passes is not None:
            passes.relevance(seed).sum().item()  # which waits for a device
        rounds.append(time.perf_counter() - begun)
    return Tracing(
        operators=step.traced.operators,
        guards=len(step.traced.guards),
        seconds=took,
        replay=statistics.median(rounds),
        why="",
    )
