"""Reports of a run, for people and for programs; each format is a function that returns a
string.
"""

from transexplain.registry import Registry

#: each takes a Summary
REPORTS = Registry(
    "report format",
    {
        "html": "transexplain.reports.report_formats:render_html",
        "json": "transexplain.reports.report_formats:render_json",
    },
)

#: drawing graphs, which are an extra
GRAPHS = Registry(
    "drawing of graphs",
    {
        "html": "transexplain.extras.graphs.graph_drawing:graph_html",
        "node_link": "transexplain.extras.graphs.graph_drawing:node_link",
        "shape_of": "transexplain.extras.graphs.graph_drawing:shape_of",
        "stored_shapes": "transexplain.extras.graphs.graph_drawing:stored_shapes",
    },
)

#: each takes a StrategyReport
STRATEGY_REPORTS = Registry(
    "strategy report format",
    {
        "html": "transexplain.reports.strategies_report:render",
        "json": "transexplain.reports.strategies_report:render_json",
    },
)

#: each takes an EvaluationSummary
EVALUATION_REPORTS = Registry(
    "evaluation report format",
    {
        "html": "transexplain.reports.evaluation.evaluation_formats:render",
        "json": "transexplain.reports.report_formats:render_json",
        "csv": "transexplain.reports.evaluation.evaluation_formats:render_csv",
        "md": "transexplain.reports.evaluation.evaluation_formats:render_markdown",
    },
)

#: each takes a DriftSummary
DRIFT_REPORTS = Registry(
    "comparison report format",
    {
        "html": "transexplain.reports.runs_compared.comparison_summary:render",
        "json": "transexplain.reports.report_formats:render_json",
    },
)
