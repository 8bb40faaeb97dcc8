"""Scores of explanations as tables with intervals, tests and curves; `tabulate` makes them."""

from transexplain.reports.evaluation.evaluation_tables import tables_of, tabulate
from transexplain.reports.evaluation.score_statistics import EvaluationSummary, Table

__all__ = ["EvaluationSummary", "Table", "tables_of", "tabulate"]
