"""Rules of the gradient form for operators without weights: shapes, joins, functions, sums,
products, scales.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transexplain.engine import operator_parts
from transexplain.engine.gradient_functions import IdentityRule, ScaledGradient, Substitution
from transexplain.engine.ledger import Booking
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call, carried
from transexplain.engine.operators import operator_of
from transexplain.engine.tensor_record import (
    Function,
    SoftmaxOf,
    forget_function,
    function_of,
    inherit_marks,
    is_gate,
    is_reduced,
    mark_function,
    mark_gate,
    mark_reduced,
    mark_seen,
    record,
    recorded,
)
from transexplain.engine.traced import shapes_are_fixed


def logsumexp(mode: RelevanceMode, call: Call) -> Any:
    """Gradient x input, R_i = s_i x_i R / z with s = softmax(x); the rest is booked.

    logsumexp(x) = sum_i s_i x_i + H(s): the entropy H is what the gradient leaves out, exactly as
    for a log-softmax, which is x - logsumexp(x).
    """
    out = mode.books.measured("softmax", call)
    note_logsumexp(call, out)
    return out


def shared(_: RelevanceMode, call: Call) -> Any:
    """Relevance form: R_i = s_i R, the gradient itself, whose shares s = softmax(x) sum to 1.

    Max-take-most, the soft form of winner-takes-all (Kauffmann et al. 2020, Towards explaining
    anomalies: a deep Taylor decomposition of one-class models).
    """
    out = call.run()
    note_logsumexp(call, out)
    return out


def note_logsumexp(call: Call, out: Tensor) -> None:
    """Remember of which tensor `out` is the logsumexp, in case a softmax is being written out."""
    x, dims = call.argument(0, "input", None), call.argument(1, "dim", None)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if len(dims) == 1 and out.dim() == x.dim():
        record(out).summed_exp = SoftmaxOf(x, int(dims[0]), (x._version, out._version))


def note_difference(call: Call, out: Tensor) -> None:
    """Remember that x - logsumexp(x) is the log-softmax of x."""
    x, other = call.argument(0, "input", None), call.argument(1, "other", None)
    if not isinstance(other, Tensor) or call.in_place or "sub" not in call.name:
        return
    known = recorded(other).summed_exp
    plain = not operator_of(call.name).reflected and call.kwargs.get("alpha", 1) == 1
    if known is not None and plain and known.tensor is x and known.holds(other):
        record(out).log_softmax = SoftmaxOf(x, known.dim, (x._version, out._version))


def structural(mode: RelevanceMode, call: Call) -> Any:
    """Reshapes, slices, casts, maxima: every output is one of the inputs."""
    out = call.run()
    if len(call.carriers) == 1:
        inherit_marks(call.carriers[0], out)
        mode.follow_sink(call, out)
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
    return mode.again(operator_parts.larger if "max" in call.name else operator_parts.smaller, call)


def dropout(mode: RelevanceMode, call: Call) -> Any:
    """Identity in evaluation."""
    operator_parts.refuse_dropout(call.argument(2, "training", True) and call.argument(1, "p", 0.5))
    return structural(mode, call)


def concat(mode: RelevanceMode, call: Call) -> Any:
    """Joined constants (class tokens, registers) are booked."""
    out = call.run()
    pieces = call.argument(0, "tensors", ())
    dim = int(call.argument(1, "dim", call.kwargs.get("axis", 0)))
    offset = 0
    for index, piece in enumerate(pieces):
        if piece.shape == (0,):  # torch accepts an empty piece of any shape
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
        # as a method of the chosen tensor the condition comes second
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
    # a mask written through the same index, whatever form that index has
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
        mode.books.lost_sink(recorded(out).sink, ~kept)
    return out


def overwrite(_: RelevanceMode, call: Call) -> Any:
    """`x.copy_(source)`: x is the source now, cast and broadcast."""
    out = call.run()
    forget_function(out)
    return out


def composite(mode: RelevanceMode, call: Call) -> Any:
    """A function made of others: the mode sees it from inside."""
    return mode.again(operator_parts.written_out(call.func, call.name), call)


def activation(mode: RelevanceMode, call: Call) -> Any:
    """Identity rule with f(0) booked, or the measured plain gradient; a scale is constant."""
    whole = of_several_numbers(mode, call)
    if whole is not None:
        return whole
    if is_scale(call):
        if mode.composite.norm == "gradient":
            return mark_reduced(mode.books.measured("norm", call))
        return call.run_detached()
    x, function = call.argument(0, "input", None), call.elementwise()
    composed = function_of(x).then(function, gate=operator_of(call.name).gate)
    if mode.composite.activation == "gradient":
        # f(0) of this operator alone: under plain gradients each operator stands for itself
        alone = function_of(x.detach()).then(function)
        at_zero = alone.at_zero() if alone.finite else 0.0
        of_x = replace(call, func=function, args=(x,), kwargs={})
        out = mode.books.measured("activation", of_x, at_zero=at_zero)
        return x.copy_(out) if call.in_place else out
    if not composed.finite:
        raise mode.refusal(call, "it is not finite at 0")
    out = one_function(mode, composed, lambda: function(x.detach()))
    return mark_function(x.copy_(out), composed) if call.in_place else out


def of_several_numbers(mode: RelevanceMode, call: Call) -> Any:
    """By its own rule what looks elementwise and is not; None for a function of one number.

    exp(x - logsumexp(x)) is a softmax; a clamp whose bounds carry is the larger, then the smaller
    of two. Raises EngineError for any other second argument that carries.
    """
    if call.name == "exp":
        known = recorded(call.carriers[0]).log_softmax
        if known is not None and known.holds(call.carriers[0]):
            with mode:
                return torch.softmax(known.tensor, known.dim)
    rest = (*call.args[1:], *(value for key, value in call.kwargs.items() if key != "input"))
    if not any(map(mode.carries, rest)):
        return None
    if not call.name.startswith(("clamp", "clip")):
        raise mode.refusal(call, "it has a second argument that depends on the input")
    out = call.written(mode.again(operator_parts.written_out(call.func, call.name), call))
    if call.in_place:
        forget_function(out)
    return out


def one_function(mode: RelevanceMode, function: Function, compute: Callable[[], Tensor]) -> Tensor:
    """`compute()` = f(root) in the graph as one operator on its root, f(0) booked."""
    at_zero, slope = function.at_zero(), function.slope_at_zero()
    out: Tensor = IdentityRule.apply(function.root, compute, at_zero, slope)
    if isinstance(at_zero, Tensor) or at_zero:
        # masked scores hold -inf, for which f(0) is meaningless
        masked = function.root.detach().isinf()
        if shapes_are_fixed() or bool(masked.any()):  # exp(-inf): there is no input, only the value
            at_zero = torch.where(masked, out.detach(), torch.as_tensor(at_zero).to(out))
        mode.books.constant(out, at_zero, "activation")
    return mark_function(out, function)


def add(mode: RelevanceMode, call: Call) -> Any:
    """Sums pass relevance by value; an added constant is booked."""
    total = sum_of(mode, call)
    out = call.run()
    sides = (call.argument(0, "input", None), call.argument(1, "other", None))
    for operand, sign in zip(sides, signs(call), strict=True):
        if not mode.carries(operand):
            out = hidden_by(operand, out)
            mode.books.constant(out, operand, "sum", scale=sign)
    note_difference(call, out)
    return mark_function(out, total)


def hidden_by(mask: Any, scores: Tensor) -> Tensor:
    """`scores` cut off where an added mask of the type's lowest number swallows them."""
    if not isinstance(mask, Tensor) or mask.dim() < 3 or not mask.is_floating_point():
        return scores
    swallowed = mask < torch.finfo(mask.dtype).min / 2
    if not shapes_are_fixed() and not bool(swallowed.any()):
        return scores
    return torch.where(swallowed, scores.detach(), scores)


