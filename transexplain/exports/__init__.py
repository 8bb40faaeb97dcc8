"""A run's data and findings in files that other programs read; each format is one function."""

from transexplain.registry import Registry

#: formats of data: each takes the store, the run and the path to write to
FILES = ("parquet", "jsonl", "csv")
#: sent to a tracker, whose answer is a line of text
TRACKERS = ("mlflow", "wandb")
#: trackers and the others, which are texts: each takes the store and the run and gives a string
EXPORTS = Registry(
    "export format",
    {
        "parquet": "transexplain.exports.parquet:write",
        "jsonl": "transexplain.exports.jsonl:write",
        "csv": "transexplain.exports.csv_tables:write",
        "schema": "transexplain.exports.schema:render",
        "markdown": "transexplain.exports.texts:markdown",
        "model-card": "transexplain.exports.texts:model_card",
        "annex-iv": "transexplain.exports.texts:annex_iv",
        "mlflow": "transexplain.exports.mlflow_run:log",
        "wandb": "transexplain.exports.wandb_run:log",
    },
)
