"""From a metric's result to the record that is stored."""

from transexplain.evaluations import MetricScore
from transexplain.metrics.case import Case, Scored


def score_of(label: str, metric: str, case: Case, scored: Scored) -> MetricScore:
    """The record of an explanation's score by `metric`; `label` names the method."""
    return MetricScore(
        item_id=case.item.id,
        method=label,
        target=case.attribution.target,
        metric=metric,
        value=scored.value,
        curve=scored.curve,
        reason=scored.reason,
        detail=scored.detail,
    )


def not_scored(item_id: str, label: str, target: str, metric: str, reason: str) -> MetricScore:
    """The record of an explanation that is not there."""
    return MetricScore(
        item_id=item_id, method=label, target=target, metric=metric, value=None, reason=reason
    )
