"""The rescale rule of each operator kind; multipliers times input differences sum to the output
difference.

A function of one number has the quotient of differences (Shrikumar et al. 2017, section 3.5.2). A
product of two carriers, as any quadratic form, has its gradient half way between both values:
x y - x' y' = dx (y + y')/2 + dy (x + x')/2. What is elementwise in one carrier, however it is
spelled, thereby gets the one quotient that there is.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine import operator_parts
from transexplain.engine.gradient_functions import Multiplied, writable
from transexplain.engine.layer_rules import batch_scale
from transexplain.engine.operator_call import Call, carried
from transexplain.engine.operators import operator_of
from transexplain.engine.rescale_mode import RescaleMode, pair, reference_of

Value = Callable[[], Tensor]


class Instead(Function):
    """The value of one tensor with the graph of another: values stay those of the model."""

    @staticmethod
    def forward(ctx: Any, graph: Tensor, value: Value) -> Tensor:
        """`value()`, of the shape of `graph`."""
        ctx.dtype = graph.dtype
        return writable(value())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Everything goes to `graph`."""
        return gradients[0].to(ctx.dtype), None


class Normalised(Function):
    """y = c r with c = x (minus its mean) and r = 1 / s, s = sqrt(mean(c^2) + eps), per row.

    A bar (_) being the mean of both values: dy = dc r_ + c_ dr, dr = -d(s^2) / (s s' (s + s')),
    d(s^2) = 2 mean(c_ dc). These are a product, a root and a square that each sum to their
    difference, without a quotient of small differences.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, reference: Tensor, eps: float, centred: bool) -> Tensor:
        """x and its reference (..., n), normalised over the last axis -> c_ r_ (..., n)."""
        one, other = (_centred(side) if centred else side for side in (x, reference))
        s, s_other = (side.square().mean(-1, keepdim=True).add(eps).sqrt() for side in (one, other))
        middle, rate = (one + other) / 2, (1 / s + 1 / s_other) / 2
        ctx.save_for_backward(middle, rate, 2 / (s * s_other * (s + s_other)))
        ctx.centred = centred
        return middle * rate

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Gradient times multipliers."""
        middle, rate, fall = ctx.saved_tensors
        g = gradients[0]
        out = g * rate - middle * (fall * (g * middle).mean(-1, keepdim=True))
        return (_centred(out) if ctx.centred else out), None, None, None


