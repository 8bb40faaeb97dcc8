"""Norms in gradient form: the scale 1/std is a constant (LN-rule), the shift is booked."""

from typing import Any

from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.functions import (
    ConstantScaleGroupNorm,
    ConstantScaleLayerNorm,
    ConstantScaleRmsNorm,
    FixedScale,
)
from transexplain.engine.mode import RelevanceMode
from transexplain.errors import EngineError


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
    out = FixedScale.apply(x, call.run_detached, scale)
    zero = call.substituted({id(x): x.detach().new_zeros(scale.shape)})
    mode.books.constant(out, zero.run(), "norm")
    return out


def batch_scale(call: Call) -> Tensor:
    """What a batch norm in evaluation multiplies each channel with, (1, C, 1, ...).

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