def signs(call: Call) -> tuple[float, float]:
    """The factors of both operands of a sum or difference."""
    factor = float(call.kwargs.get("alpha", 1))
    if operator_of(call.name).reflected:
        return -factor, 1.0
    return 1.0, -factor if "sub" in call.name else factor


def sum_of(mode: RelevanceMode, call: Call) -> Function | None:
    """A sum as one function of one carrier; None where it is of two."""
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    of_left, of_right = signs(call)
    return _combined(mode, left, right, lambda a, b: of_left * a + of_right * b)


def negation(_: RelevanceMode, call: Call) -> Any:
    """Linear: the gradient is the rule."""
    composed = function_of(call.argument(0, "input", None)).then(torch.neg)
    return mark_function(call.run(), composed)


def product(mode: RelevanceMode, call: Call) -> Any:
    """A constant factor is a scale; functions of one carrier are one function; a gate is constant;
    what remains is a product of two signals: half to each, or the measured plain gradient.
    """
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    product = product_of(mode, call)
    gates = [factor for factor in (left, right) if is_gate(factor)]
    if not (mode.carries(left) and mode.carries(right)):
        out = mark_function(call.run(), product)
        return mark_gate(out) if gates else out
    if call.in_place:
        return _written_back(mode, call, left, right)
    if mode.composite.product == "gradient":
        return mode.books.measured("product", call)
    if product is not None:
        return one_function(mode, product, call.run_detached)
    if len(gates) == 1:
        return mark_function(call.substituted({id(gates[0]): gates[0].detach()}).run(), None)
    return mark_function(halved(call), None)


