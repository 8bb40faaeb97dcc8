"""The rule of each operator kind in gradient form: this table says where each is written.

A rule takes the mode and the call, computes the operator's own value, and arranges its backward:
either by detaching what the composite holds constant, or by an autograd function. Constants are
booked as leaves, and what a plain gradient makes or loses at a non-linear operator is measured
there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transexplain.engine import attention, elementwise, linear, normalisation, structure
from transexplain.engine.call import Call

if TYPE_CHECKING:
    from transexplain.engine.mode import RelevanceMode

Rule = Callable[["RelevanceMode", Call], Any]

RULES: dict[str, Rule] = {
    "structural": structure.structural,
    "mixing": structure.mixing,
    "extremum": structure.extremum,
    "dropout": structure.dropout,
    "concat": structure.concat,
    "fill": structure.fill,
    "assignment": structure.assignment,
    "overwrite": structure.overwrite,
    "scatter": structure.scatter,
    "pad": structure.pad,
    "composite": structure.composite,
    "sum": elementwise.add,
    "negation": elementwise.negation,
    "product": elementwise.product,
    "matmul": elementwise.matmul,
    "einsum": elementwise.matmul,
    "reduction": elementwise.reduction,
    "scale": elementwise.scale,
    "division": elementwise.division,
    "activation": elementwise.activation,
    "linear": linear.linear,
    "addmm": linear.addmm,
    "convolution": linear.convolution,
    "softmax": attention.softmax,
    "attention": attention.attention,
    "layer_norm": normalisation.layer_norm,
    "rms_norm": normalisation.rms_norm,
    "group_norm": normalisation.group_norm,
    "batch_norm": normalisation.batch_norm,
}
