"""Explanations measured in batches: the loop under both `evaluate` and an audit's sample."""

from transexplain.evaluating.bench import Heartbeat
from transexplain.evaluating.items import Evaluated, evaluate_items
from transexplain.evaluating.request import Evaluation

__all__ = ["Evaluated", "Evaluation", "Heartbeat", "evaluate_items"]
