"""Specifications as YAML documents: read, settings put over them, every problem named."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from transexplain.errors import SpecError
from transexplain.parsing import UnreadableError, read_text, read_yaml, refuse_unstorable

Spec = TypeVar("Spec", bound=BaseModel)
#: the keys known at a place of a document
Known = Callable[[tuple[int | str, ...]], list[str]]


def read_document(path: Path, what: str, begins: str) -> dict[str, Any]:
    """The mapping in a YAML file; SpecError names the file and how `what` begins."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise SpecError(f"cannot read the {what} specification {path}: {error}") from None
    document = yaml_value(text, str(path))
    if not isinstance(document, dict):
        raise SpecError(f"{path} holds no mapping; {begins}")
    return document


def put_over(
    document: dict[str, Any],
    overrides: Mapping[str, Any],
    settings: Sequence[str],
    shorthand: Mapping[str, str],
) -> None:
    """Set `overrides` (None: not given) and then `a.b=c` texts, whose values are YAML.

    `shorthand` says what a text stands for where a mapping may stand, so that
    `model: path` becomes `model: {source: path}` when a part of it is set. Raises SpecError.
    """
    for key, value in overrides.items():
        if value is not None:
            _assign(document, key.split("."), value, shorthand)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise SpecError(f"--set {setting!r} must have the form a.b=value")
        _assign(document, key.split("."), yaml_value(value, f"--set {key}"), shorthand)


def validated(spec: type[Spec], document: Mapping[str, Any], what: str, known: Known) -> Spec:
    """`document` as a `spec`; SpecError lists every wrong place of `what`."""
    try:
        return spec.model_validate(document)
    except ValidationError as error:
        raise SpecError(f"{what} is wrong:\n{_explain(error, known)}") from None


def yaml_value(text: str, where: str) -> Any:
    """What a YAML text says; SpecError begins with `where`."""
    try:
        value = read_yaml(text)
        refuse_unstorable(value)
    except UnreadableError as error:
        raise SpecError(f"{where} is not valid YAML: {error}") from None
    return value


def _assign(
    document: dict[str, Any], keys: list[str], value: Any, shorthand: Mapping[str, str]
) -> None:
    for key in keys[:-1]:
        inner = document.get(key)
        if isinstance(inner, str) and key in shorthand:
            inner = {shorthand[key]: inner}
        document[key] = dict(inner) if isinstance(inner, dict) else {}
        document = document[key]
    document[keys[-1]] = value


def _explain(error: ValidationError, known: Known) -> str:
    lines = []
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"]) or "(top)"
        message = problem["msg"]
        if problem["type"] == "extra_forbidden":
            message = f"unknown key; known here: {', '.join(known(problem['loc'][:-1]))}"
        lines.append(f"  {place}: {message}")
    return "\n".join(lines)
