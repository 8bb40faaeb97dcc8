"""Norms and softmax under the rescale rule."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.normalisation import batch_scale
from transexplain.engine.paired import pair, reference_of
from transexplain.engine.rescale import RescaleMode
from transexplain.engine.rescale_functions import (
    Instead,
    Multiplied,
    Normalised,
    SoftmaxMultiplier,
)


def wide(values: Tensor) -> Tensor:
    """At least float32: multipliers are quotients."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def layer_norm(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Centred, divided by the root of a mean of squares, and scaled by constants."""
    axes = len(call.argument(1, "normalized_shape", ()))
    weight, eps = call.argument(2, "weight", None), call.argument(4, "eps", 1e-5)
    return _normed(mode, call, other, lambda x: x.flatten(-axes), eps, weight, centred=True)


def rms_norm(mode: RescaleMode, call: Call, other: Call) -> Any:
    """A layer norm that is not centred."""
    axes = len(call.argument(1, "normalized_shape", ()))
    weight, eps = call.argument(2, "weight", None), call.argument(3, "eps", None)
    if eps is None:
        eps = torch.finfo(wide(call.carriers[0]).dtype).eps
    return _normed(mode, call, other, lambda x: x.flatten(-axes), eps, weight, centred=False)


def group_norm(mode: RescaleMode, call: Call, other: Call) -> Any:
    """A layer norm over each group of channels."""
    groups, eps = int(call.argument(1, "num_groups", 1)), call.argument(4, "eps", 1e-5)
    weight = call.argument(2, "weight", None)
    if weight is not None:
        weight = weight.view(-1, *[1] * (call.carriers[0].dim() - 2))

    def grouped(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], groups, -1)

    return _normed(mode, call, other, grouped, eps, weight, centred=True)


def _normed(
    mode: RescaleMode,
    call: Call,
    other: Call,
    rows: Callable[[Tensor], Tensor],
    eps: float,
    weight: Tensor | None,
    *,
    centred: bool,
) -> Any:
    x = call.argument(0, "input", None)
    if len(call.carriers) > 1 or call.carriers[0] is not x:
        raise mode.refusal(call, "its weight depends on the input")
    reference: Any = reference_of(x)
    flat = Normalised.apply(rows(wide(x)), rows(wide(reference)), eps, centred)
    graph = flat.view(x.shape)
    graph = graph if weight is None else graph * weight
    return pair(Instead.apply(graph, call.run_detached), other.run())


def batch_norm(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Linear in evaluation."""
    x = call.argument(0, "input", None)
    if len(call.carriers) > 1 or call.carriers[0] is not x:
        raise mode.refusal(call, "its statistics depend on the input")
    multiplier = batch_scale(call).expand_as(x)
    return pair(Multiplied.apply(x, call.run_detached, multiplier), other.run())


def softmax(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Softmax and log-softmax, by the logarithmic mean of both values; see the function."""
    x, dim = call.argument(0, "input", None), call.argument(1, "dim", None)
    if dim is None:
        raise mode.refusal(call, "it does not say along which axis")
    reference: Any = reference_of(x)
    dtype = call.kwargs.get("dtype") or wide(x).dtype
    sides = (x.detach(), reference)
    mean = _logarithmic_mean(*(torch.log_softmax(side.to(dtype), dim) for side in sides))
    log = call.name == "log_softmax"
    found = SoftmaxMultiplier.apply(x, call.run_detached, mean, dim, log)
    return pair(found, other.run())


def _logarithmic_mean(log_one: Tensor, log_two: Tensor) -> Tensor:
    """(a - b) / (log a - log b), without cancellation where they are near or far apart."""
    apart = (log_one - log_two).abs()
    share = torch.where(apart == 0, 1.0, -torch.expm1(-apart) / apart)
    mean = torch.maximum(log_one, log_two).exp() * share
    return torch.where(apart.isnan(), 0.0, mean)  # both are -inf: masked
