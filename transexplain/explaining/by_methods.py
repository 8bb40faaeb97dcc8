"""One item explained by many methods: would another method say the same?"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from transexplain.errors import ConfigurationError, EngineError, ItemError
from transexplain.explaining import Request, explain_items
from transexplain.methods import METHODS
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution, Compared, Item
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames, parse_target


def explain_by_methods(
    model: LoadedModel,
    content: Any,
    *,
    methods: Iterable[str] | None = None,
    target: str | Mapping[str, Any] = "top:2",
    params: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Compared]:
    """Explain one item by every method, or by those named; in the order of the registry.

    Args:
        model: what `load_model` or `wrap` gave.
        content: a text, a picture or encoded inputs.
        methods: names; default: all of the registry.
        target: the same for all.
        params: method -> its parameters.

    Returns:
        One record per method; a method that is not defined for the model has its reason there.

    Raises:
        TargetError: a class that the model does not have.
        ItemError: the item cannot be read.
        ConfigurationError: an unknown method, here or in `params`.
    """
    given = params or {}
    names = list(METHODS) if methods is None else list(methods)
    for name in (*given, *names):
        METHODS[name]
    classes = ClassNames(model.classes)
    parsed = (parse_target(target, classes),)
    item = Item(id="0", index=0, content=content)
    found = []
    for name in names:
        spec = MethodSpec(name=name, params=given.get(name, {}))
        found.append(_compared(model, item, Request(method=spec, targets=parsed, names=classes)))
    return found


def _compared(model: LoadedModel, item: Item, request: Request) -> Compared:
    begun = time.perf_counter()
    attributions: tuple[Attribution, ...] = ()
    error = None
    try:
        (done,) = explain_items(model, [item], request)
    except (ConfigurationError, EngineError) as reason:
        error = str(reason)
    else:
        attributions = done.attributions
        if done.failure is not None and done.failure.kind != "model-error":
            raise ItemError(done.failure.kind, done.failure.message)
        error = done.failure.message if done.failure is not None else None
    return Compared(
        method=request.method.name,
        attributions=attributions,
        error=error,
        seconds=time.perf_counter() - begun,
    )
