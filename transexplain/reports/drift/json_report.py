"""A comparison of two runs as JSON: the keys are the fields of `records.DriftSummary`."""

import json
from typing import Any

from transexplain.reports.drift.records import SCHEMA_VERSION, DriftSummary
from transexplain.reports.json_report import plain


def render(summary: DriftSummary) -> str:
    """`summary` as JSON text in ASCII; a number that is not finite is null."""
    return json.dumps(plain(summary), indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that every comparison satisfies."""
    from transexplain.reports.json_schema import schema_of

    return schema_of(DriftSummary, "comparison", SCHEMA_VERSION)
