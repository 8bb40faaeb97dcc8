"""The rules of Chefer et al. 2021: the backward pass carries relevance itself, per sample.

Structural operators route relevance by their own gradient. Norms, activations, scales and the
softmax pass it on whole; linear operators share it by z+; sums by value, rescaled; products give
half to each factor. Any other linear operator is put between two converters (R = z g above,
g = R / z below), where its gradient is LRP-0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine import layer_rules, rules
from transexplain.engine.composites import ChefersRules, LinearRule
from transexplain.engine.gradient_functions import AtInputLayer
from transexplain.engine.item_axis import per_item, spread
from transexplain.engine.ledger import Booking, Converted
from transexplain.engine.linear_functions import LinearMap, SharesOfOutput, nonzero_part
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call
from transexplain.engine.operators import KIND, operator_of
from transexplain.engine.tensor_record import (
    forget_function,
    function_of,
    is_gate,
    is_reduced_from,
    mark_function,
    mark_reduced,
)
from transexplain.engine.traced import shapes_are_fixed

_AUTHORS = 1e-9


def quotient(above: Tensor, below: Tensor, rules: ChefersRules) -> Tensor:
    """above / below, 0 where `below` is 0; the authors add 1e-9 to it whatever its sign."""
    if rules.authors:
        shifted = below + _AUTHORS
        below, zero = torch.where(shifted == 0, _AUTHORS, shifted), below == 0
    else:
        zero = below == 0
        looks = below.device.type == "cpu" and not shapes_are_fixed()
        if looks and not zero.any():  # a check is cheaper than a selection
            return above / below
    return torch.where(zero, 0, above / below)


def _by_part(join: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Real and imaginary parts apart: they are values of their own, as in a gradient."""
    if not (a.is_complex() or b.is_complex()):
        return join(a, b)
    if not b.is_complex():
        return join(a.real, b)
    if not a.is_complex():
        return join(a, b.real)
    return torch.complex(join(a.real, b.real), join(a.imag, b.imag))


def _parts_summed(relevance: Tensor) -> Tensor:
    return relevance.real + relevance.imag if relevance.is_complex() else relevance


class PassOn(Function):
    """All relevance that arrives at f(x) leaves at x: norms, activations, softmax, scales."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[], Tensor]) -> Tensor:
        """`value()` is f(x)."""
        ctx.shape = x.shape
        return value()

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, None]:
        """R, summed where x was broadcast."""
        return relevance[0].sum_to_size(ctx.shape), None


class ToRelevance(Function):
    """Below a rule in gradient form: g arrives, R = x * g leaves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, to: Booking) -> Tensor:
        """X itself."""
        ctx.save_for_backward(x.clone())  # the model may write into it
        ctx.rest = (share, to)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """R = share * x * g, taken off what the rule has to answer for."""
        (x,) = ctx.saved_tensors
        share, to = ctx.rest
        relevance = _by_part(torch.mul, x, gradients[0])
        if share != 1:
            relevance = relevance * share
        to.rule(-_parts_summed(relevance))
        return relevance, None, None


