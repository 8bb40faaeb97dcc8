"""Quality scores of the explanations of items that mention a group."""

from collections.abc import Mapping
from dataclasses import dataclass

from transexplain.analysis.groups.class_totals import GapTotals
from transexplain.analysis.groups.intervals import MIN_ENTITIES
from transexplain.evaluating.metrics import metric_facts
from transexplain.reports.evaluation.evaluation_tables import titled
from transexplain.reports.redaction import RedactionRules, at_least, kept, within
from transexplain.reports.sections.measured_faithfulness import audited_label
from transexplain.store import run_totals
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityScore:
    """One metric of faithfulness over the sampled items that mention a group."""

    target: str
    metric: str
    title: str
    items: int  #: measured on
    mean: float | None  #: None: too few items


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupQuality:
    """How good the explanations are of the items that mention a group, or of all items."""

    group: str
    items: int  #: with a ledger
    gap: float | None  #: mean |gap| / sum of |terms|; None: no ledgers, or too few items
    scores: tuple[QualityScore, ...]  #: of the metrics that the audit's sample was measured by


ALL_ITEMS = "all items"
MIN_ITEMS = MIN_ENTITIES  #: a mean over fewer says more about luck than about the explanations


def quality_by_group(db: Database, run: AuditRun, totals: GapTotals) -> tuple[GroupQuality, ...]:
    """One row per mentioned group, by name, after that of the reference or of all items.

    Nothing where there are neither ledgers nor scores. A metric of the whole sample, which no
    item has a value of, is left out.
    """
    gaps = {group: run_totals.MeanOfItems(*mean) for group, mean in totals.means().items()}
    plan = run.plan.evaluation
    scores = run_totals.mean_scores(db, run.id, audited_label(run, plan)) if plan else {}
    groups = {group for group in (*gaps, *(key[0] for key in scores)) if group != run_totals.ALL}
    if not groups:
        return ()
    reference = run.plan.reference
    base = reference if isinstance(reference, str) and reference in groups else run_totals.ALL
    order = (base, *sorted(groups - {base}))
    return tuple(_quality(group, run, gaps, scores) for group in order)


def _quality(
    group: str,
    run: AuditRun,
    gaps: Mapping[str, run_totals.MeanOfItems],
    scores: Mapping[tuple[str, str, str], run_totals.MeanOfItems],
) -> GroupQuality:
    plan = run.plan.evaluation
    gap = gaps.get(group, run_totals.MeanOfItems(0, 0.0))
    measures = dict.fromkeys(key[1:] for key in scores)
    specs = {spec.label: spec for spec in plan.metrics} if plan else {}
    measured = (
        (target, specs[metric], scores.get((group, target, metric), run_totals.MeanOfItems(0, 0.0)))
        for target, metric in sorted(measures, key=lambda key: (key[0], list(specs).index(key[1])))
        if not metric_facts(specs[metric].name).corpus
    )
    return GroupQuality(
        group=group or ALL_ITEMS,
        items=gap.items,
        gap=gap.mean if gap.items >= MIN_ITEMS else None,
        scores=tuple(
            QualityScore(
                target=target,
                metric=spec.label,
                title=titled(spec),
                items=found.items,
                mean=found.mean if found.items >= MIN_ITEMS else None,
            )
            for target, spec, found in measured
        ),
    )


RULES: Mapping[type, RedactionRules] = {
    GroupQuality: RedactionRules(
        stands=at_least("items"), fields={"scores": within, **kept("group items gap")}
    ),
    QualityScore: RedactionRules(
        stands=at_least("items"), fields=kept("target metric title items mean")
    ),
}