class SoftmaxMultiplier(Function):
    """Softmax s_i = exp(x_i - z), the exponential by the rescale rule and z by what it must be.

    With the logarithmic mean l_i = (s_i - s_i') / (log s_i - log s_i'):
    ds_i = l_i (dx_i - dz), and because the s sum to 1, dz = sum_j l_j dx_j / sum_j l_j. Both are
    exact; where x = x' this is the gradient, l being s. The log-softmax is dx_i - dz.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Value, mean: Tensor, dim: int, log: bool) -> Tensor:
        """`value()` (..., n) is the operator's own, `mean` (..., n) holds l."""
        total = mean.sum(dim, keepdim=True)
        share = torch.where(total == 0, 0, mean / total)  # a row that sees nothing
        ctx.save_for_backward(mean, share)
        ctx.rest = (dim, log, x.dtype)
        return writable(value())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Gradient times multipliers."""
        mean, share = ctx.saved_tensors
        dim, log, dtype = ctx.rest
        g = gradients[0]
        if log:
            out = g - share * g.sum(dim, keepdim=True)
        else:
            out = mean * (g - (share * g).sum(dim, keepdim=True))
        return out.to(dtype), None, None, None, None


class Winner(Function):
    """The largest (or smallest) of several: the difference goes to the winner.

    Where the item's winner lies beyond the reference's, the item's winner takes it, else the
    reference's: that one's own difference is never smaller, so no quotient is above 1.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, ends: tuple[Tensor, ...], largest: bool) -> Tensor:
        """`ends` are inputs and outputs, at the item and at the reference, with their graphs."""
        ctx.ends, ctx.largest, ctx.dtype = ends, largest, x.dtype
        return ends[2].detach().clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Gradient times multipliers; 0 where nothing changed."""
        x, x_other, y, y_other = ctx.ends
        change = (y - y_other).detach()
        given = gradients[0] * change
        own = (change > 0) == ctx.largest
        shares = (torch.where(own, given, 0), torch.where(own, 0, given))
        pulled = torch.autograd.grad((y, y_other), (x, x_other), shares, retain_graph=True)
        taken = pulled[0] + pulled[1]
        difference = (x - x_other).detach()
        out = torch.where(difference == 0, 0, taken / difference)
        return out.to(ctx.dtype), None, None


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(-1, keepdim=True)


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
    multiplied = SoftmaxMultiplier.apply(x, call.run_detached, mean, dim, log)
    return pair(multiplied, other.run())


def _logarithmic_mean(log_one: Tensor, log_two: Tensor) -> Tensor:
    """(a - b) / (log a - log b), without cancellation where they are near or far apart."""
    apart = (log_one - log_two).abs()
    share = torch.where(apart == 0, 1.0, -torch.expm1(-apart) / apart)
    mean = torch.maximum(log_one, log_two).exp() * share
    return torch.where(apart.isnan(), 0.0, mean)  # both are -inf: masked


def extremum(mode: RescaleMode, call: Call, other: Call) -> Any:
    """The largest along an axis, or the larger of two."""
    largest = "max" in call.name
    second = call.argument(1, "other", None)
    if isinstance(second, Tensor) and call.name not in ("amax", "amin"):
        return mode.again(partial(_chosen, torch.amax if largest else torch.amin), call)
    return winner(call, other, largest=largest)


def _chosen(choose: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(input.shape, other.shape)  # type: ignore[no-untyped-call]
    return choose(torch.stack([input.expand(shape), other.expand(shape)]), dim=0)


def winner(call: Call, other: Call, *, largest: bool) -> Any:
    """Winner takes the difference; see the function. Indices come along."""
    x = call.carriers[0]
    reference: Any = reference_of(x)
    with torch.enable_grad():
        # a pass of its own, whose gradients show which input won at either
        own, theirs = (side.detach().clone().requires_grad_(True) for side in (x, reference))
        out = replace(call, carriers=()).substituted({id(x): own}).run()
        at_reference = replace(call, carriers=()).substituted({id(x): theirs}).run()
    value, value_there = (
        value if isinstance(value, Tensor) else value[0] for value in (out, at_reference)
    )
    winner = Winner.apply(x, (own, theirs, value, value_there), largest)
    if isinstance(out, Tensor):
        return pair(winner, at_reference.detach())
    return pair(type(out)((winner, *out[1:])), (value_there.detach(), *at_reference[1:]))


def ordered(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Linear where the order is the same at the reference."""
    out, reference = call.run(), other.run()
    if not torch.equal(out[1], reference[1]):
        raise mode.refusal(call, "the order is another one at the reference")
    return pair(out, reference)


def linear(_: RescaleMode, call: Call, other: Call) -> Any:
    """Linear in everything that carries: the gradient is the multiplier."""
    out = call.run()
    reference = other.run()
    written = call.args[0] if out is None else out  # `x[index] = value` gives nothing
    return pair(written, other.args[0] if out is None else reference)