class ToGradient(Function):
    """Above a rule in gradient form: R arrives, g = R / z leaves."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, rules: ChefersRules, to: Booking | None) -> Tensor:
        """Z itself."""
        ctx.save_for_backward(z)
        ctx.rest = (rules, to)
        return z.clone()  # the model may write into it

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, None, None]:
        """g = R / z."""
        (z,) = ctx.saved_tensors
        rules, to = ctx.rest
        if to is not None:  # otherwise the operators below book all of it
            to.rule(_parts_summed(relevance[0]))
        return _by_part(partial(quotient, rules=rules), relevance[0], z), None, None


class SumOfTwo(Function):
    """a + b: relevance by value; with `normalised` rescaled so that the two totals keep R's sum.

    Chefer et al. 2021, Eq. 9-10; the sums run over one item, where the authors' run over a batch
    of one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        value: Callable[[], Tensor],
        rules: ChefersRules,
        to: Booking,
    ) -> Tensor:
        """`value()` is a + b."""
        out = value()
        to.locate(out)
        ctx.save_for_backward(a.clone(), b.clone())  # the model may write into either
        ctx.rest = rules, to
        return out

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor | None, ...]:
        """Relevance of both; a constant's is booked as its own."""
        a, b = ctx.saved_tensors
        rules, to = ctx.rest
        arrived = relevance[0]
        share = quotient(arrived, a + b, rules)
        # masked scores hold -inf, and have no relevance
        parts = [torch.where(share == 0, 0, share * operand) for operand in (a, b)]
        if rules.normalised:
            parts = _normalised(parts, arrived, rules, to)
        to.rule(arrived - parts[0] - parts[1])
        for needed, part in zip(ctx.needs_input_grad[:2], parts, strict=True):
            if not needed:
                to.bias(part)
        return parts[0].sum_to_size(a.shape), parts[1].sum_to_size(b.shape), None, None, None


def _normalised(
    parts: list[Tensor], arrived: Tensor, rules: ChefersRules, to: Booking
) -> list[Tensor]:
    total = per_item(arrived, to.axis, to.items)
    sums = [per_item(part, to.axis, to.items) for part in parts]
    both = sums[0].abs() + sums[1].abs()
    rescaled = []
    for part, part_sum in zip(parts, sums, strict=True):
        goal = quotient(part_sum.abs(), both, rules) * total
        factor = quotient(goal, part_sum, rules).to(part.dtype)
        rescaled.append(part * spread(factor, part, to.axis, to.items))
    return rescaled


class PositiveShares(SharesOfOutput):
    """x^+ w^+ and x^- w^- share what arrives, x^+ w^- and x^- w^+ take beta; biases nothing.

    Denominators are computed in the backward pass, where it is known for which outputs.
    """

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor | None, ...]:
        """Relevance of x."""
        x, z = ctx.saved_tensors
        rule, at, (rules, to) = ctx.rest
        arrived = relevance[0]
        if at.rowwise:
            nonzero = nonzero_part(arrived)
            part, rows = at.part(nonzero.columns), nonzero.of(x, columns=False)
            if ctx.seen is None or not ctx.seen[0].same(nonzero):
                ctx.seen = (nonzero, _denominators(rows, nonzero.of(z), rule, part, rules))
            out = _shared(rows, nonzero.of(arrived), ctx.seen[1], rule, part, rules)
            out = nonzero.back(out, x)
        else:
            below = _denominators(x, z, rule, at, rules)
            out = _shared(x, arrived, below, rule, at, rules)
        to.passed(arrived, out)
        return out, None, None, None, None


#: denominators of the contributions of x^+ and of x^-
Pair = tuple[Tensor, Tensor]


def _denominators(
    x: Tensor, z: Tensor, rule: LinearRule, at: LinearMap, rules: ChefersRules
) -> list[Pair]:
    """For positive and (with beta) negative contributions.

    Sum of positive contributions = (sum + sum of sizes) / 2, one product in place of two, for
    the sum is the output itself without its bias. The authors' LRP baseline divides the
    contributions of x^+ and of x^- each by its own sum.
    """
    if rules.normalised:
        total = z if at.bias is None else z - at.bias
        sizes = at.apply(x.abs(), at.weight.abs())
        both = [(sizes + total).div_(2), *([(total - sizes).div_(2)] if rule.beta else [])]
        return [(operand, operand) for operand in both]
    above, below = at.weight.clamp(min=0), at.weight.clamp(max=0)
    return [
        (at.apply(x.clamp(min=0), of_plus), at.apply(x.clamp(max=0), of_minus))
        for of_plus, of_minus in ((above, below), (below, above))[: 1 + bool(rule.beta)]
    ]


