"""The trust in the cheap method of a mixed audit, in a record and in sentences."""

from collections.abc import Iterator, Sequence

from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_table import Rules, table_of
from transexplain.analysis.groups.mixed_audits import (
    UNEVEN,
    UNRELATED,
    ClassAgreement,
    Mixed,
    MixedGroup,
    class_agreements,
    fraction_of,
    mixed_groups,
    mixed_table,
)
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.redaction import published, within
from transexplain.reports.report_section import Section
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import AuditPlan


def mixed_of(plan: AuditPlan, total: ShardAggregate) -> Mixed | None:
    """The agreement of the cheap with the exact method; None where one method explains all."""
    if plan.exact is None:
        return None
    sample = total.checked.exact
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
    sample = total.checked.exact
    return mixed_table(cells, rules, sample, fraction_of(sample, total.items))


def mixture_sentence(mixed: Mixed | None) -> str:
    """A sentence on the mixed audit for the verdict; "" where it did not mix."""
    if mixed is None:
        return ""
    begun = (
        f"{mixed.method} explained every item in the place of {mixed.exact}, which explained "
        f"{mixed.items:,} randomly sampled"
    )
    if not mixed.groups:
        return f"{begun}."
    corrected = sum(group.interval is not None for group in mixed.groups)
    return f"{begun}; {corrected:,} of {len(mixed.groups):,} group means were corrected by these."


def agreement(mixed: Mixed) -> Iterator[str]:
    """Yield how far the methods agree, one sentence each."""
    if mixed.failed:
        yield (
            f"{mixed.exact} failed on {mixed.failed:,} of {mixed.items + mixed.failed:,} drawn "
            "items; these left the sample, so it does not represent items like them."
        )
    for reason in (UNEVEN, UNRELATED):
        if many := sum(group.reason == reason for group in mixed.groups):
            yield f"In {many:,} of {len(mixed.groups):,} group means {reason}."
    if not mixed.items:
        yield f"No item was explained by both: how far {mixed.method} can be trusted is not known."


SECTION = Section(
    template="mixed.html.j2",
    links=(("mixed", "Cheap and exact"),),
    redaction={
        Mixed: published("method exact share items failed", inside="classes groups", least="items"),
        ClassAgreement: published(
            "target class_name items correlation spread error cheap exact",
            least="items",
        ),
        MixedGroup: published(
            "group target class_name mentions documents items cheap weight correction corrected "
            "interval alone alone_interval needed reason",
            stands=lambda row, fewest: min(row.items, row.documents) >= fewest,
        ),
    },
    of_summary={"mixed": within},
    present=lambda report: report.mixed is not None,
    drawing=lambda _report: {"agreement": agreement},
)
