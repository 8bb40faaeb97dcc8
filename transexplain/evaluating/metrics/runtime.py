"""Runtime: the seconds that an explanation takes."""

from transexplain.evaluating.metrics.metric_table import Case, Scored


def runtime(case: Case) -> Scored:
    """Seconds of wall clock, the item's share of its batch (Ali et al. 2022, appendix E)."""
    return Scored(value=case.seconds)
