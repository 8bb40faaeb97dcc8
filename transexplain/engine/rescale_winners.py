"""Maxima and orders under the rescale rule."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.paired import pair, reference_of
from transexplain.engine.rescale import RescaleMode
from transexplain.engine.rescale_functions import Winner


def extremum(mode: RescaleMode, call: Call, other: Call) -> Any:
    """The largest along an axis, or the larger of two."""
    largest = "max" in call.name
    second = call.argument(1, "other", None)
    if isinstance(second, Tensor) and call.name not in ("amax", "amin"):
        return mode.again(_larger if largest else _smaller, call)
    return winner(call, other, largest=largest)


def _larger(input: Tensor, other: Tensor) -> Tensor:
    return _side_by_side(input, other).amax(dim=0)


def _smaller(input: Tensor, other: Tensor) -> Tensor:
    return _side_by_side(input, other).amin(dim=0)


def _side_by_side(input: Tensor, other: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(input.shape, other.shape)  # type: ignore[no-untyped-call]
    return torch.stack([input.expand(shape), other.expand(shape)])


def winner(call: Call, other: Call, *, largest: bool) -> Any:
    """Winner takes the difference; see the function. Indices come along."""
    x = call.carriers[0]
    reference: Any = reference_of(x)
    with torch.enable_grad():
        own, theirs = (side.detach().clone().requires_grad_(True) for side in (x, reference))
        out = replace(call, carriers=()).substituted({id(x): own}).run()
        at_reference = replace(call, carriers=()).substituted({id(x): theirs}).run()
    value, value_there = (
        found if isinstance(found, Tensor) else found[0] for found in (out, at_reference)
    )
    found = Winner.apply(x, (own, theirs, value, value_there), largest)
    if isinstance(out, Tensor):
        return pair(found, at_reference.detach())
    return pair(type(out)((found, *out[1:])), (value_there.detach(), *at_reference[1:]))


def ordered(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Linear where the order is the same at the reference."""
    out, reference = call.run(), other.run()
    if not torch.equal(out[1], reference[1]):
        raise mode.refusal(call, "the order is another one at the reference")
    return pair(out, reference)
