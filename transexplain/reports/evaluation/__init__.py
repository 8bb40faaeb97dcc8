"""Scores of explanations as tables with intervals, tests and curves; `tabulate` makes them."""

from transexplain.reports.evaluation.evaluation_records import EvaluationSummary, Table
from transexplain.reports.evaluation.evaluation_tables import tables_of, tabulate

__all__ = ["EvaluationSummary", "Table", "tables_of", "tabulate"]
