"""Every key of the YAML files, from the models that check them."""

from collections.abc import Iterator, Mapping
from typing import Any

from markdown_text import code, table
from pydantic import BaseModel

from orchestrator.gate.policy import Policy
from orchestrator.spec import AuditSpec
from transexplain.extras.training.train_command import TrainingSpec

_HEADS = ("key", "value", "default", "what it says")
_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def audit_keys() -> str:
    """The keys of an audit's specification."""
    return _keys(AuditSpec, "audit")


def training_keys() -> str:
    """The keys of a training's specification."""
    return _keys(TrainingSpec, "training")


def policy_keys() -> str:
    """The keys of a gate's policy."""
    return _keys(Policy, "policy")


def _keys(model: type[BaseModel], name: str) -> str:
    """A table of the file's own keys, then one for each section, in the order of the keys."""
    schema = model.model_json_schema()
    return "\n\n".join(_tables(schema, schema, name, "", set()))


def _tables(
    schema: Mapping[str, Any], section: Mapping[str, Any], name: str, path: str, done: set[str]
) -> Iterator[str]:
    fields: Mapping[str, Any] = section.get("properties", {})
    needed = section.get("required", ())
    if path:
        yield f"### `{path}` {{ #{name}-{path.replace('.', '-')} }}"
        yield str(section.get("description", "")).strip()
    rows = [
        (
            code(key),
            _value(field),
            "needed" if key in needed else _default(field),
            _about(schema, field),
        )
        for key, field in fields.items()
    ]
    yield table(_HEADS, rows)
    for key, field in fields.items():
        for reference in _references(field):
            if reference not in done:
                done.add(reference)
                inner = schema["$defs"][reference]
                yield from _tables(schema, inner, name, f"{path}.{key}" if path else key, done)


def _about(schema: Mapping[str, Any], field: Mapping[str, Any]) -> str:
    """What a key's description says, or else that of the section that it holds."""
    inner = [schema["$defs"][one].get("description", "") for one in _references(field)]
    return str(field.get("description") or "; ".join(inner))


def _references(field: Any) -> Iterator[str]:
    """The names of the sections that a field may hold."""
    if isinstance(field, Mapping):
        if "$ref" in field and not field["$ref"].endswith("/JsonValue"):
            yield field["$ref"].rpartition("/")[2]
        for value in field.values():
            yield from _references(value)
    elif isinstance(field, list):
        for value in field:
            yield from _references(value)


def _value(field: Mapping[str, Any]) -> str:
    """The values that a field takes, in words."""
    if "anyOf" in field:
        # nothing is what a key that may be null has by default
        given = [one for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(_value(one) for one in given)
    if "$ref" in field:
        return "any" if field["$ref"].endswith("JsonValue") else "section"
    if "enum" in field:
        return ", ".join(code(one) for one in field["enum"])
    if "const" in field:
        return code(field["const"])
    kinds = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    kind = kinds.get(str(field.get("type")), str(field.get("type")))
    if kind == "array":
        if "items" not in field:
            return "list"
        return f"list of: {_value(field['items'])}"
    if kind == "object":
        return "mapping"
    limits = [f"{words} {field[key]:g}" for key, words in _LIMITS.items() if key in field]
    return ", ".join([kind, *limits])


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if isinstance(value, Mapping) or value in (None, [], ""):
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(", ".join(map(str, value)) if isinstance(value, list) else value)