def product_of(mode: RelevanceMode, call: Call) -> Function | None:
    """A product as one function of one carrier; None where it is of two."""
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    return _combined(mode, left, right, lambda a, b: a * b)


def _written_back(mode: RelevanceMode, call: Call, left: Tensor, right: Tensor) -> Tensor:
    """`left *= right` as a product of copies, because autograd keeps the factors."""
    copy = mark_function(left.clone(), function_of(left))
    factors = (copy, copy if right is left else right)
    out = product(mode, replace(call, func=torch.mul, name="mul", args=factors, carriers=factors))
    return mark_function(left.copy_(out), function_of(out))


def matmul(mode: RelevanceMode, call: Call) -> Any:
    """A constant factor: linear. Two carriers: half to each, or the measured plain gradient."""
    # x @ x.T has a single carrier, but is quadratic in it
    if len(call.carriers) == 1 and carried(call) == 1:
        return call.run()
    if mode.composite.product == "gradient":
        return mode.books.measured("product", call)
    return halved(call)


def halved(call: Call) -> Any:
    """A product of two signals with half of the relevance to each."""
    return call.substituted({id(c): ScaledGradient.apply(c, 0.5) for c in call.carriers}).run()


def division(mode: RelevanceMode, call: Call) -> Any:
    """Division by a constant is a scale; functions of one carrier are one function."""
    above, below, quotient = quotient_of(mode, call)
    if not mode.carries(below):
        return mark_function(call.run(), quotient)
    if mode.composite.activation == "gradient":
        return mode.books.measured("product", call)
    if is_normaliser(above, below):
        return call.substituted({id(below): below.detach()}).run()
    if quotient is None or not quotient.finite or call.in_place:
        raise mode.refusal(call, "the denominator carries relevance")
    return one_function(mode, quotient, call.run_detached)


def is_normaliser(above: Any, below: Tensor) -> bool:
    """Return whether a denominator is a scale: made of a reduction, or one for many numerators."""
    return is_reduced(below) or (isinstance(above, Tensor) and below.numel() < above.numel())


