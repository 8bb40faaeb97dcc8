"""Conservation gap: how exactly the relevance of an explanation adds up to its logit."""

from transexplain.evaluating.metrics.metric_table import Case, Scored, unmeasured


def conservation_gap(case: Case) -> Scored:
    """|logit - sum of the ledger| as a share of the sum of |terms| (Bach et al. 2015, Eq. 2).

    A method without a ledger promises no conservation and is not measured.
    """
    ledger = case.attribution.ledger
    if ledger is None:
        return unmeasured("the method keeps no ledger")
    return Scored(value=ledger.relative_gap)
