"""Specifications as YAML documents: read, settings put over them, every problem named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from orchestrator.spec.spec_section import Section
from transexplain.errors import ConfigurationError, SpecError
from transexplain.parsing import UnreadableError, read_text, read_yaml, refuse_unstorable

Spec = TypeVar("Spec", bound=Section)
#: the sections of a specification by their key
Sections = Mapping[str, type[Section]]


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
    sections: Sections,
) -> None:
    """Set `overrides` (None: not given) and then `a.b=c` texts, whose values are YAML.

    Where a text stands for a section, `model: path` becomes `model: {source: path}` when a part of
    it is set. Raises SpecError.
    """
    for key, value in overrides.items():
        if value is not None:
            _assign(document, key.split("."), value, sections)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise SpecError(f"--set {setting!r} must have the form a.b=value")
        _assign(document, key.split("."), yaml_value(value, f"--set {key}"), sections)


def validated(spec: type[Spec], document: Mapping[str, Any], what: str, sections: Sections) -> Spec:
    """`document` as a `spec`; SpecError lists every wrong place of `what`."""
    try:
        return spec.model_validate(document)
    except ValidationError as error:
        raise SpecError(f"{what} is wrong:\n{_explain(error, spec, sections)}") from None


def yaml_value(text: str, where: str) -> Any:
    """What a YAML text says; SpecError begins with `where`."""
    try:
        value = read_yaml(text)
        refuse_unstorable(value)
    except UnreadableError as error:
        raise SpecError(f"{where} is not valid YAML: {error}") from None
    return value


def _assign(document: dict[str, Any], keys: list[str], value: Any, sections: Sections) -> None:
    for key in keys[:-1]:
        inner = document.get(key)
        shorthand = sections[key].shorthand if key in sections else None
        if isinstance(inner, str) and shorthand is not None:
            inner = {shorthand: inner}
        document[key] = dict(inner) if isinstance(inner, dict) else {}
        document = document[key]
    document[keys[-1]] = value


def _explain(error: ValidationError, spec: type[Section], sections: Sections) -> str:
    lines = []
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"]) or "(top)"
        message = problem["msg"]
        if problem["type"] == "extra_forbidden":
            inside = problem["loc"][:-1]
            section = sections.get(str(inside[0]), spec) if inside else spec
            message = f"unknown key; known here: {', '.join(section.model_fields)}"
        lines.append(f"  {place}: {message}")
    return "\n".join(lines)


def parameters(given: Sequence[str] | None) -> dict[str, Any]:
    """`name=value` texts of `--param`, the values in YAML; raises ConfigurationError."""
    found: dict[str, Any] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--param {pair!r} is not name=value")
        found[name] = yaml_value(value, f"--param {name}")
    return found