def quotient_of(mode: RelevanceMode, call: Call) -> tuple[Any, Any, Function | None]:
    """Numerator, denominator, and the quotient as one function of one carrier if it is one."""
    if call.kwargs.get("rounding_mode") is not None:
        raise mode.refusal(call, "it rounds")
    above, below = call.argument(0, "input", None), call.argument(1, "other", None)
    if operator_of(call.name).reflected:
        above, below = below, above
    return above, below, _combined(mode, above, below, lambda a, b: a / b)


def reduction(_: RelevanceMode, call: Call) -> Any:
    """Sums and means over axes: linear; what scales are made of."""
    return mark_reduced(call.run(), call.carriers[0])


def is_scale(call: Call) -> bool:
    """Return whether a call makes a scale: a norm, or a root of a reduction."""
    operator = operator_of(call.name)
    if operator.norm:
        return True
    # roots and reciprocals make scales; any other power is a function of its base
    if operator.power and call.argument(1, "exponent", None) not in (-0.5, 0.5, -1):
        return False
    root = operator.power or operator.kind == "scale"
    return root and is_reduced(call.argument(0, "input", None))


def _combined(
    mode: RelevanceMode, left: Any, right: Any, join: Callable[[Any, Any], Any]
) -> Function | None:
    """Return what two operands make as one function of one carrier; None where they are of two."""
    if mode.carries(left) and mode.carries(right):
        first, second = function_of(left), function_of(right)
        return first.joined(second, join) if first.root is second.root else None
    if mode.carries(left):
        return function_of(left).with_constant(right, join)
    return function_of(right).with_constant(left, lambda a, b: join(b, a))


def placed(mode: RelevanceMode, call: Call) -> Any:
    """`x.scatter(dim, index, values)`: what stays of x, and the values, are booked if constant."""
    if call.argument(4, "reduce", None) is not None:
        raise mode.refusal(call, "it combines what it puts in with what was there")
    x, dim, index = (call.argument(i, n, None) for i, n in enumerate(("input", "dim", "index")))
    values = call.argument(3, "src", call.kwargs.get("value"))
    base = None if mode.carries(x) else x.detach().clone()
    out = call.run()
    forget_function(out)
    kept = torch.ones_like(x, dtype=torch.bool).scatter_(dim, index, False)
    mode.books.constant(out, base, "fill", where=kept)
    if not mode.carries(values):
        mode.books.constant(out, out.detach().clone(), "fill", where=~kept)
    return out


def masked_scatter(mode: RelevanceMode, call: Call) -> Any:
    """Places take another tensor's values in order; what stays or comes is booked if constant."""
    x, mask, source = call.argument(0, "input", None), *call.args[1:3]
    stays = None if mode.carries(x) else x.detach()
    comes = None if mode.carries(source) else torch.zeros_like(x).masked_scatter(mask, source)
    out = call.run()
    taken = mask.expand_as(out)
    mode.books.constant(out, stays, "fill", where=~taken)
    mode.books.constant(out, comes, "fill", where=taken)
    return out


def triangular(mode: RelevanceMode, call: Call) -> Any:
    """Half to each factor of every product of the substitution, or the measured plain gradient."""
    a = call.argument(0, "A", None)
    if not mode.carries(a):
        return call.run()
    if mode.composite.product == "gradient":
        return mode.books.measured("product", call)
    to = mode.books.at("product", None)
    out = solved(mode, call, to)
    to.locate(out)
    return out


def solved(mode: RelevanceMode, call: Call, to: Booking | None) -> Tensor:
    """The substitution with half of the relevance to each factor of its products."""
    a, b = call.argument(0, "A", None), call.argument(1, "B", None)
    settings = {key: value for key, value in call.kwargs.items() if key not in ("A", "B")}
    out: Tensor = Substitution.apply(a, b, settings, 0.5 if mode.carries(a) else 1.0, to)
    return out
