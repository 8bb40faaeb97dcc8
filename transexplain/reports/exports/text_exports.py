"""The published JSON Schemas, and their export."""

import json
from typing import Any

from transexplain.registry import Registry
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

SCHEMAS = Registry(
    "JSON document",
    {
        "report": "transexplain.reports.report_formats:schema",
        "evaluation": "transexplain.reports.evaluation.evaluation_formats:schema",
        "comparison": "transexplain.reports.runs_compared.comparison_summary:schema",
        "strategies": "transexplain.reports.strategies_report:schema",
    },
)


def schema_text(name: str) -> str:
    """The schema of one kind of document, as its file holds it."""
    return json.dumps(SCHEMAS.load(name)(), indent=1, sort_keys=True) + "\n"


def file_name(name: str) -> str:
    """Of the published schema, with the version of the document."""
    document: dict[str, Any] = SCHEMAS.load(name)()
    return f"{name}-v{document['properties']['schema_version']['const']}.schema.json"


def render(db: Database, run: AuditRun) -> str:
    """The schema of what `transexplain report --json` prints for this run."""
    return schema_text("evaluation" if run.plan.task == "evaluation" else "report")
