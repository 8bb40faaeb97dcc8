"""Rules of the gradient form for what layers are made of: linear operators, attention, norms."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.composites import LinearRule
from transexplain.engine.gradient_functions import (
    AtInputLayer,
    ConstantAttention,
    ConstantScaleGroupNorm,
    ConstantScaleLayerNorm,
    ConstantScaleRmsNorm,
    Multiplied,
    ScaledGradient,
    recomputable,
)
from transexplain.engine.linear_functions import (
    AlphaBeta,
    LinearMap,
    LinearZero,
    PaperGamma,
    SignedShares,
)
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call
from transexplain.engine.operator_parts import refuse_dropout
from transexplain.engine.operators import KIND
from transexplain.errors import EngineError


def with_weight(mode: RelevanceMode, call: Call) -> Any:
    """Linear layers and convolutions by the composite's rule; the bias is booked."""
    kind, x = KIND[call.name], call.carriers[0]
    at = MAPS[kind](mode, call)
    kind = "linear" if kind == "addmm" else kind
    rule, sink = mode.linear_rule(call), mode.sink_of(x)
    value = call.product
    if sink is None and rule.plain:
        # LRP-0 is the gradient; row by row, so that rows without relevance are left out
        out = LinearZero.apply(x, value, at) if at.rowwise else call.run()
        mode.books.constant(out, at.bias, kind)
        return out
    to = mode.books.at(kind, mode.books.axis_of(x))
    # the operator reads the input itself, and an input rule is set
    if sink is not None:
        return AtInputLayer.apply(sink, x.detach(), value, mode.composite.input_rule, at, to)
    return function_for(rule).apply(x, value, rule, at, to)


def function_for(rule: LinearRule) -> Any:
    """The autograd function of a rule."""
    if rule.alpha is not None:
        return AlphaBeta
    if rule.gamma and rule.gamma_form == "transexplain":
        return PaperGamma
    return SignedShares


def linear_map(mode: RelevanceMode, call: Call) -> LinearMap:
    """`F.linear(x, weight, bias)`."""
    weight = call.argument(1, "weight", None)
    if mode.carries(weight):
        raise mode.refusal(call, "its weight depends on the input")
    return _rowwise(weight, call.argument(2, "bias", None))


def _rowwise(weight: Tensor, bias: Tensor | None) -> LinearMap:
    return LinearMap(
        weight, bias, torch.nn.functional.linear, lambda s, w, _like: s @ w, rowwise=True
    )


def addmm_map(mode: RelevanceMode, call: Call) -> LinearMap:
    """`addmm(bias, x, weight)`, the linear layer of GPT-style code, with alpha and beta."""
    bias, x = call.argument(0, "input", None), call.argument(1, "mat1", None)
    weight = call.argument(2, "mat2", None)
    if mode.carries(bias) or mode.carries(weight) or not mode.carries(x):
        raise mode.refusal(call, "only addmm(bias, x, weight) with x from the input has a rule")
    alpha, beta = float(call.kwargs.get("alpha", 1)), float(call.kwargs.get("beta", 1))
    return _rowwise(
        weight.T if alpha == 1 else alpha * weight.T, bias if beta == 1 else beta * bias
    )


def convolution_map(mode: RelevanceMode, call: Call) -> LinearMap:
    """`F.conv*d(x, weight, bias, stride, padding, dilation, groups)` and transposed ones."""
    weight, bias = call.argument(1, "weight", None), call.argument(2, "bias", None)
    if mode.carries(weight):
        raise mode.refusal(call, "its weight depends on the input")
    if bias is not None:
        bias = bias.view(-1, *[1] * (weight.dim() - 2))
    func, settings = call.func, call.args[3:]  # not the call, which holds its carriers
    named = {k: v for k, v in call.kwargs.items() if k not in ("input", "weight", "bias")}

    def apply(x: Tensor, w: Tensor) -> Tensor:
        output: Tensor = func(x, w, None, *settings, **named)
        return output

    def pull(s: Tensor, w: Tensor, like: Tensor) -> Tensor:
        """The transpose by autograd: every stride, padding and layout that the operator knows."""
        with torch.enable_grad():
            x = torch.zeros_like(like, requires_grad=True)
            return torch.autograd.grad(apply(x, w), x, s)[0]

    return LinearMap(weight, bias, apply, pull)


MAPS: dict[str, Callable[[RelevanceMode, Call], LinearMap]] = {
    "linear": linear_map,
    "addmm": addmm_map,
    "convolution": convolution_map,
}


