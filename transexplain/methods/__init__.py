"""Explanation methods; `method_table` lists what exists."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.methods.method_table import TABLE, Cost, MethodFacts
from transexplain.registry import Registry, require
from transexplain.types.items import Unit
from transexplain.types.scores import MethodSpec

METHODS = Registry("method", {name: facts.place for name, facts in TABLE.items()})


def facts_of(method: str) -> MethodFacts:
    """What is declared about a method; raises ConfigurationError for an unknown name."""
    METHODS[method]
    return TABLE[method]


def unit_of(method: str) -> Unit:
    """The unit of a method's relevance: group statistics in logits need `logits`."""
    return facts_of(method).unit


def cost_of(spec: MethodSpec, positions: int) -> Cost:
    """What a method costs for one item of T `positions`; raises ConfigurationError."""
    function = bound(spec).func
    given = {**_parameters(function), **spec.params}
    return facts_of(spec.name).cost(given, positions)


def parameters_of(method: str) -> tuple[str, ...]:
    """The names of a method's own parameters; raises ConfigurationError for an unknown one."""
    return tuple(_parameters(METHODS.load(method)))


def bound(spec: MethodSpec) -> "partial[Any]":
    """The method's function with its name and parameters filled in.

    Raises ConfigurationError for an unknown method, a parameter that it does not have, and a
    package that is not installed.
    """
    function = METHODS.load(spec.name)
    if (needed := TABLE[spec.name].needs) is not None:
        require(*needed)
    known = _parameters(function)
    for name in spec.params:
        if name not in known:
            raise ConfigurationError(
                f"method {spec.name!r} has no parameter {name!r}; it has: "
                f"{', '.join(known) or 'none'}"
            )
    return partial(function, method=spec.name, **dict(spec.params))


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Name -> default of the parameters that a user may give."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "method"
    }
