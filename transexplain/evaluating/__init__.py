"""Explanations measured in batches: the loop under both `evaluate` and an audit's sample."""

from transexplain.evaluating.evaluate_items import Evaluated, evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat

__all__ = ["Evaluated", "Evaluation", "Heartbeat", "evaluate_items"]
