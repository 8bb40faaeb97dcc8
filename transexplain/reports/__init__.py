"""What a run found, in forms for people and programs; each gives a string."""

from transexplain.registry import Registry

#: each takes a Summary
REPORTS = Registry(
    "report format",
    {
        "html": "transexplain.reports.html:render",
        "json": "transexplain.reports.json_report:render",
    },
)

#: each takes a StrategyReport
STRATEGY_REPORTS = Registry(
    "strategy report format",
    {
        "html": "transexplain.reports.strategies.html:render",
        "json": "transexplain.reports.strategies.json_report:render",
    },
)

#: each takes an EvaluationSummary
EVALUATION_REPORTS = Registry(
    "evaluation report format",
    {
        "html": "transexplain.reports.evaluation.html:render",
        "json": "transexplain.reports.evaluation.texts:render_json",
        "csv": "transexplain.reports.evaluation.texts:render_csv",
        "md": "transexplain.reports.evaluation.texts:render_markdown",
    },
)

#: each takes a DriftSummary
DRIFT_REPORTS = Registry(
    "comparison report format",
    {
        "html": "transexplain.reports.drift.html:render",
        "json": "transexplain.reports.drift.json_report:render",
    },
)
