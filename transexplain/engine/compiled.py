"""A traced step compiled by Inductor and, on a CUDA device, captured as graphs.

What is compiled gives the numbers of the trace but for rounding: Inductor computes several
operators in one kernel and does not round in between. A captured graph launches all kernels at
once, from and into memory that stays its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.replay import TracedStep
from transexplain.engine.traced import Part

#: of Inductor. In bfloat16 its patterns made products of mixed types (torch 2.11)
OPTIONS: Mapping[str, Any] = {"pattern_matcher": False}
_WARM_UP = 3  # calls before a capture, in which libraries allocate what they keep


def compiled(step: TracedStep, inputs: Mapping[str, Tensor]) -> TracedStep:
    """The same step with both of its parts compiled, which takes 10 to 30 seconds for 12 layers.

    Compiled kernels are kept on disk, in the folder that `TORCHINDUCTOR_CACHE_DIR` names.

    Raises whatever the compiler raises: there may be none, or none for this device.
    """
    tensors, seed = list(inputs.values()), _seed(step)
    parts = step.traced
    with torch.no_grad():
        needed = list(parts.begin(*tensors).needed)
        first = _by_inductor(parts.first, tensors)
        second = _by_inductor(parts.second, [*needed, seed])
    return replace(step, traced=replace(parts, first=first, second=second), kind="compiled")


def _by_inductor(part: Part, inputs: Sequence[Tensor]) -> Part:
    import torch._inductor

    if not isinstance(part, torch.fx.GraphModule):
        raise TypeError("a part is compiled once, and this one is already")
    found: Part = torch._inductor.compile(part, [*inputs], options=dict(OPTIONS))
    return found


def captured(step: TracedStep, inputs: Mapping[str, Tensor]) -> TracedStep:
    """The same step as two CUDA graphs; each call writes over what the call before gave."""
    first = _Captured(step.traced.first, [tensor.clone() for tensor in inputs.values()])
    needed = first.outputs[len(step.traced.early) :]
    second = _Captured(step.traced.second, [*needed, _seed(step)])
    return replace(step, traced=replace(step.traced, first=first, second=second))


def _seed(step: TracedStep) -> Tensor:
    """A seed (B, C) as replays are given it."""
    return torch.ones(step.shape, dtype=torch.float64, device=step.device)


class _Captured:
    """A function of tensors of fixed shapes, as one CUDA graph."""

    def __init__(self, function: Part, inputs: Sequence[Tensor]) -> None:
        self.inputs = inputs
        self.graph = torch.cuda.CUDAGraph()
        device = inputs[0].device
        with torch.cuda.device(device), torch.no_grad():
            _on_a_stream_of_its_own(lambda: function(*inputs), device)
            # other threads of this process may go on allocating
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = tuple(function(*inputs))

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        for own, other in zip(self.inputs, given, strict=True):
            if own is not other:  # the second part reads what the first wrote, where it is
                own.copy_(other)
        self.graph.replay()
        return self.outputs


def _on_a_stream_of_its_own(function: Callable[[], Any], device: torch.device) -> None:
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            function()
    torch.cuda.current_stream(device).wait_stream(stream)
