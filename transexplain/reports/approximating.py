"""Relevance that an explainer predicted: what it approximates, and how near it is known to come."""

from transexplain.reports.phrasing import number
from transexplain.types.scores import Approximation

#: share of the items that a mixed audit explains by the teacher, too, where one is proposed
_SHARE = 0.05


def nearness(found: Approximation) -> str:
    """How near the explainer came to its teacher when it was trained, without a full stop."""
    correlation, error = found.rank_correlation, found.relative_error
    if not found.items or correlation is None or error is None:
        return f"how near it comes to {found.teacher} was not measured when it was trained"
    items = "1 item" if found.items == 1 else f"{found.items:,} items"
    return (
        f"rank correlation {number(correlation)} (mean) and relative error {number(error)} "
        f"(median) on {items} held out when it was trained"
    )


def approximation_sentences(found: Approximation) -> str:
    """That relevance was predicted, of what, and how near it came; two sentences."""
    return (
        f"Relevance was predicted by an explainer that approximates {found.teacher}: "
        f"{nearness(found)}. There is no ledger, so whether an explanation adds up to its logit is "
        "not known."
    )


def sampled(found: Approximation) -> str:
    """What of a specification would measure the explainer on the audit's own items."""
    return f"explain: {{method: learned, exact: {found.teacher}, exact_sample: {_SHARE:g}}}"


def method_of(method: str, found: Approximation | None) -> str:
    """A method's name, with what it approximates."""
    return method if found is None else f"{method}, which approximates {found.teacher}"
