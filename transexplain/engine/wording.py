"""Which rule took an operator, in words: read from the graph that was built, where it shows."""

from typing import Any

from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.composites import Composite
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operators import KINDS, operator_of

PLAIN = "none: plain gradient"
CUT = "carries no relevance on"
_IDENTITY, _HALF = "identity f(x)/x", "half to each factor"
#: autograd node of the relevance form -> its rule
_BY_NODE = {
    "PassOn": "passed on whole",
    "SumOfTwo": "by value, rescaled",
    "ToGradient": "by value",
    "AtInputLayer": "input rule",
}


def rule_of(mode: RelevanceMode, call: Call, out: Tensor) -> str:
    """The rule that a mode applied to `call`, whose (first) result is `out`."""
    kind = KINDS.get(operator_of(call.name).kind or "")
    node = _source(out.grad_fn)
    decided_by = None if kind is None else kind.decided_by
    if decided_by == "linear" and not _is(node, "AtInputLayer"):
        return str(mode.linear_rule(call))
    for name, words in _BY_NODE.items():
        if _is(node, name):
            return words
    if _is(node, "IdentityRule") and decided_by in ("product", "activation", "norm"):
        return _IDENTITY
    if decided_by == "product":
        return _of_product(mode.composite, call, out, node)
    if kind is not None and kind.words and not mode.composite.relevance_form:
        chosen = str(getattr(mode.composite, str(decided_by)))
        return kind.words.get(chosen, chosen)
    if not out.requires_grad:
        return CUT
    return "linear: by value" if kind is None else kind.wording


def _of_product(composite: Composite, call: Call, out: Tensor, node: Any) -> str:
    scaled = KINDS["scale"].words["constant"]
    if not out.requires_grad:
        return scaled
    factors = (*call.args, *call.kwargs.values())
    if sum(isinstance(one, Tensor) and one.requires_grad for one in factors) == 1:
        return "linear: constant factor"
    if any(_is(before, "ScaledGradient") for before, _ in getattr(node, "next_functions", ())):
        return _HALF
    if composite.product == "gradient":
        return KINDS["scale"].words["gradient"]
    return scaled if operator_of(call.name).kind == "division" else "gate constant"


def _source(node: Any) -> Any:
    """The operator's own node, where its value was written back into its first argument."""
    while _is(node, "CopyBackwards") and node.next_functions[-1][0] is not None:
        node = node.next_functions[-1][0]
    return node


def _is(node: Any, name: str) -> bool:
    return type(node).__name__.startswith(name)