def _shared(
    x: Tensor,
    arrived: Tensor,
    below: list[Pair],
    rule: LinearRule,
    at: LinearMap,
    rules: ChefersRules,
) -> Tensor:
    shares = [_shares(arrived, pair, rules) for pair in below]
    above, under = at.weight.clamp(min=0), at.weight.clamp(max=0)
    out = _signed(x, shares[0], above, under, at).mul_(rule.alpha or 1.0)
    if rule.beta:
        out = out.sub_(_signed(x, shares[1], under, above, at), alpha=rule.beta)
    return out


def _shares(arrived: Tensor, below: Pair, rules: ChefersRules) -> Pair:
    of_plus = quotient(arrived, below[0], rules)
    same = below[0] is below[1]
    return of_plus, of_plus if same else quotient(arrived, below[1], rules)


def _signed(x: Tensor, shares: Pair, of_plus: Tensor, of_minus: Tensor, at: LinearMap) -> Tensor:
    plus, minus = at.pull(shares[0], of_plus, x), at.pull(shares[1], of_minus, x)
    return torch.where(x > 0, plus, minus).mul_(x)


def passed(mode: RelevanceMode, call: Call) -> Any:
    """Relevance goes whole to the one carrier."""
    return _passed_to(call, call.carriers[0])


def _passed_to(call: Call, carrier: Tensor) -> Tensor:
    out: Tensor = PassOn.apply(carrier, call.out_of_place().run_detached)
    return _written(call, out)


def _written(call: Call, out: Tensor) -> Tensor:
    """`out` where the model expects it, no longer what an in-place form's argument was."""
    out = call.written(out)
    if call.in_place:
        forget_function(out)
    return out


def negation(_: RelevanceMode, call: Call) -> Any:
    """A sign changes no share."""
    x = call.argument(0, "input", None)
    return mark_function(_passed_to(call, x), function_of(x).then(torch.neg))


def activation(mode: RelevanceMode, call: Call) -> Any:
    """Identity for every elementwise function of one carrier; a scale is constant."""
    whole = rules.of_several_numbers(mode, call)
    if whole is not None:
        return whole
    if rules.is_scale(call):
        return mark_reduced(call.run_detached())
    composed = function_of(call.argument(0, "input", None)).then(
        call.elementwise(), gate=operator_of(call.name).gate
    )
    return mark_function(_passed_to(call, composed.root), composed)


def softmax(mode: RelevanceMode, call: Call) -> Any:
    """Identity; what comes out is an attention map that can be recorded."""
    x = call.carriers[0]
    out = _passed_to(call, x)
    mode.record_attention(out)
    mode.note_softmax(out, x)
    return out


def proportional(mode: RelevanceMode, call: Call, share: float = 1.0) -> Any:
    """LRP-0 in relevance form, R_i = x_i dz/dx_i R / z, `share` of it to each carrier."""
    axes = [mode.books.axis_of(c) for c in call.carriers]
    below = {
        id(c): ToRelevance.apply(
            c.clone() if call.in_place else c, share, mode.books.at(call.name, axis)
        )
        for c, axis in zip(call.carriers, axes, strict=True)
    }
    out = call.out_of_place().substituted(below).run()
    above = mode.books.at(call.name, mode.books.axis_after(out))
    return _written(call, ToGradient.apply(out, mode.chefer, above))


def mixing(mode: RelevanceMode, call: Call) -> Any:
    """Averages, interpolation, Fourier transforms share by value."""
    rules.check_linear(mode, call)
    return proportional(mode, call)


def matmul(mode: RelevanceMode, call: Call) -> Any:
    """Chefer et al. 2021, Eq. 11: half of the relevance to each of two carriers."""
    return proportional(mode, call, 1.0 / len(call.carriers))


def reduction(mode: RelevanceMode, call: Call) -> Any:
    """Sums and means share by value; what norms are made of."""
    return mark_reduced(proportional(mode, call), call.carriers[0])


