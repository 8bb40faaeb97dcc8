"""A mixed audit in its report: its record and its sentences."""

from collections.abc import Iterator, Sequence

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.cells import Cell, cells_of
from transexplain.bias.exact_sample import ExactSample
from transexplain.bias.group_table import Rules, table_of
from transexplain.bias.mixed import Mixed, class_agreements, fraction_of, mixed_groups
from transexplain.bias.mixed_table import mixed_table
from transexplain.bias.prediction_powered import UNEVEN, UNRELATED
from transexplain.findings import GroupStatistic
from transexplain.plans import AuditPlan


def mixed_of(plan: AuditPlan, total: ShardAggregate) -> Mixed | None:
    """What the exact sample says of the cheap method; None where the method explains alone."""
    if plan.exact is None:
        return None
    sample = total.checked.exact or ExactSample()
    fraction = fraction_of(sample, total.items)
    return Mixed(
        method=plan.method.name,
        exact=plan.exact.method.name,
        share=plan.exact.share,
        items=sample.items,
        failed=sample.failed,
        classes=class_agreements(sample.agreements),
        groups=mixed_groups(cells_of(total.entities), sample, fraction),
    )


def compared(
    plan: AuditPlan, total: ShardAggregate, cells: Sequence[Cell], rules: Rules
) -> list[GroupStatistic]:
    """The group table, corrected where the audit mixed."""
    if plan.exact is None:
        return table_of(cells, rules)
    sample = total.checked.exact or ExactSample()
    return mixed_table(cells, rules, sample, fraction_of(sample, total.items))


def told(found: Mixed | None) -> str:
    """That the audit mixed, in one sentence for the verdict; "" where it did not."""
    if found is None:
        return ""
    begun = (
        f"{found.method} explained every item in the place of {found.exact}, which explained "
        f"{found.items:,} randomly sampled"
    )
    if not found.groups:
        return f"{begun}."
    corrected = sum(one.interval is not None for one in found.groups)
    return f"{begun}; {corrected:,} of {len(found.groups):,} group means were corrected by these."


def agreement(found: Mixed) -> Iterator[str]:
    """How far the methods agree, one sentence each."""
    if found.failed:
        yield (
            f"{found.exact} failed on {found.failed:,} of {found.items + found.failed:,} drawn "
            "items; these left the sample, so nothing is said of items like them."
        )
    for reason in (UNEVEN, UNRELATED):
        if many := sum(one.reason == reason for one in found.groups):
            yield f"In {many:,} of {len(found.groups):,} group means {reason}."
    if not found.items:
        yield f"No item was explained by both: how far {found.method} can be trusted is not known."
