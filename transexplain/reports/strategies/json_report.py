"""Strategies as JSON: the keys are the fields of `StrategyReport` but for the exemplars."""

import json
from typing import Any

from transexplain.reports.json_report import plain
from transexplain.reports.strategies.records import SCHEMA_VERSION, StrategyReport


def render(report: StrategyReport) -> str:
    """`report` as JSON text in ASCII; a number that is not finite is null.

    Exemplars are the first of each cluster's `item_ids`, which begin with the most typical.
    """
    document = {
        name: plain(getattr(report, name))
        for name in ("schema_version", "headline", "explored", "strategies", "notes")
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that every such document satisfies."""
    from transexplain.reports.json_schema import schema_of

    found = schema_of(StrategyReport, "strategies", SCHEMA_VERSION)
    del found["properties"]["exemplars"]
    found["required"].remove("exemplars")
    return found