def with_weight(mode: RelevanceMode, call: Call) -> Any:
    """Linear layers and convolutions: z+ or alpha-beta, else the gradient-form rule converted."""
    kind, x = KIND[call.name], call.carriers[0]
    at = layer_rules.MAPS[kind](mode, call)
    rule, sink = mode.linear_rule(call), mode.sink_of(x)
    to = mode.books.at(kind, mode.books.axis_of(x))
    value = partial(mode.linear_value, call)
    if sink is not None:
        out = AtInputLayer.apply(sink, x.detach(), value, mode.composite.input_rule, at, to)
        return ToGradient.apply(out, mode.chefer, None)
    if rule.alpha is not None:
        return PositiveShares.apply(x, value, rule, at, (mode.chefer, to))
    if rule.plain:
        return proportional(mode, call)
    below = ToRelevance.apply(x, 1.0, to)
    out = layer_rules.function_for(rule).apply(below, value, rule, at, Converted(to))
    return ToGradient.apply(out, mode.chefer, to)


def add(mode: RelevanceMode, call: Call) -> Any:
    """Two carriers share by value, as do the embeddings that are added before the encoder.

    Inside the encoder a constant (a mask, a position bias of the scores) takes nothing, as the
    biases of linear operators; nor does the mean of a norm.
    """
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    total = rules.sum_of(mode, call)
    both = mode.carries(left) and mode.carries(right)
    if both and total is not None:
        return mark_function(_passed_to(call, total.root), total)
    # x - mean(x), the beginning of a norm written out: the mean takes nothing
    if both and is_reduced_from(right, left):
        return _passed_to(call, left)
    carrier, other = (left, right) if mode.carries(left) else (right, left)
    if not both and (mode.books.in_encoder or not isinstance(other, Tensor)):
        return mark_function(_passed_to(call, carrier), total)
    signs = rules.signs(call)
    # the operator is about to write into its first argument
    operands = [side.clone() if call.in_place and side is left else side for side in (left, right)]
    a, b = (_scaled(mode, o, sign) for o, sign in zip(operands, signs, strict=True))
    to = mode.books.at("sum", None)
    out = SumOfTwo.apply(a, b, call.out_of_place().run_detached, mode.chefer, to)
    rules.note_difference(call, out)
    return mark_function(_written(call, out), total)


def _scaled(mode: RelevanceMode, operand: Tensor, sign: float) -> Tensor:
    if sign == 1:
        return operand
    if not mode.carries(operand):
        return operand * sign
    out: Tensor = PassOn.apply(operand, partial(torch.mul, operand.detach(), sign))
    return out


def product(mode: RelevanceMode, call: Call) -> Any:
    """A scale or a gate takes nothing, one function passes on, two signals take half each."""
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    product = rules.product_of(mode, call)
    if not (mode.carries(left) and mode.carries(right)):
        return mark_function(passed(mode, call), product)
    if product is not None:
        return mark_function(_passed_to(call, product.root), product)
    gates = [is_gate(left), is_gate(right)]
    if sum(gates) == 1:
        return _passed_to(call, right if gates[0] else left)
    return proportional(mode, call, 0.5)


def division(mode: RelevanceMode, call: Call) -> Any:
    """By a constant or a scale: relevance stays with the numerator."""
    above, below, quotient = rules.quotient_of(mode, call)
    if not mode.carries(below) or (mode.carries(above) and rules.is_normaliser(above, below)):
        return mark_function(_passed_to(call, above), None if mode.carries(below) else quotient)
    if quotient is None:
        raise mode.refusal(call, "the denominator carries relevance")
    return mark_function(_passed_to(call, quotient.root), quotient)


def triangular(mode: RelevanceMode, call: Call) -> Any:
    """The same between converters: g = R / x above, R = a g and R = b g below."""
    below = {
        id(carrier): ToRelevance.apply(
            carrier, 1.0, mode.books.at(call.name, mode.books.axis_of(carrier))
        )
        for carrier in call.carriers
    }
    out = rules.solved(mode, call.substituted(below), None)
    above = mode.books.at(call.name, mode.books.axis_after(out))
    return ToGradient.apply(out, mode.chefer, above)
