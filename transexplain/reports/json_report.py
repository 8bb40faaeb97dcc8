"""The summary as JSON: the keys are the fields of `records.Summary`, documented there."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from transexplain.reports.records import SCHEMA_VERSION, Summary
from transexplain.reports.sections import SECTIONS


def render(summary: Summary) -> str:
    """`summary` as JSON text in ASCII; a number that is not finite is null."""
    return json.dumps(document(summary), indent=1, allow_nan=False) + "\n"


def document(summary: Summary) -> dict[str, Any]:
    """`summary` as plain dictionaries and lists, ready for any JSON writer."""
    found: dict[str, Any] = plain(summary)
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema that every report satisfies."""
    from transexplain.reports.json_schema import schema_of

    found = schema_of(Summary, "report", SCHEMA_VERSION)
    sections: dict[str, Any] = {}
    for name in SECTIONS:
        if (record := SECTIONS.load(name).record) is not None:
            sections[name] = schema_of(record, name, SCHEMA_VERSION, whole=False)
            # references are to the top of the document
            found["$defs"] |= sections[name].pop("$defs", {})
    found["properties"]["sections"] = {"type": "object", "properties": sections}
    return found


def plain(value: Any) -> Any:
    """A record or a collection of records as JSON holds it; a number that is not finite is None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