def structural(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Every output is one of the inputs; which one may depend on the values."""
    if "max_pool" in call.name:
        return winner(call, other, largest=True)
    if call.name in ("topk", "sort"):
        return ordered(mode, call, other)
    return linear(mode, call, other)


def mixing(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Linear in the first argument."""
    if carried(call) > 1 or not call.argument(0, "input", None).requires_grad:
        raise mode.refusal(call, "only its first argument may depend on the input")
    return linear(mode, call, other)


def dropout(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Identity in evaluation."""
    operator_parts.refuse_dropout(call.argument(2, "training", True) and call.argument(1, "p", 0.5))
    return linear(mode, call, other)


def quadratic(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Products: linear in one carrier, else the gradient half way between both values."""
    number = carried(call)
    if number <= 1:
        return linear(mode, call, other)
    if number > 2 and call.name == "einsum":
        raise mode.refusal(call, "a product of more than two carriers has no single multiplier")
    return _half_way(call, other)


def division(mode: RescaleMode, call: Call, other: Call) -> Any:
    """By a carrier: a product with its reciprocal, whose quotient is -1 / (y y')."""
    if call.kwargs.get("rounding_mode") is not None:
        raise mode.refusal(call, "it rounds")
    above, below = call.argument(0, "input", None), call.argument(1, "other", None)
    if operator_of(call.name).reflected:
        above, below = below, above
    reference = reference_of(below) if isinstance(below, Tensor) else None
    if reference is None:
        return linear(mode, call, other)
    value, two = wide(below.detach()), wide(reference)
    # the mean of both reciprocals, whose difference is -d / (y y')
    rate = Multiplied.apply(below, lambda: (1 / value + 1 / two) / 2, -1 / (value * two))
    between = _between(above) if isinstance(above, Tensor) else above
    return _with_values(between * rate, call, other)


def activation(mode: RescaleMode, call: Call, other: Call) -> Any:
    """A function of one number: (f(x) - f(x')) / (x - x'), f' half way where they are the same."""
    x = call.carriers[0]
    if carried(call) > 1:
        if call.name.startswith("cl"):  # a clamp whose bounds carry
            inner = mode.again(operator_parts.written_out(call.func, call.name), call)
            there: Any = reference_of(inner)
            return pair(call.written(inner), other.written(there))
        raise mode.refusal(call, "it has a second argument that depends on the input")
    value, reference = call.out_of_place().run_detached(), other.out_of_place().run()
    if value.shape != x.shape or x.is_complex():
        raise mode.refusal(call, "it is no function of single real numbers")
    multiplied = Multiplied.apply(x, lambda: value, _quotient(call, x, value, reference))
    return pair(call.written(multiplied), other.written(reference))


def scale(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Roots are functions of one number; variances are quadratic, norms the root of a square."""
    if call.name == "var":
        return _half_way(call, other)
    if call.name == "std":
        return mode.again(_standard_deviation, call)
    if "norm" not in call.name:
        return activation(mode, call, other)
    if call.argument(1, "p" if call.name == "norm" else "ord", 2) not in (2, 2.0, "fro", None):
        raise mode.refusal(call, "only the norm of order 2 has a multiplier")
    return mode.again(_norm, call)


def logsumexp(_: RescaleMode, call: Call, other: Call) -> Any:
    """dz = sum_j l_j dx_j / sum_j l_j with the logarithmic mean l, as in the softmax."""
    x, dim = call.argument(0, "input", None), call.argument(1, "dim", None)
    keepdim = call.argument(2, "keepdim", False)
    reference: Any = reference_of(x)
    sides = (wide(x.detach()), wide(reference))
    # the softmax over several axes at once
    mean = _logarithmic_mean(*(side - side.logsumexp(dim, keepdim=True) for side in sides))
    total = mean.sum(dim, keepdim=True)
    share = torch.where(total == 0, 0, mean / total)
    return _with_values((x * share).sum(dim, keepdim=keepdim), call, other)


def triangular(mode: RescaleMode, call: Call, other: Call) -> Any:
    """A X = B at the item and at the reference: A_ dX + dA X_ = dB, a bar (_) being the mean."""
    a, b = call.argument(0, "A", None), call.argument(1, "B", None)
    if not a.requires_grad:
        return linear(mode, call, other)
    solution = (call.run_detached() + other.run()) / 2
    settings = {key: value for key, value in call.kwargs.items() if key not in ("A", "B")}
    between = _between(a)
    read = between.triu() if settings["upper"] else between.tril()
    if settings.get("unitriangular", False):  # the diagonal is not read
        read = read - torch.diag_embed(read.diagonal(dim1=-2, dim2=-1))
    moved = read @ solution if settings.get("left", True) else solution @ read
    # its gradients by A and by B are the multipliers; its value is none of X
    graph = torch.linalg.solve_triangular(between.detach(), _between(b) - moved, **settings)
    return _with_values(graph, call, other)


def attention(mode: RescaleMode, call: Call, other: Call) -> Any:
    """Fused attention from inside: two products and a softmax."""
    del other
    operator_parts.refuse_dropout(call.argument(4, "dropout_p", 0.0))
    return mode.again(operator_parts.attention, call)


def composite(mode: RescaleMode, call: Call, other: Call) -> Any:
    """A function made of others: the mode sees it from inside."""
    if call.name == "prelu" and carried(call) == 1:
        return activation(mode, call, other)
    return mode.again(operator_parts.written_out(call.func, call.name), call)


def _between(tensor: Tensor) -> Tensor:
    """Half way to the reference, with the gradient of the tensor itself."""
    reference = reference_of(tensor)
    return tensor if reference is None else tensor - (tensor.detach() - reference) / 2


def _half_way(call: Call, other: Call) -> Any:
    """The operator's values, with its gradient half way between them."""
    middles = {id(carrier): _between(carrier) for carrier in call.carriers}
    return _with_values(call.out_of_place().substituted(middles).run(), call, other)


def _with_values(graph: Tensor, call: Call, other: Call) -> Any:
    """The operator's own values in the place of `graph`'s."""
    output = Instead.apply(graph, call.out_of_place().run_detached)
    return pair(call.written(output), other.written(other.out_of_place().run()))


def _quotient(call: Call, x: Tensor, value: Tensor, reference: Tensor) -> Tensor:
    one, two = wide(x.detach()), wide(reference_of(x))  # type: ignore[arg-type]
    above, below = wide(value) - wide(reference), one - two
    same = _same(one, two, x.dtype) | (
        (below.abs() <= math.sqrt(torch.finfo(x.dtype).eps)) & _same(value, reference, x.dtype, 8.0)
    )
    out = above / below
    if bool(same.any()):
        with torch.enable_grad():
            # where both inputs agree the quotient is 0 / 0, and its limit is the slope
            middle = torch.where(same, (one + two) / 2, one).to(x.dtype).requires_grad_(True)
            at_middle = replace(call, carriers=()).substituted({id(x): middle}).out_of_place().run()
            slope = torch.autograd.grad(at_middle.sum(), middle)[0]
        out = torch.where(same, wide(slope).nan_to_num(0.0, 0.0, 0.0), out)
    return out


def _same(
    left: Tensor, right: Tensor, dtype: torch.dtype, roundings: float | None = None
) -> Tensor:
    """Return where two values are so near, for their size, that a quotient of differences is noise.

    Closer than `roundings`, by default than the root of the rounding error: there the slope half
    way is as exact as the quotient. By their size, because a root under a norm lives far below 1.
    """
    eps = torch.finfo(dtype).eps
    share = math.sqrt(eps) if roundings is None else roundings * eps
    bound = share * torch.maximum(left.abs(), right.abs())
    return ((left - right).abs() <= bound) | (left == right)  # 0: both are -inf


def _standard_deviation(*args: Any, **kwargs: Any) -> Tensor:
    return torch.sqrt(torch.var(*args, **kwargs))


def _norm(input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, **rest: Any) -> Tensor:
    del p
    squares = input.to(rest.get("dtype") or input.dtype).square()
    total = squares.sum() if dim is None else squares.sum(dim, keepdim=keepdim)
    return torch.sqrt(total)
