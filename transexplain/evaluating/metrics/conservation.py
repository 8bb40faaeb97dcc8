"""Conservation: whether relevance sums to the logit, and whether the ledger's books close."""

from math import fsum

from transexplain.evaluating.metrics.metric_table import Case, Scored, unmeasured


def conservation(case: Case) -> Scored:
    """|f - S| / |f|: f the explained logit, S the relevance of all positions, special ones too.

    Ali et al. 2022, section 6.1 and appendix D. It asks nothing of the method: what a rule or a
    bias takes is missing from S, and S of a method whose unit is no logit (attention) is compared
    as it is. The detail holds f and S, which the correlation over items is made of.
    """
    found = case.attribution
    summed = fsum([*found.relevance.reshape(-1).tolist(), *found.prefix_relevance])
    if found.logit == 0:
        return unmeasured("the explained logit is 0")
    return Scored(
        value=abs(found.logit - summed) / abs(found.logit), detail={"pair": [found.logit, summed]}
    )


def ledger_gap(case: Case) -> Scored:
    """|logit - sum of the ledger| as a share of the sum of |terms|: whether the books close.

    What a rule loses and biases take is booked, so that this judges the bookkeeping, not whether
    relevance is conserved. A method without a ledger is not measured.
    """
    ledger = case.attribution.ledger
    if ledger is None:
        return unmeasured("the method keeps no ledger")
    return Scored(value=ledger.relative_gap)