def softmax(mode: RelevanceMode, call: Call) -> Any:
    """AH-rule (Ali et al. 2022): attention weights are constants; else gradient x input.

    Gradient x input of the softmax *is* AttnLRP's rule for it (Achtibat et al. 2024):
    R_i = x_i (R_i - s_i sum_j R_j) with R_i = s_i g_i above. A log-softmax is never attention: it
    gives log-probabilities, and what its gradient leaves out (the entropy, for one of them) is
    booked.
    """
    x = call.argument(0, "input", None)
    constant = mode.composite.attention == "constant" and call.name != "log_softmax"
    out = call.run_detached() if constant else mode.books.measured("softmax", call)
    mode.note_softmax(out, x)
    return out


def attention(mode: RelevanceMode, call: Call) -> Any:
    """Fused attention: the AH rule needs no gradient of queries and keys.

    AttnLRP: the product with the values halves (value and weights), the product of queries and
    keys halves again.
    """
    refuse_dropout(call.argument(4, "dropout_p", 0.0))
    if mode.composite.attention == "constant":
        value = call.argument(2, "value", None)
        # torch's fused backward would compute the gradients of queries and keys too
        if mode.carries(value) and recomputable(call):
            return ConstantAttention.apply(value, call)
        return call.run_detached(but=(2, "value"))
    if mode.composite.attention == "softmax":
        call = replace(call, func=partial(_halved_twice, call.func))
    return mode.books.measured("attention", call)


def _halved_twice(
    func: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any
) -> Any:
    # half goes to the values and half to the weights, and of that half each to q and k
    query, key = (ScaledGradient.apply(side, 0.25) for side in (query, key))
    return func(query, key, ScaledGradient.apply(value, 0.5), *rest, **named)


def layer_norm(mode: RelevanceMode, call: Call) -> Any:
    """LN rule (Ali et al. 2022)."""
    x = call.argument(0, "input", None)
    shape = list(call.argument(1, "normalized_shape", ()))
    weight, bias = call.argument(2, "weight", None), call.argument(3, "bias", None)
    if mode.composite.norm == "gradient":
        return mode.books.measured("norm", call, constant=bias)
    out = ConstantScaleLayerNorm.apply(x, shape, weight, bias, call.argument(4, "eps", 1e-5))
    mode.books.constant(out, bias, "norm")
    return out


def rms_norm(mode: RelevanceMode, call: Call) -> Any:
    """LN rule of a norm without mean and shift."""
    if mode.composite.norm == "gradient":
        return mode.books.measured("norm", call)
    shape = list(call.argument(1, "normalized_shape", ()))
    x, weight = call.argument(0, "input", None), call.argument(2, "weight", None)
    return ConstantScaleRmsNorm.apply(x, shape, weight, call.argument(3, "eps", None))


def group_norm(mode: RelevanceMode, call: Call) -> Any:
    """LN rule over groups of channels."""
    x, groups = call.argument(0, "input", None), int(call.argument(1, "num_groups", 1))
    weight, bias = call.argument(2, "weight", None), call.argument(3, "bias", None)
    per_channel = None if bias is None else bias.view(-1, *[1] * (x.dim() - 2))
    if mode.composite.norm == "gradient":
        return mode.books.measured("norm", call, constant=per_channel)
    out = ConstantScaleGroupNorm.apply(x, groups, weight, bias, call.argument(4, "eps", 1e-5))
    mode.books.constant(out, per_channel, "norm")
    return out


def batch_norm(mode: RelevanceMode, call: Call) -> Any:
    """Linear in evaluation; the value at x = 0 is booked."""
    x, scale = call.argument(0, "input", None), batch_scale(call)
    # torch's own backward is wrong for some strides of the gradient (2.15, CPU)
    out = Multiplied.apply(x, call.run_detached, scale)
    # what running mean and bias add is the value at x = 0
    zero = call.substituted({id(x): x.detach().new_zeros(scale.shape)})
    mode.books.constant(out, zero.run(), "norm")
    return out


def batch_scale(call: Call) -> Tensor:
    """Return what a batch norm in evaluation multiplies each channel with, (1, C, 1, ...).

    Raises EngineError where it takes its statistics from the batch.
    """
    x, mean = call.argument(0, "input", None), call.argument(1, "running_mean", None)
    if call.argument(5, "training", False) or mean is None:
        raise EngineError(
            "a batch norm takes its statistics from the batch, so items depend on each other: put "
            "the model in evaluation mode (model.eval()), or give the norm running statistics"
        )
    weight, eps = call.argument(3, "weight", None), call.argument(7, "eps", 1e-5)
    scale: Tensor = (call.argument(2, "running_var", None) + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    return scale.view(1, -1, *[1] * (x.dim() - 2))
