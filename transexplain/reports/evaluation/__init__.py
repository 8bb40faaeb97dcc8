"""Scores of explanations as tables with intervals, tests and curves; `tabulate` makes them."""

from transexplain.reports.evaluation.evaluation_tables import tables_of, tabulate
from transexplain.reports.evaluation.score_statistics import EvaluationSummary, ScoreTable

__all__ = ["EvaluationSummary", "ScoreTable", "tables_of", "tabulate"]
