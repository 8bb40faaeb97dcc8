"""Which rule took an operator, in words: read from the graph that was built, where it shows."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.composites import Composite
from transexplain.engine.operators import KIND

if TYPE_CHECKING:
    from transexplain.engine.mode import RelevanceMode

PLAIN = "none: plain gradient"
CUT = "carries no relevance on"
_MEASURED = "gradient, measured"
_WEIGHTS, _SCALE = "weights constant (AH)", "scale constant (LN)"
_SOFTMAX = "softmax rule, measured"
_IDENTITY, _HALF = "identity f(x)/x", "half to each factor"

_BY_KIND = {
    "dropout": "identity in evaluation",
    "batch_norm": "linear: fixed statistics",
    "composite": "seen from inside",
}
_LINEAR = ("linear", "convolution", "addmm")
#: autograd node of the relevance form -> its rule
_BY_NODE = {
    "PassOn": "passed on whole",
    "SumOfTwo": "by value, rescaled",
    "ToGradient": "by value",
    "AtLeaf": "input rule",
}
#: kind -> which choice of the composite decides, and the words of its values
_BY_CHOICE: dict[str, tuple[str, dict[str, str]]] = {
    "softmax": ("attention", {"constant": _WEIGHTS, "gradient": _MEASURED, "softmax": _SOFTMAX}),
    "attention": (
        "attention",
        {"constant": _WEIGHTS, "gradient": _MEASURED, "softmax": f"{_SOFTMAX}, products halved"},
    ),
    "layer_norm": ("norm", {"constant": _SCALE, "gradient": _MEASURED}),
    "group_norm": ("norm", {"constant": _SCALE, "gradient": _MEASURED}),
    "rms_norm": ("norm", {"constant": _SCALE, "gradient": _MEASURED}),
    "scale": ("norm", {"constant": _SCALE, "gradient": _MEASURED}),
    "activation": ("activation", {"identity": _IDENTITY, "gradient": _MEASURED}),
}
_PRODUCTS = ("product", "matmul", "einsum", "division")


def rule_of(mode: "RelevanceMode", call: Call, out: Tensor) -> str:
    """The rule that a mode applied to `call`, whose (first) result is `out`."""
    kind = KIND.get(call.name, "unknown")
    node = _source(out.grad_fn)
    if kind in _LINEAR and not _is(node, "AtLeaf"):
        return str(mode.linear_rule(call))
    for name, words in _BY_NODE.items():
        if _is(node, name):
            return words
    if _is(node, "IdentityRule") and kind in (*_PRODUCTS, "activation", "scale"):
        return _IDENTITY
    if kind in _PRODUCTS:
        return _of_product(mode.composite, call, out, node)
    if kind in _BY_CHOICE and not mode.composite.relevance_form:
        choice, named = _BY_CHOICE[kind]
        chosen = str(getattr(mode.composite, choice))
        return named.get(chosen, chosen)
    if not out.requires_grad:
        return CUT
    return _BY_KIND.get(kind, "linear: by value")


def _of_product(composite: Composite, call: Call, out: Tensor, node: Any) -> str:
    if not out.requires_grad:
        return _SCALE
    factors = (*call.args, *call.kwargs.values())
    if sum(isinstance(one, Tensor) and one.requires_grad for one in factors) == 1:
        return "linear: constant factor"
    if any(_is(before, "ScaledGradient") for before, _ in getattr(node, "next_functions", ())):
        return _HALF
    if composite.product == "gradient":
        return _MEASURED
    return _SCALE if KIND.get(call.name) == "division" else "gate constant"


def _source(node: Any) -> Any:
    """The operator's own node, where its value was written back into its first argument."""
    while _is(node, "CopyBackwards") and node.next_functions[-1][0] is not None:
        node = node.next_functions[-1][0]
    return node


def _is(node: Any, name: str) -> bool:
    return type(node).__name__.startswith(name)
