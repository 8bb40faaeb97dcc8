"""The rules of Chefer et al. 2021: the backward pass carries relevance itself, per sample.

Structural operators route relevance by their own gradient. Norms, activations, scales and the
softmax pass it on whole; linear operators share it by z+; sums by value, rescaled; products give
half to each factor. Any other linear operator is put between two converters (R = z g above,
g = R / z below), where its gradient is LRP-0.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from transexplain.engine import attention_parts, layer_rules, log_sum_exp, rules
from transexplain.engine.gradient_functions import AtInputLayer
from transexplain.engine.ledger import Converted
from transexplain.engine.linear_functions import LinearMap
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call
from transexplain.engine.operators import KIND, operator_of
from transexplain.engine.relevance_functions import (
    ChefersSetting,
    PassOn,
    PositiveShares,
    SumOfTwo,
    ToGradient,
    ToRelevance,
)
from transexplain.engine.tensor_record import (
    forget_function,
    function_of,
    is_gate,
    is_reduced_from,
    mark_function,
    mark_reduced,
)


def passed(mode: RelevanceMode, call: Call) -> Any:
    """Relevance goes whole to the one carrier."""
    return _passed_to(call, call.carriers[0])


def _passed_to(call: Call, carrier: Tensor, share: float = 1.0) -> Tensor:
    out: Tensor = PassOn.apply(carrier, call.out_of_place().run_detached, share)
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
    """Identity for every elementwise function of one carrier."""
    whole = log_sum_exp.softmax_written_out(mode, call)
    if whole is not None:
        return whole
    if rules.bounded(mode, call):
        return rules.clamped(mode, call)
    rules.check_one_argument(mode, call)
    if rules.is_scale(call):
        return mark_reduced(call.run_detached())
    found = function_of(call.argument(0, "input", None)).then(
        call.elementwise(), gate=operator_of(call.name).gate
    )
    return mark_function(_passed_to(call, found.root), found)


def softmax(mode: RelevanceMode, call: Call) -> Any:
    """Identity; what comes out is an attention map that can be recorded."""
    x = call.carriers[0]
    out = _passed_to(call, x)
    mode.record_attention(out)
    mode.note_softmax(out, x)
    return out


def scale(mode: RelevanceMode, call: Call) -> Any:
    """A norm, or the root of a reduction, is constant; any other root is a function."""
    if rules.is_scale(call):
        return mark_reduced(call.run_detached())
    return activation(mode, call)


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
    kind = KIND[call.name]
    at: LinearMap = _MAPS[kind](mode, call)
    x = layer_rules.carrier_of(call)
    rule, sink = mode.linear_rule(call), mode.sink_of(x)
    axis = mode.books.axis_of(x)
    to = mode.books.at(kind, axis)
    value = partial(mode.linear_value, call)
    if sink is not None:
        out = AtInputLayer.apply(sink, x.detach(), value, mode.composite.input_rule, at, to)
        return ToGradient.apply(out, mode.chefer, None)
    if rule.alpha is not None:
        how = ChefersSetting(mode.chefer, mode.items, to)
        return PositiveShares.apply(x, value, rule, at, how)
    if rule.plain:
        return proportional(mode, call)
    below = ToRelevance.apply(x, 1.0, to)
    out = layer_rules.function_for(rule).apply(below, value, rule, at, Converted(to))
    return ToGradient.apply(out, mode.chefer, to)


_MAPS = {
    "linear": layer_rules.linear_map,
    "addmm": layer_rules.addmm_map,
    "convolution": layer_rules.convolution_map,
}


def add(mode: RelevanceMode, call: Call) -> Any:
    """Two carriers share by value, as do the embeddings that are added before the encoder.

    Inside the encoder a constant (a mask, a position bias of the scores) takes nothing, as the
    biases of linear operators; nor does the mean of a norm.
    """
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    found = rules.sum_of(mode, call)
    both = mode.carries(left) and mode.carries(right)
    if both and found is not None:
        return mark_function(_passed_to(call, found.root), found)
    # x - mean(x), the beginning of a norm written out: the mean takes nothing
    if both and is_reduced_from(right, left):
        return _passed_to(call, left)
    carrier, other = (left, right) if mode.carries(left) else (right, left)
    if not both and (mode.books.in_encoder or not isinstance(other, Tensor)):
        return mark_function(_passed_to(call, carrier), found)
    signs = rules.signs(call)
    # the operator is about to write into its first argument
    operands = [side.clone() if call.in_place and side is left else side for side in (left, right)]
    a, b = (_scaled(mode, o, sign) for o, sign in zip(operands, signs, strict=True))
    how = ChefersSetting(mode.chefer, mode.items, mode.books.at("sum", None))
    out = SumOfTwo.apply(a, b, call.out_of_place().run_detached, how)
    log_sum_exp.note_difference(call, out)
    return mark_function(_written(call, out), found)


def _scaled(mode: RelevanceMode, operand: Tensor, sign: float) -> Tensor:
    if sign == 1:
        return operand
    if not mode.carries(operand):
        return operand * sign
    out: Tensor = PassOn.apply(operand, partial(torch.mul, operand.detach(), sign), 1.0)
    return out


def product(mode: RelevanceMode, call: Call) -> Any:
    """A scale or a gate takes nothing, one function passes on, two signals take half each."""
    left, right = call.argument(0, "input", None), call.argument(1, "other", None)
    found = rules.product_of(mode, call)
    if not (mode.carries(left) and mode.carries(right)):
        return mark_function(passed(mode, call), found)
    if found is not None:
        return mark_function(_passed_to(call, found.root), found)
    gates = [is_gate(left), is_gate(right)]
    if sum(gates) == 1:
        return _passed_to(call, right if gates[0] else left)
    return proportional(mode, call, 0.5)


def division(mode: RelevanceMode, call: Call) -> Any:
    """By a constant or a scale: relevance stays with the numerator."""
    above, below, found = rules.quotient_of(mode, call)
    if not mode.carries(below) or (mode.carries(above) and rules.is_normaliser(above, below)):
        return mark_function(_passed_to(call, above), None if mode.carries(below) else found)
    if found is None:
        raise mode.refusal(call, "the denominator carries relevance")
    return mark_function(_passed_to(call, found.root), found)


def attention(mode: RelevanceMode, call: Call) -> Any:
    """Fused attention in its parts, each with its own rule."""
    return mode.again(attention_parts.attention, call)
