"""Propagation from a trace: the same answers as `propagate`, without the model's Python code."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transexplain.engine.composites import Composite
from transexplain.engine.ledger import Entry, LedgerBook
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.propagate import Propagation, propagate
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
        """Return whether the model ends in a softmax, whose input is explained."""
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
        tensors = self.begun.end(whole.to(self.step.device))
        self.book.start()
        if self.step.amplifies:
            self.book.amplified_by(tensors[_AMPLIFICATION][:items])
        for (entry, kind, site), values in zip(
            self.step.sites, tensors[_AMPLIFICATION + self.step.amplifies :], strict=True
        ):
            self.book.add(entry, kind, site, values[:items])
        return tensors[_RELEVANCE][:items]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracing:
    """Whether a step becomes a flat graph, and what a replay of it costs."""

    operators: int | None  #: that a replay calls; None: it could not be traced
    guards: int  #: values read while tracing; a replay holds for inputs that read the same
    seconds: float  #: that tracing took
    replay: float | None  #: seconds of one replay, median of three
    why: str  #: why it could not be traced; else empty


def try_tracing(work: "Step") -> Tracing:
    """Trace a step, and time replays over the same inputs."""
    begun = time.perf_counter()
    try:
        step = work.traced()
    except EngineError as error:
        took = time.perf_counter() - begun
        return Tracing(operators=None, guards=0, seconds=took, replay=None, why=str(error))
    took, seed, rounds = time.perf_counter() - begun, torch.ones(work.shape), []
    for _ in range(3):
        begun = time.perf_counter()
        passes = step.propagation(work.inputs)
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


#: a forward pass, and backward passes through it: eager or replayed
Passes = Propagation | ReplayedPropagation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Step:
    """What an explanation of one batch computes."""

    forward: InputForward
    composite: Composite
    inputs: Mapping[str, Tensor]  #: (B, ...) by name
    shape: tuple[int, ...]  #: of the logits: (B, C), or (B, P, C)
    module: nn.Module
    summed: Summed | None = None  #: done to the relevance, as a part of a trace
    at: Hashable = None  #: what `forward` and `summed` depend on besides: the input layer
    rows: int | None = None  #: rows to fill the batch up to for a replay; None: it stays as it is

    def eager(self, inputs: Mapping[str, Tensor] | None = None) -> Propagation:
        """Run the forward pass as it is, on these inputs or on others; raises as `propagate`."""
        return propagate(
            lambda taps: self.forward(inputs or self.inputs, taps),
            self.composite,
            self.shape[0],
            module=self.module,
            summed=self.summed,
        )

    def traced(self) -> TracedStep:
        """A trace of this step for inputs of these shapes; see `propagate` for what is raised.

        Raises UntraceableError where a shape depends on numbers that the model computes.
        """
        bookings: list[tuple[tuple[tuple[Entry, str, int], ...], bool, bool]] = []

        def step(*given: Tensor) -> Sequence[Tensor]:
            *tensors, seed = given
            passes = self.eager(dict(zip(self.inputs, tensors, strict=True)))
            relevance = passes.relevance(seed, last=True)
            amplified, booked = passes.book.amplified_most, passes.book.sites
            bookings[:] = [(tuple(booked), amplified is not None, passes.cut_softmax)]
            most = () if amplified is None else (amplified,)
            return [passes.logits.detach(), relevance, *most, *booked.values()]

        graph = traced(step, self.examples)
        ((sites, amplifies, cut_softmax),) = bookings
        return TracedStep(
            traced=graph,
            composite=self.composite,
            shape=self.shape,
            device=self.device,
            shapes={name: tuple(tensor.shape) for name, tensor in self.inputs.items()},
            sites=sites,
            amplifies=amplifies,
            cut_softmax=cut_softmax,
        )

    @property
    def device(self) -> torch.device:
        """Return where the inputs are."""
        return next(iter(self.inputs.values())).device

    @property
    def given(self) -> list[Tensor]:
        """The inputs in order."""
        return list(self.inputs.values())

    @property
    def examples(self) -> list[Tensor]:
        """Return what its trace is given: the inputs, and a seed."""
        return [*self.given, torch.ones(self.shape, dtype=torch.float64, device=self.device)]

    @property
    def key(self) -> Hashable:
        """Equal for steps that one trace may serve."""
        return self.composite, self.at, tuple(self.inputs), self.shape, _kinds(self.given)

    def filled(self) -> "Step":
        """The same step with its first row repeated until there are `rows`."""
        if self.rows is None or self.rows <= self.shape[0]:
            return self
        more = self.rows - self.shape[0]
        inputs = {
            name: torch.cat([tensor, tensor[:1].expand(more, *tensor.shape[1:])])
            for name, tensor in self.inputs.items()
        }
        return replace(self, inputs=inputs, shape=(self.rows, *self.shape[1:]), rows=None)


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
        """Return where the inputs are."""
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
    shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
    return shapes, device, torch.is_autocast_enabled(device.type)


def positions_of(work: Step | TensorFunction) -> int:
    """B * T; of pictures B * H, or more."""
    return max(
        tensor[..., 0].numel() if tensor.dim() > 2 else tensor.numel() for tensor in work.given
    )
