"""Operators that move, join, fill or copy values, and those that only wrap other operators."""

from typing import TYPE_CHECKING, Any

import torch

from transexplain.engine import opened
from transexplain.engine.call import Call
from transexplain.engine.provenance import inherit_marks, untag
from transexplain.errors import EngineError

if TYPE_CHECKING:
    from transexplain.engine.mode import RelevanceMode


def structural(mode: "RelevanceMode", call: Call) -> Any:
    """Reshapes, slices, casts, maxima: every output is one of the inputs."""
    out = call.run()
    if len(call.carriers) == 1:
        inherit_marks(call.carriers[0], out)
        mode.follow_twin(call, out)
    return out


def mixing(_: "RelevanceMode", call: Call) -> Any:
    """Averages, interpolation, Fourier transforms: linear and without constants."""
    return call.run()


def dropout(mode: "RelevanceMode", call: Call) -> Any:
    """Identity in evaluation."""
    if call.argument(2, "training", True) and call.argument(1, "p", 0.5):
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")
    return structural(mode, call)


def concat(mode: "RelevanceMode", call: Call) -> Any:
    """Joined constants (class tokens, registers) are leaves."""
    out = call.run()
    pieces = call.argument(0, "tensors", ())
    dim = int(call.argument(1, "dim", 0))
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


def fill(mode: "RelevanceMode", call: Call) -> Any:
    """Masked fill and where: what is filled in is a leaf."""
    out = call.run()
    if call.name == "where":
        condition, chosen, other = call.args[:3]
        for operand, mask in ((chosen, condition), (other, ~condition)):
            if not mode.carries(operand):
                mode.books.constant(out, operand, "fill", where=mask)
        return out
    mask, value = call.argument(1, "mask", None), call.argument(2, "value", 0.0)
    mode.books.constant(out, value, "fill", where=mask)
    return out


def assignment(mode: "RelevanceMode", call: Call) -> Any:
    """`x[index] = value`: what stays of x, or the value, may be a constant, and is a leaf then."""
    x, index, value = call.args
    base = None if mode.carries(x) else x.detach().clone()
    call.run()
    untag(x)
    kept = torch.ones_like(x, dtype=torch.bool)
    kept[index] = False
    if base is not None:
        mode.books.constant(x, base, "fill", where=kept)
    if not mode.carries(value):
        mode.books.constant(x, x.detach().clone(), "fill", where=~kept)


def scatter(mode: "RelevanceMode", call: Call) -> Any:
    """Sums into chosen places: linear; what they start from may be a constant, and is a leaf."""
    x = call.argument(0, "input", None)
    base = None if mode.carries(x) else x.detach().clone()
    out = call.run()
    mode.books.constant(out, base, "sum")
    return out


def pad(mode: "RelevanceMode", call: Call) -> Any:
    """Padding with zeros, or by copies, is linear."""
    constant = call.argument(2, "mode", "constant") == "constant"
    if constant and call.argument(3, "value", 0.0) not in (None, 0, 0.0):
        raise mode.refusal(call, "it pads with a value that is not 0")
    return structural(mode, call)


def composite(mode: "RelevanceMode", call: Call) -> Any:
    """A function made of others: the mode sees it from inside."""
    return mode.again(opened.body(call.func, call.name), call)
