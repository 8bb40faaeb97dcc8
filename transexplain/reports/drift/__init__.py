"""Two runs over one corpus compared: what moved from one model version to the next."""

from transexplain.reports.drift.records import DriftSummary
from transexplain.reports.drift.summary import compare_runs

__all__ = ["DriftSummary", "compare_runs"]
