"""What a run found, in forms for people and programs; each takes a Summary and gives a string."""

from transexplain.registry import Registry

REPORTS = Registry(
    "report format",
    {
        "html": "transexplain.reports.html:render",
        "json": "transexplain.reports.json_report:render",
    },
)
