"""The rule of each operator kind, in gradient form.

A rule takes the mode and the call, computes the operator's own value, and arranges its backward:
either by detaching what the composite holds constant, or by an autograd function. Constants are
booked as leaves, and what a plain gradient makes or loses at a non-linear operator is measured
there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transexplain.engine.call import Call
from transexplain.engine.elementwise import (
    activation,
    add,
    division,
    matmul,
    negation,
    product,
    reduction,
    scale,
)
from transexplain.engine.functions import ConstantScaleLayerNorm, ConstantScaleRmsNorm
from transexplain.errors import EngineError

if TYPE_CHECKING:
    from transexplain.engine.mode import RelevanceMode

Rule = Callable[["RelevanceMode", Call], Any]


def structural(_: "RelevanceMode", call: Call) -> Any:
    """Reshapes, slices, sums, casts: linear and without constants."""
    return call.run()


def dropout(_: "RelevanceMode", call: Call) -> Any:
    """Identity in evaluation."""
    if call.argument(2, "training", False):
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")
    return call.run()


def concat(mode: "RelevanceMode", call: Call) -> Any:
    """Joined constants (class tokens, registers) are leaves."""
    out = call.run()
    pieces = call.argument(0, "tensors", ())
    dim = int(call.argument(1, "dim", 0))
    offset = 0
    for index, piece in enumerate(pieces):
        width = 1 if call.name == "stack" else piece.shape[dim]
        if not mode.carries(piece):
            constant = piece.unsqueeze(dim) if call.name == "stack" else piece
            start = index if call.name == "stack" else offset
            mode.book_constant(out, constant, "concat", window=(dim, start, width))
        offset += width
    return out


def fill(mode: "RelevanceMode", call: Call) -> Any:
    """Masked fill and where: what is filled in is a leaf."""
    out = call.run()
    if call.name == "where":
        condition, chosen, other = call.args[:3]
        for operand, mask in ((chosen, condition), (other, ~condition)):
            if not mode.carries(operand):
                mode.book_constant(out, operand, "fill", where=mask)
        return out
    mask, value = call.argument(1, "mask", None), call.argument(2, "value", 0.0)
    mode.book_constant(out, value, "fill", where=mask)
    return out


def pad(mode: "RelevanceMode", call: Call) -> Any:
    """Padding with zeros, or by copies, is linear."""
    constant = call.argument(2, "mode", "constant") == "constant"
    if constant and call.argument(3, "value", 0.0) not in (None, 0, 0.0):
        raise mode.refusal(call, "it pads with a value that is not 0")
    return call.run()


def linear(mode: "RelevanceMode", call: Call) -> Any:
    """LRP-0: relevance by contribution w x; the bias is a leaf."""
    if mode.carries(call.argument(1, "weight", None)):
        raise mode.refusal(call, "its weight depends on the input")
    out = call.run()
    mode.book_constant(out, call.argument(2, "bias", None), "linear")
    return out


def addmm(mode: "RelevanceMode", call: Call) -> Any:
    """`addmm(bias, x, w)`: the linear layer of GPT-style code."""
    bias, x, weight = call.args[:3]
    if mode.carries(bias) or mode.carries(weight) or not mode.carries(x):
        raise mode.refusal(call, "only addmm(bias, x, weight) with x from the input has a rule")
    out = call.run()
    mode.book_constant(out, bias, "linear", scale=float(call.kwargs.get("beta", 1)))
    return out


def convolution(mode: "RelevanceMode", call: Call) -> Any:
    """LRP-0 over a receptive field; the bias is a leaf."""
    if mode.carries(call.argument(1, "weight", None)):
        raise mode.refusal(call, "its weight depends on the input")
    out = call.run()
    bias = call.argument(2, "bias", None)
    if bias is not None:
        spatial = int(call.name[4])
        mode.book_constant(out, bias.view(-1, *[1] * spatial), "convolution")
    return out


def softmax(mode: "RelevanceMode", call: Call) -> Any:
    """AH-rule (Ali et al. 2022): attention weights are constants."""
    if mode.composite.attention == "gradient":
        return mode.measured("softmax", call)
    return call.run_detached()


def attention(mode: "RelevanceMode", call: Call) -> Any:
    """Fused attention: the AH rule needs no gradient of queries and keys."""
    if call.argument(4, "dropout_p", 0.0):
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")
    if mode.composite.attention == "gradient":
        return mode.measured("attention", call)
    return call.run_detached(but=(2, "value"))


def layer_norm(mode: "RelevanceMode", call: Call) -> Any:
    """LN rule: the scale 1/std is a constant, the shift a leaf."""
    x = call.argument(0, "input", None)
    shape = list(call.argument(1, "normalized_shape", ()))
    weight, bias = call.argument(2, "weight", None), call.argument(3, "bias", None)
    if mode.composite.norm == "gradient":
        return mode.measured("norm", call, constant=bias)
    out = ConstantScaleLayerNorm.apply(x, shape, weight, bias, call.argument(4, "eps", 1e-5))
    mode.book_constant(out, bias, "norm")
    return out


def rms_norm(mode: "RelevanceMode", call: Call) -> Any:
    """LN rule of a norm without mean and shift."""
    if mode.composite.norm == "gradient":
        return mode.measured("norm", call)
    shape = list(call.argument(1, "normalized_shape", ()))
    x, weight = call.argument(0, "input", None), call.argument(2, "weight", None)
    return ConstantScaleRmsNorm.apply(x, shape, weight, call.argument(3, "eps", None))


RULES: dict[str, Rule] = {
    "structural": structural,
    "dropout": dropout,
    "concat": concat,
    "sum": add,
    "negation": negation,
    "product": product,
    "matmul": matmul,
    "reduction": reduction,
    "scale": scale,
    "division": division,
    "fill": fill,
    "pad": pad,
    "linear": linear,
    "addmm": addmm,
    "convolution": convolution,
    "activation": activation,
    "softmax": softmax,
    "attention": attention,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
}
