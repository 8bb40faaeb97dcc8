"""Softmax and fused attention in gradient form: constant weights, or AttnLRP's rules."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.constant_attention import ConstantAttention, recomputable
from transexplain.engine.functions import ScaledGradient
from transexplain.engine.mode import RelevanceMode
from transexplain.errors import EngineError


def softmax(mode: RelevanceMode, call: Call) -> Any:
    """AH-rule (Ali et al. 2022): attention weights are constants; else gradient x input.

    Gradient x input of the softmax *is* AttnLRP's rule for it (Achtibat et al. 2024):
    R_i = x_i (R_i - s_i sum_j R_j) with R_i = s_i g_i above.
    """
    x = call.argument(0, "input", None)
    constant = mode.composite.attention == "constant"
    out = call.run_detached() if constant else mode.books.measured("softmax", call)
    mode.note_softmax(out, x)
    return out


def attention(mode: RelevanceMode, call: Call) -> Any:
    """Fused attention: the AH rule needs no gradient of queries and keys.

    AttnLRP: the product with the values halves (value and weights), the product of queries and
    keys halves again.
    """
    if call.argument(4, "dropout_p", 0.0):
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")
    if mode.composite.attention == "constant":
        value = call.argument(2, "value", None)
        if mode.carries(value) and recomputable(call):
            return ConstantAttention.apply(value, call)
        return call.run_detached(but=(2, "value"))
    if mode.composite.attention == "softmax":
        call = replace(call, func=partial(_halved_twice, call.func))
    return mode.books.measured("attention", call)


def _halved_twice(
    func: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any
) -> Any:
    query, key = (ScaledGradient.apply(side, 0.25) for side in (query, key))
    return func(query, key, ScaledGradient.apply(value, 0.5), *rest, **named)
