"""A traced function compiled by Inductor and, on a CUDA device, captured as graphs.

What no relevance needs is left out before (`needed_work`).
What is compiled gives the numbers of the trace but for rounding: Inductor computes several
operators in one kernel and does not round in between. A captured graph launches all kernels at
once, from and into memory that stays its own.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.needed_work import (
    with_read_rows,
    with_value_gradients,
    without_zero_columns,
)
from transexplain.engine.replay import TracedStep
from transexplain.engine.traced import ONE_AT_A_TIME, Part, Traced

#: of Inductor. In bfloat16 its patterns made products of mixed types (torch 2.11)
OPTIONS: Mapping[str, Any] = {"pattern_matcher": False}
_WARM_UP = 3  # calls before a capture, in which libraries allocate what they keep
#: relative difference of outputs that another order of rounding may make, in half precision too
_ROUNDING = 0.1

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Replay:
    """A trace that is replayed at once, and compiled beside the work where that is worth it."""

    traced: Traced
    examples: Sequence[Tensor]  #: inputs of its shapes
    plain: Traced | None  #: as it was traced, until it is on its way to be compiled
    warn: Callable[[str], None]  #: receives why it was not compiled
    step: TracedStep | None = None  #: what the outputs are, of a step
    #: set by the thread that compiles, until `use_compiled` takes the fastest
    _compiled: Sequence[Traced] | None = None

    @classmethod
    def of(
        cls,
        traced: Traced | TracedStep,
        examples: Sequence[Tensor],
        warn: Callable[[str], None],
    ) -> "Replay":
        """On a card captured."""
        step = traced if isinstance(traced, TracedStep) else None
        plain = traced.traced if isinstance(traced, TracedStep) else traced
        own = [example.clone() for example in examples]
        return cls(on_device(plain, own), own, plain, warn, step)

    def compile(self) -> None:
        """Begin to compile, once, while replays go on; where that fails they stay as they are."""
        plain, self.plain = self.plain, None
        if plain is not None:
            # in the context of who asked: what it logs belongs to the same shard. Python joins the
            # thread before it ends, for a process that ends in the middle of a compilation aborts
            work = copy_context().run
            threading.Thread(target=work, args=(self._compile, plain), name="compile-step").start()

    def _compile(self, plain: Traced) -> None:
        with ONE_AT_A_TIME:
            if not threading.main_thread().is_alive():
                return  # the process is ending
            try:
                step = compiled(plain, self.examples)
                wanted = _outputs(plain, self.examples)
                _check(wanted, _outputs(step, self.examples))
            except Exception as error:  # noqa: BLE001 - compilers raise anything
                self.warn(f"replayed as traced, for compiling failed: {error}")
                return
            ready = [step]
            try:
                alone = with_value_gradients(plain)
                if alone is not None:
                    ready.append(compiled(alone, self.examples))
                    _check(wanted, _outputs(ready[-1], self.examples))
            except Exception as error:  # noqa: BLE001 - it is one way more to do the same
                _LOG.info("attention's backward kernel stays as it is: %s", error)
                ready = [step]
            self._compiled = ready

    def use_compiled(self) -> None:
        """Replace the trace by the fastest of what was compiled, once that is done."""
        done, self._compiled = self._compiled, None
        if done is None:
            return
        ready: list[Traced] = []
        for part in done:
            try:
                ready.append(on_device(part, self.examples))
            except Exception as error:  # noqa: BLE001 - it stays what it is
                self.warn(f"replayed as traced, for what was compiled fails: {error}")
        if len(ready) > 1:
            ready.sort(key=lambda way: seconds_of(way, self.examples))
        if ready:
            self.traced = ready[0]


def seconds_of(traced: Traced, inputs: Sequence[Tensor]) -> float:
    """Of one call of both parts, the fastest of three."""
    parts = []
    for _ in range(4):  # the first one warms up
        begun = time.perf_counter()
        outputs = traced.begin(*inputs[:-1]).end(inputs[-1])
        outputs[0].flatten()[:1].tolist()  # which waits for a device
        parts.append(time.perf_counter() - begun)
    return min(parts[1:])


def _outputs(traced: Traced, inputs: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.double() for tensor in traced.begin(*inputs[:-1]).end(inputs[-1])]


def _check(wanted: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Raise RuntimeError where outputs differ by more than another order of rounding may do."""
    largest = max(float(tensor.norm()) for tensor in wanted)
    for one, other in zip(wanted, given, strict=True):
        if not float((one - other).norm()) <= _ROUNDING * (float(one.norm()) + largest):
            raise RuntimeError("it gives other numbers than what was traced")


def on_device(traced: Traced, inputs: Sequence[Tensor]) -> Traced:
    """As two CUDA graphs on a card, where a call writes over what the call before gave.

    On another device as it is.
    """
    if inputs[0].device.type != "cuda":
        return traced
    *others, last = [tensor.clone() for tensor in inputs]
    first = _Captured(traced.first, others)
    if not traced.late:
        return replace(traced, first=first)
    needed = first.outputs[len(traced.early) :]
    return replace(traced, first=first, second=_Captured(traced.second, [*needed, last]))


def lean(traced: Traced) -> Traced:
    """The same without what no relevance needs; as it is where that fails."""
    try:
        return with_read_rows(without_zero_columns(traced))
    except Exception as error:  # noqa: BLE001 - a graph may hold what nobody foresaw
        _LOG.warning("compiled as traced, for nothing could be left out: %r", error)
        return traced


def compiled(
    traced: Traced, inputs: Sequence[Tensor], *, reduced: Callable[[Traced], Traced] = lean
) -> Traced:
    """The same function with both of its parts compiled; 10 to 30 seconds for a step of 12 layers.

    Compiled kernels are kept on disk, in the folder that `TORCHINDUCTOR_CACHE_DIR` names.

    `inputs` are as it was traced with, the last one included; `reduced` takes out what need not be
    computed. Raises whatever the compiler raises: there may be none, or none for this device.
    """
    *first, last = inputs
    traced = reduced(traced)
    with torch.no_grad():
        needed = traced.begin(*first).needed
        second = _by_inductor(traced.second, [*needed, last]) if traced.late else traced.second
        first_part = _by_inductor(traced.first, first)
        return replace(traced, first=first_part, second=second, kind="compiled")


def _by_inductor(part: Part, inputs: Sequence[Tensor]) -> Part:
    import torch._inductor
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if not isinstance(part, torch.fx.GraphModule):
        raise TypeError("a part is compiled once, and this one is already")
    # Inductor keeps a graph on disk only where it knows the symbols of its sizes; there are none
    known = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    with tracing(TracingContext(known)):
        function: Part = torch._inductor.compile(part, [*inputs], options=dict(OPTIONS))
    return function


class _Captured:
    """A function of tensors of fixed shapes, as one CUDA graph."""

    def __init__(self, function: Part, inputs: Sequence[Tensor]) -> None:
        self.inputs = inputs
        self.graph = torch.cuda.CUDAGraph()
        device = inputs[0].device
        with torch.cuda.device(device), torch.no_grad():
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP):
                    function(*inputs)
            torch.cuda.current_stream(device).wait_stream(stream)
            # other threads of this process may go on allocating
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = tuple(function(*inputs))

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        for own, other in zip(self.inputs, given, strict=True):
            if own is not other:  # the second part reads what the first wrote, where it is
                own.copy_(other)
        self.graph.replay()
        return self.outputs
