"""Exports of a run's data and findings for other programs; each format is one function."""

from transexplain.registry import Registry

#: formats of data: each takes the store, the run and the path to write to
FILES = ("parquet", "jsonl", "csv", "xlsx")
#: sent to a tracker, whose answer is a line of text
TRACKERS = ("mlflow", "wandb")
#: trackers and the others, which are texts: each takes the store and the run and gives a string
EXPORTS = Registry(
    "export format",
    {
        "parquet": "transexplain.reports.exports.attribution_export:write_parquet",
        "jsonl": "transexplain.reports.exports.attribution_export:write_jsonl",
        "csv": "transexplain.reports.exports.csv_tables:write",
        "xlsx": "transexplain.reports.exports.workbook:write",
        "schema": "transexplain.reports.exports.text_exports:render",
        "markdown": "transexplain.reports.exports.markdown:export",
        "model-card": "transexplain.extras.filings.model_card:export",
        "annex-iv": "transexplain.extras.filings.annex_iv:export",
        "local-law-144": "transexplain.extras.filings.local_law_144:export",
        "mlflow": "transexplain.reports.exports.trackers:log_mlflow",
        "wandb": "transexplain.reports.exports.trackers:log_wandb",
    },
)
