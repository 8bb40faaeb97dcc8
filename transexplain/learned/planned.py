"""The explainers that a plan names: which files, and what of them decides numbers."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from transexplain.evaluations import MethodSpec
from transexplain.learned.facts import read_facts
from transexplain.plans import AuditPlan, SourceFile

LEARNED = "learned"  #: the method


def explainers_of(plan: AuditPlan) -> tuple[SourceFile, ...]:
    """The explainers of a plan's methods whose bytes it names, each once."""
    methods = [plan.method, *([plan.exact.method] if plan.exact else [])]
    methods += [one.method for one in plan.evaluation.methods] if plan.evaluation else []
    found = (_file(one.params) for one in methods if one.name == LEARNED)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def explainers_in(document: Any) -> Iterator[SourceFile]:
    """The same of a plan's stored document; a file that is named twice comes twice."""
    if isinstance(document, Mapping):
        params = _params(document)
        if params is not None and (found := _file(params)) is not None:
            yield found
        entries: Any = document.values()
    else:
        entries = document if isinstance(document, list | tuple) else ()
    for entry in entries:
        yield from explainers_in(entry)


def without_folders(document: Any) -> Any:
    """A plan's document with explainers by their last name, where their bytes are named."""
    if isinstance(document, Mapping):
        found = {key: without_folders(value) for key, value in document.items()}
        params = _params(document)
        return found if params is None else {**found, "params": _named(params)}
    if isinstance(document, list | tuple):
        return [without_folders(entry) for entry in document]
    return document


def check_at_hand(plan: AuditPlan) -> None:
    """Raise ConfigurationError where an explainer of the plan is not there, or is none."""
    for one in explainers_of(plan):
        read_facts(one.path)


def portable(method: MethodSpec) -> MethodSpec:
    """A method by what decides its numbers: equal, wherever its explainer lies."""
    if method.name != LEARNED or _file(method.params) is None:
        return method
    params = {name: value for name, value in method.params.items() if name != "explainer"}
    return MethodSpec(name=method.name, params=params)


def _params(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The parameters, where a document is that of the method; None: it is another."""
    params = document.get("params")
    return params if document.get("name") == LEARNED and isinstance(params, Mapping) else None


def _file(params: Mapping[str, Any]) -> SourceFile | None:
    path, digest = params.get("explainer"), params.get("sha256")
    return SourceFile(path=path, sha256=digest) if path and digest else None


def _named(params: Mapping[str, Any]) -> dict[str, Any]:
    file = _file(params)
    return {**params, **({"explainer": PurePath(file.path).name} if file else {})}
