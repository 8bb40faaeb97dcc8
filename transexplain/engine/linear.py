"""Linear operators with weights: linear layers, `addmm`, convolutions, and the rule each gets."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.alpha_beta import AlphaBeta
from transexplain.engine.call import Call
from transexplain.engine.leaf_functions import AtInputLayer
from transexplain.engine.linear_functions import (
    LinearMap,
    LinearZero,
    PaperGamma,
    SignedShares,
)
from transexplain.engine.linear_rules import LinearRule
from transexplain.engine.mode import RelevanceMode


def linear(mode: RelevanceMode, call: Call) -> Any:
    """A linear layer; the bias is booked."""
    return _with_weight(
        mode, call, "linear", linear_map(mode, call), call.argument(2, "bias", None)
    )


def addmm(mode: RelevanceMode, call: Call) -> Any:
    """`addmm(bias, x, w)`: the linear layer of GPT-style code."""
    at = addmm_map(mode, call)
    return _with_weight(mode, call, "linear", at, at.bias)


def convolution(mode: RelevanceMode, call: Call) -> Any:
    """A convolution over a receptive field; the bias is booked."""
    at = convolution_map(mode, call)
    return _with_weight(mode, call, "convolution", at, at.bias)


def _with_weight(
    mode: RelevanceMode, call: Call, kind: str, at: LinearMap, bias: Tensor | None
) -> Any:
    x = carrier_of(call)
    rule, twin = mode.linear_rule(call), mode.twin_of(x)
    if twin is None and rule.plain:
        out = LinearZero.apply(x, call.run_detached, at) if at.rowwise else call.run()
        mode.books.constant(out, bias, kind)
        return out
    to = mode.books.at(kind, mode.books.axis_of(x))
    value = call.run_detached
    if twin is not None:
        return AtInputLayer.apply(twin, x.detach(), value, mode.composite.input_rule, at, to)
    return function_for(rule).apply(x, value, rule, at, to)


def function_for(rule: LinearRule) -> Any:
    """The autograd function of a rule."""
    if rule.alpha is not None:
        return AlphaBeta
    if rule.gamma and rule.gamma_form == "transexplain":
        return PaperGamma
    return SignedShares


def carrier_of(call: Call) -> Tensor:
    """The input of a linear operator."""
    return call.carriers[0]


def linear_map(mode: RelevanceMode, call: Call) -> LinearMap:
    """`F.linear(x, weight, bias)`."""
    weight = call.argument(1, "weight", None)
    if mode.carries(weight):
        raise mode.refusal(call, "its weight depends on the input")
    return _rowwise(weight, call.argument(2, "bias", None))


def _rowwise(weight: Tensor, bias: Tensor | None) -> LinearMap:
    return LinearMap(weight, bias, torch.nn.functional.linear, _pull_linear, rowwise=True)


def _pull_linear(s: Tensor, weight: Tensor, _like: Tensor) -> Tensor:
    return s @ weight


def addmm_map(mode: RelevanceMode, call: Call) -> LinearMap:
    """`addmm(bias, x, weight)`, with its factors alpha and beta."""
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
    rest = {key: value for key, value in call.kwargs.items() if key not in _NOT_SETTINGS}
    apply = partial(_convolved, call.func, call.args[3:], rest)
    return LinearMap(weight, bias, apply, partial(_pulled, apply))


_NOT_SETTINGS = ("input", "weight", "bias")


def _convolved(
    func: Callable[..., Tensor], args: tuple[Any, ...], rest: dict[str, Any], x: Tensor, w: Tensor
) -> Tensor:
    return func(x, w, None, *args, **rest)


def _pulled(
    apply: Callable[[Tensor, Tensor], Tensor], s: Tensor, weight: Tensor, like: Tensor
) -> Tensor:
    """The transpose by autograd: every stride, padding and layout that the operator knows."""
    with torch.enable_grad():
        x = torch.zeros_like(like, requires_grad=True)
        return torch.autograd.grad(apply(x, weight), x, s)[0]
