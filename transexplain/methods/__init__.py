"""Explanation methods; `method_table` lists what exists, `add_method` adds to it."""

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from transexplain.errors import ConfigurationError, did_you_mean
from transexplain.methods.method_table import (
    TABLE,
    Cost,
    MethodFacts,
    Parameters,
    ReadsTarget,
    one_backward,
)
from transexplain.registry import Registry, load, require
from transexplain.types.items import Unit
from transexplain.types.plans import Modality
from transexplain.types.scores import MethodSpec

METHODS = Registry("method", {name: facts.place for name, facts in TABLE.items()})
_SHIPPED = frozenset(TABLE)
_NAME = re.compile(r"[a-z][a-z0-9-]*")


def add_method(
    name: str,
    function: Callable[..., Any],
    *,
    source: str = "added in this process",
    unit: Unit = "logits",
    modalities: tuple[Modality, ...] = ("text", "image", "nodes"),
    reads_target: ReadsTarget = "yes",
    needs_rules: bool = False,
    cost: Callable[[Parameters, int], Cost] = one_backward,
) -> None:
    """Make a function an explanation method, for everything that names one in this process.

    Args:
        name: lower-case letters, digits and hyphens; a name that was added before is replaced.
        function: `(model, batch, resolve, *, method, **parameters)` that gives a
            `BatchExplanation`, at the top level of a module or notebook. Its further keywords,
            with defaults, are the method's parameters. `presence.explain_presence`,
            `methods.at_input_layer.explain_at_input_layer` and
            `methods.batch_explanation.explain_targets` do the loop over targets.
        source: where it is from, for the report.
        unit: of its relevance; group statistics in logits need `logits`.
        modalities: what it explains.
        reads_target: whether relevance depends on the class that is explained.
        needs_rules: it runs the model under rules of the engine.
        cost: parameters and T -> passes for one item; default: one backward for each target.

    Other processes (workers, `resume`, `verify`) do not know it until they add it. Raises
    ConfigurationError for a name that is taken or odd, and a function that cannot be called so.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"a method cannot be called {name!r:.80}; a name has lower-case letters, digits and "
            "hyphens, such as 'word-occlusion'"
        )
    if name in _SHIPPED:
        raise ConfigurationError(f"method {name!r} is there already; choose another name")
    if unit not in (units := get_args(Unit)):
        raise ConfigurationError(f"unit cannot be {unit!r}; it is one of {', '.join(units)}")
    place = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    try:
        by_name = load(place)
    except (ImportError, AttributeError, ValueError):
        by_name = None
    if not callable(function) or by_name is not function:
        raise ConfigurationError(
            f"a method is a function at the top level of a module or notebook, with `def`, not "
            f"{function!r:.80}"
        )
    _check_signature(function, name)
    TABLE[name] = MethodFacts(
        place=place,
        source=source,
        unit=unit,
        reads_target=reads_target,
        needs_rules=needs_rules,
        modalities=tuple(modalities),
        cost=cost,
    )
    METHODS.add(name, place)


def _check_signature(function: Callable[..., Any], name: str) -> None:
    try:
        inspect.signature(function).bind(None, None, None, method=name)
    except TypeError as error:
        raise ConfigurationError(
            f"method {name!r} cannot be called as method(model, batch, resolve, method=name): "
            f"{error}. Write def {function.__name__}(model, batch, resolve, *, method): and give "
            "every further keyword a default"
        ) from None


def facts_of(method: str) -> MethodFacts:
    """Return what is declared about a method; raises ConfigurationError for an unknown name."""
    METHODS[method]
    return TABLE[method]


def unit_of(method: str) -> Unit:
    """The unit of a method's relevance: group statistics in logits need `logits`."""
    return facts_of(method).unit


def cost_of(spec: MethodSpec, positions: int) -> Cost:
    """Return what a method costs for one item of T `positions`; raises ConfigurationError."""
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
                f"method {spec.name!r} has no parameter {name!r}"
                f"{did_you_mean(name, known) or ';'} it has: "
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
