"""Operators that move, join, fill or copy values, and those that only wrap other operators."""

from typing import Any

import torch
from torch import Tensor

from transexplain.engine import in_parts
from transexplain.engine.call import Call
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.tensor_record import forget_function, inherit_marks, mark_seen
from transexplain.errors import EngineError


def structural(mode: RelevanceMode, call: Call) -> Any:
    """Reshapes, slices, casts, maxima: every output is one of the inputs."""
    out = call.run()
    if len(call.carriers) == 1:
        inherit_marks(call.carriers[0], out)
        mode.follow_twin(call, out)
    return out


def mixing(mode: RelevanceMode, call: Call) -> Any:
    """Averages, interpolation, Fourier transforms: linear in their first argument."""
    check_linear(mode, call)
    return call.run()


def check_linear(mode: RelevanceMode, call: Call) -> None:
    """Raise EngineError where an operator mixes in what is not its first argument."""
    if not mode.carries(call.argument(0, "input", None)):
        raise mode.refusal(call, "only its first argument may depend on the input")
    if call.kwargs.get("prepend") is not None or call.kwargs.get("append") is not None:
        raise mode.refusal(call, "it puts further values in")


def extremum(mode: RelevanceMode, call: Call) -> Any:
    """The largest along an axis, or the larger of two: winner takes all."""
    other = call.argument(1, "other", None)
    if not isinstance(other, Tensor) or call.name in ("amax", "amin"):
        return structural(mode, call)
    return mode.again(in_parts.larger if "max" in call.name else in_parts.smaller, call)


def dropout(mode: RelevanceMode, call: Call) -> Any:
    """Identity in evaluation."""
    if call.argument(2, "training", True) and call.argument(1, "p", 0.5):
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")
    return structural(mode, call)


def concat(mode: RelevanceMode, call: Call) -> Any:
    """Joined constants (class tokens, registers) are booked."""
    out = call.run()
    pieces = call.argument(0, "tensors", ())
    dim = int(call.argument(1, "dim", call.kwargs.get("axis", 0)))
    offset = 0
    for index, piece in enumerate(pieces):
        if piece.shape == (0,):  # what torch lets pass for an empty piece of any shape
            continue
        width = 1 if call.name == "stack" else piece.shape[dim]
        if not mode.carries(piece):
            constant = piece.unsqueeze(dim) if call.name == "stack" else piece
            start = index if call.name == "stack" else offset
            mode.books.constant(out, constant, "concat", window=(dim, start, width))
        offset += width
    return out


def fill(mode: RelevanceMode, call: Call) -> Any:
    """Masked fill and where: what is filled in is booked."""
    out = call.run()
    if call.name == "where":
        condition, chosen = call.argument(0, "condition", None), call.argument(1, "input", None)
        if call.func is torch.Tensor.where:
            condition, chosen = chosen, condition
        other = call.argument(2, "other", None)
        for operand, mask in ((chosen, condition), (other, ~condition)):
            if not mode.carries(operand):
                mode.books.constant(out, operand, "fill", where=mask)
        return out
    mask, value = call.argument(1, "mask", None), call.argument(2, "value", 0.0)
    mode.books.constant(out, value, "fill", where=mask)
    return out


def assignment(mode: RelevanceMode, call: Call) -> Any:
    """`x[index] = value`: what stays of x, or the value, is booked if constant."""
    x, index, value = call.args
    base = None if mode.carries(x) else x.detach().clone()
    call.run()
    forget_function(x)
    kept = torch.ones_like(x, dtype=torch.bool)
    kept[index] = False
    if base is not None:
        mode.books.constant(x, base, "fill", where=kept)
    if not mode.carries(value):
        mode.books.constant(x, x.detach().clone(), "fill", where=~kept)
    mark_seen([x])


def scatter(mode: RelevanceMode, call: Call) -> Any:
    """Sums into chosen places: linear; what they start from is booked if constant."""
    x = call.argument(0, "input", None)
    source = call.argument(3, "source" if "index" in call.name else "src", None)
    base = None if mode.carries(x) else x.detach().clone()
    added = None if mode.carries(source) else call.substituted({id(x): torch.zeros_like(x)}).run()
    out = call.run()
    mode.books.constant(out, base, "sum")
    mode.books.constant(out, added, "sum")
    return out


def pad(mode: RelevanceMode, call: Call) -> Any:
    """Padding by copies, or with a constant, which is booked."""
    x, value = call.argument(0, "input", None), call.argument(3, "value", None)
    out = structural(mode, call)
    if call.argument(2, "mode", "constant") == "constant":
        kept = torch.nn.functional.pad(
            torch.ones_like(x, dtype=torch.bool), call.argument(1, "pad", ())
        )
        mode.books.constant(out, value or 0.0, "fill", where=~kept)
        mode.books.lost_twin(mode.peek_twin(out), ~kept)
    return out


def overwrite(_: RelevanceMode, call: Call) -> Any:
    """`x.copy_(source)`: x is the source now, cast and broadcast."""
    out = call.run()
    forget_function(out)
    return out


def composite(mode: RelevanceMode, call: Call) -> Any:
    """A function made of others: the mode sees it from inside."""
    return mode.again(in_parts.written_out(call.func, call.name), call)
