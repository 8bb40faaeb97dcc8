"""Runtime: the seconds that an explanation takes."""

from transexplain.evaluating.metrics.metric_table import Case, Scored


def runtime(case: Case) -> Scored:
    """Seconds of wall clock, the item's share of its batch (Ali et al. 2022, appendix E).

    The method has explained an item before, so that what it sets up once is in no time.
    """
    return Scored(value=case.seconds)
