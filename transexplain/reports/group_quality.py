"""Whether explanations are as good where a group is mentioned; and what was left out of it."""

from collections import Counter
from collections.abc import Mapping

from transexplain.bias.gap_totals import GapTotals
from transexplain.bias.intervals import MIN_ENTITIES
from transexplain.metrics import metric_facts
from transexplain.plans import AuditRun
from transexplain.reports.evaluation.faithfulness import audited_label
from transexplain.reports.evaluation.tables import titled
from transexplain.reports.group_records import Dropped, GroupQuality, QualityScore
from transexplain.store import mentioned
from transexplain.store.database import Database

ALL_ITEMS = "all items"
MIN_ITEMS = MIN_ENTITIES  #: a mean over fewer says more about luck than about the explanations
_SHOWN = 5  #: entities of a group that were left out


def quality_by_group(
    db: Database, run: AuditRun, totals: GapTotals | None = None
) -> tuple[GroupQuality, ...]:
    """One row per mentioned group, by name, after that of the reference or of all items.

    Nothing where there are neither ledgers nor scores. A metric of the whole sample, which no
    item has a value of, is left out. Gaps are those of `totals`; without any, all rows are read.
    """
    if totals is None:
        gaps = mentioned.mean_gaps(db, run.id)
    else:
        gaps = {group: mentioned.MeanOfItems(*mean) for group, mean in totals.means().items()}
    plan = run.plan.evaluation
    scores = mentioned.mean_scores(db, run.id, audited_label(run, plan)) if plan else {}
    groups = {group for group in (*gaps, *(key[0] for key in scores)) if group != mentioned.ALL}
    if not groups:
        return ()
    asked = run.plan.reference
    base = asked if isinstance(asked, str) and asked in groups else mentioned.ALL
    order = (base, *sorted(groups - {base}))
    return tuple(_quality(group, run, gaps, scores) for group in order)


def dropped_by_group(counts: Mapping[tuple[str, str], int]) -> tuple[Dropped, ...]:
    """What was left out as ambiguous, by group; `counts` are of (group, entity)."""
    groups: dict[str, Counter[str]] = {}
    for (group, entity), count in sorted(counts.items()):
        groups.setdefault(group, Counter())[entity] += count
    return tuple(
        Dropped(group=group, count=of.total(), entities=tuple(of.most_common(_SHOWN)))
        for group, of in groups.items()
    )


def _quality(
    group: str,
    run: AuditRun,
    gaps: Mapping[str, mentioned.MeanOfItems],
    scores: Mapping[tuple[str, str, str], mentioned.MeanOfItems],
) -> GroupQuality:
    plan = run.plan.evaluation
    gap = gaps.get(group, mentioned.MeanOfItems(0, 0.0))
    asked = dict.fromkeys(key[1:] for key in scores)
    specs = {spec.label: spec for spec in plan.metrics} if plan else {}
    measured = (
        (target, specs[metric], scores.get((group, target, metric), mentioned.MeanOfItems(0, 0.0)))
        for target, metric in sorted(asked, key=lambda key: (key[0], list(specs).index(key[1])))
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
