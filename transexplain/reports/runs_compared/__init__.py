"""Compares two runs over one corpus: what changed from one model version to the next."""

from transexplain.reports.runs_compared.comparison_records import DriftSummary
from transexplain.reports.runs_compared.comparison_summary import compare_runs

__all__ = ["DriftSummary", "compare_runs"]
