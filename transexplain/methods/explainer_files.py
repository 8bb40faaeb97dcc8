"""Files of methods that learned from another method: their facts, and those that a plan names.

The row of such a method in the table says what reads the facts in the header of its file: the
method that it learned from (`teacher`), how near it came (`agreement`) and its cost (`forwards`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from transexplain.files.paths import local_path
from transexplain.methods.method_table import TABLE, explainer_of
from transexplain.registry import load
from transexplain.types.plans import AuditPlan, SourceFile
from transexplain.types.scores import MethodSpec


def is_learned(method: object) -> bool:
    """Return whether a method learned from another one, so that its parameters name a file."""
    return isinstance(method, str) and method in TABLE and TABLE[method].facts is not None


def explainer_facts(method: MethodSpec) -> Any:
    """The facts in the file of a learned method, as the reader in its row gives them.

    Raises ConfigurationError where no file is named, or it is missing or no explainer.
    """
    return load(str(TABLE[method.name].facts))(explainer_of(method.params))


def as_parameters(path: str) -> dict[str, Any]:
    """The parameters of a learned method that name the file at `path` and its bytes."""
    return {"explainer": str(local_path(path).absolute()), "sha256": digest_of(path)}


def digest_of(path: str) -> str:
    """Sha256 of the bytes of the file at `path`."""
    with local_path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def explainers_of(plan: AuditPlan) -> tuple[SourceFile, ...]:
    """The explainers of a plan's methods whose bytes it names, each once."""
    files = (_file(method.params) for method in _learned(plan))
    return tuple(dict.fromkeys(file for file in files if file is not None))


def check_explainers(plan: AuditPlan) -> None:
    """Raise ConfigurationError where an explainer of the plan is missing or not readable."""
    for method in _learned(plan):
        if _file(method.params) is not None:
            explainer_facts(method)


def _learned(plan: AuditPlan) -> Iterator[MethodSpec]:
    methods = [plan.method, *([plan.exact.method] if plan.exact else [])]
    methods += [method.method for method in plan.evaluation.methods] if plan.evaluation else []
    return (method for method in methods if is_learned(method.name))


def explainers_in(document: Any) -> Iterator[SourceFile]:
    """The explainers in a plan's stored document; a file that is named twice comes twice."""
    if isinstance(document, Mapping):
        params = _params(document)
        if params is not None and (file := _file(params)) is not None:
            yield file
        entries: Any = document.values()
    else:
        entries = document if isinstance(document, list | tuple) else ()
    for entry in entries:
        yield from explainers_in(entry)


def without_folders(document: Any) -> Any:
    """A plan's document with explainers by their last name, where their bytes are named."""
    if isinstance(document, Mapping):
        facts = {key: without_folders(value) for key, value in document.items()}
        params = _params(document)
        if params is not None and (file := _file(params)) is not None:
            facts["params"] = {**params, "explainer": PurePath(file.path).name}
        return facts
    if isinstance(document, list | tuple):
        return [without_folders(entry) for entry in document]
    return document


def portable(method: MethodSpec) -> MethodSpec:
    """A method without folders: equal wherever its explainer is stored."""
    if not is_learned(method.name) or _file(method.params) is None:
        return method
    params = {name: value for name, value in method.params.items() if name != "explainer"}
    return MethodSpec(name=method.name, params=params)


def _params(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The parameters, where a document is that of a learned method; None: it is another."""
    params = document.get("params")
    learned = isinstance(params, Mapping) and is_learned(document.get("name"))
    return params if learned else None


def _file(params: Mapping[str, Any]) -> SourceFile | None:
    path, digest = params.get("explainer"), params.get("sha256")
    return SourceFile(path=path, sha256=digest) if path and digest else None
