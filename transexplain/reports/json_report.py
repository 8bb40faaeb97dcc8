"""The summary as JSON: the keys are the fields of `records.Summary`, documented there."""

import json
import math
from dataclasses import asdict
from typing import Any

from transexplain.reports.records import Summary


def render(summary: Summary) -> str:
    """`summary` as JSON text in ASCII; a number that is not finite is null."""
    return json.dumps(document(summary), indent=1, allow_nan=False) + "\n"


def document(summary: Summary) -> dict[str, Any]:
    """`summary` as plain dictionaries and lists, ready for any JSON writer."""
    found: dict[str, Any] = _plain(asdict(summary))
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema that every report satisfies."""
    from pydantic import TypeAdapter

    return TypeAdapter(Summary).json_schema(mode="serialization")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
