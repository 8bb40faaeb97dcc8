"""Explanation methods, one per file; this table is the list of what exists."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.plans import MethodSpec
from transexplain.registry import Registry
from transexplain.types import Unit

_LRP = "transexplain.methods.relevance:explain"

METHODS = Registry(
    "method",
    {
        "lrp": _LRP,
        "lrp-ah": _LRP,
        "lrp-ln": _LRP,
        "lrp-ah-ln": _LRP,
        "attnlrp": _LRP,
        "lrp-epsilon": _LRP,
        "lrp-gamma": _LRP,
        "lrp-alpha-beta": _LRP,
        "chefer-lrp": "transexplain.methods.relevance:explain_chefer",
        "gradient-x-input": "transexplain.methods.relevance:explain_gradient",
    },
)

#: The unit of each method's relevance; what is not listed is in logits.
UNITS: dict[str, Unit] = {"chefer-lrp": "unit_relevance"}


def unit_of(method: str) -> Unit:
    """The unit of a method's relevance: group statistics in logits need `logits`."""
    return UNITS.get(method, "logits")


def bound(spec: MethodSpec) -> Callable[..., Any]:
    """The method's function with its name and parameters filled in.

    Raises ConfigurationError for an unknown method or a parameter that it does not have.
    """
    function = METHODS.load(spec.name)
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "method"
    ]
    for name in spec.params:
        if name not in known:
            raise ConfigurationError(
                f"method {spec.name!r} has no parameter {name!r}; it has: {', '.join(known)}"
            )
    return partial(function, method=spec.name, **dict(spec.params))
