"""Compares two runs in one record."""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from scipy.stats import binomtest

from transexplain.analysis.groups.answers import Answer, answer_of, answers_of
from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.group_cells import reference_name
from transexplain.analysis.groups.intervals import t_interval
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.paired_runs import shift_table
from transexplain.errors import ConfigurationError, TargetError
from transexplain.reports.evaluation.score_statistics import FEWEST, intervals
from transexplain.reports.report_section import merged
from transexplain.reports.runs_compared.compared_items import ClassPairs, Walk, walk_pairs
from transexplain.reports.runs_compared.compared_plans import of_plans
from transexplain.reports.runs_compared.compared_rates import clusters_of
from transexplain.reports.runs_compared.comparison_headline import headline
from transexplain.reports.runs_compared.comparison_records import (
    ChangeCount,
    ClassChange,
    DriftSummary,
    GroupChanges,
    Mean,
    Predictions,
    Side,
    Transition,
)
from transexplain.reports.sections.group_relevance import rules_of
from transexplain.reports.sections.group_section import groups_of
from transexplain.reports.sections.item_fates import counts_of
from transexplain.reports.verdict_changes import verdict_changes
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.shard_digests import refuse_damaged
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import AuditPlan, AuditRun
from transexplain.version import __version__

#: items up to which the interval is a bootstrap's; from there on Student's is the same
_BOOTSTRAP_TO = 10_000


def compare_runs(db: Database, before: str, after: str, *, force: bool = False) -> DriftSummary:
    """Two audits of one corpus, paired by item and by mention of an entity.

    Explanations are walked a page at a time; what stays in memory is 24 bytes per item, target
    and class, and a row per entity.

    Args:
        db: the store.
        before: id, unique beginning of one, or `latest`.
        after: the same of the run that it is compared with.
        force: compare what there is although more than the model differs; the record says what.

    Raises:
        ConfigurationError: an unknown run, one that is no audit, no item in common, or, without
            `force`, runs that are not comparable, with a list of what differs.
        DamagedRowError: results are not those that were saved.
    """
    old, new = _audit(db, before), _audit(db, after)
    for one in (old, new):
        refuse_damaged(db, one.id)
    known = of_plans(old.plan, new.plan)
    found = walk_pairs(db, Walk.of(old, new), known, force=force)
    if not found.common:
        raise ConfigurationError(
            f"runs {old.id} and {new.id} explained no item in common: items are the same where "
            "their ids and their contents are, so both need the same data (or the same `data.id` "
            f"column); of the ids in both, {found.other_content:,} have different contents, and "
            f"{found.unknown_content:,} contents that cannot be compared"
        )
    disparities = (*known, *found.disparities.values())
    sides = (_side(db, old), _side(db, new))
    predictions, changes = _predictions(found), tuple(_changes(found, new.plan.targets))
    groups = _groups(db, old, new, found)
    unit = " and ".join(sorted(found.units)) or "logits"
    return DriftSummary(
        headline=headline(sides, disparities, predictions, changes, groups, unit),
        version=__version__,
        before=sides[0],
        after=sides[1],
        modality=new.plan.model.modality,
        classes=new.plan.model.classes,
        method=new.plan.method.name,
        unit=unit,
        disparities=disparities,
        predictions=predictions,
        changes=changes,
        other_class=found.other_class,
        groups=groups,
    )


def _audit(db: Database, run_id: str) -> AuditRun:
    found = runs.get(db, run_id)
    if found.plan.task == "evaluation":
        raise ConfigurationError(f"run {found.id} is no audit; only audits can be compared")
    return found


def _side(db: Database, run: AuditRun) -> Side:
    return Side(
        run_id=run.id,
        name=run.plan.name,
        state=run.state,
        created=run.created,
        model=run.plan.model.source,
        model_digest=run.plan.model.digest,
        dataset=run.plan.dataset.source,
        counts=counts_of(db, run),
    )


def _predictions(found: Walk) -> Predictions:
    lost, gained = found.right[True, False], found.right[False, True]
    labelled = found.right.total()
    return Predictions(
        common=found.common,
        other_content=found.other_content,
        unknown_content=found.unknown_content,
        changed=found.changed.total(),
        counts=tuple(
            ChangeCount(before=was, after=now, items=count)
            for (was, now), count in sorted(
                found.changed.items(), key=lambda one: (-one[1], one[0])
            )
        ),
        shown=found.shown,
        labelled=labelled,
        right_before=found.right[True, True] + lost,
        right_after=found.right[True, True] + gained,
        lost=lost,
        gained=gained,
        p=mcnemar_p(lost, gained) if labelled else None,
        found=found.found.rows() if found.found else (),
        answers=found.answers.record() if found.answers else None,
    )


def mcnemar_p(lost: int, gained: int) -> float:
    """Exact two-sided p of as many items lost as gained (McNemar 1947); 1 where none changed."""
    changed = lost + gained
    return float(binomtest(lost, changed, 0.5).pvalue) if changed else 1.0


def _changes(found: Walk, targets: Sequence[str]) -> Iterator[ClassChange]:
    place = {target: number for number, target in enumerate(targets)}
    keys = sorted(found.pairs, key=lambda key: (place.get(key[0], len(place)), key))
    for key in keys:
        yield _change(*key, found.pairs[key])


def _change(target: str, class_name: str, pairs: ClassPairs) -> ClassChange:
    before, after = np.frombuffer(pairs.before), np.frombuffer(pairs.after)
    moved = after - before
    return ClassChange(
        target=target,
        class_name=class_name,
        items=len(moved),
        logit_before=float(before.mean()),
        logit_after=float(after.mean()),
        logit_change=mean_over_items(array("d", moved.tobytes())),
        logit_change_size=float(np.abs(moved).mean()),
        agreement=mean_over_items(pairs.agreement) if pairs.agreement else None,
        without_agreement=pairs.without_agreement,
        least_alike=pairs.least_alike,
    )


def mean_over_items(values: "array[float]") -> Mean:
    """The mean of at least one value, with a bootstrap interval over items from five on."""
    numbers = np.frombuffer(values)
    if len(numbers) < FEWEST:
        interval = None
    elif len(numbers) <= _BOOTSTRAP_TO:
        interval = intervals(numbers[None, :], seed=0)[0]
    else:
        interval = t_interval(values)
    return Mean(mean=float(numbers.mean()), interval=interval, items=len(numbers))


def _groups(db: Database, old: AuditRun, new: AuditRun, found: Walk) -> GroupChanges | None:
    if not (old.plan.groups and new.plan.groups):
        return None
    totals = merged(db, old.id), merged(db, new.id)
    before, after = (
        groups_of(db, run, total) for run, total in zip((old, new), totals, strict=True)
    )
    assert before is not None and after is not None  # both plans name groups
    plan = new.plan
    shifts = shift_table(found.mentions, rules_of(plan))
    return GroupChanges(
        rates=found.rates.rows(
            _answers(plan, after.outcomes),
            plan.model.classes,
            plan.matters.rates,
            clusters=clusters_of(*(total.outcomes for total in totals)),
            whole=[group.name for group in plan.groups if is_whole(plan, group.name)],
        ),
        verdicts=verdict_changes(before.verdicts, after.verdicts),
        shifts=tuple(shifts),
        transitions=tuple(_transitions(before.rows, after.rows)),
        unpaired=found.mentions.unpaired,
        reference=reference_name(one.reference for one in shifts),
        practical=plan.practical,
        correction=plan.correction,
    )


def _answers(plan: AuditPlan, outcomes: Sequence[Outcome]) -> list[Answer]:
    """The predictions whose rates the later run's report compares; of classes and labels alone."""
    if plan.model.head not in ("classes", "labels"):
        return []
    classes, several = plan.model.classes, plan.several is not None
    known: dict[str, Answer] = {}
    with suppress(TargetError):
        known = {answer.name: answer for answer in answers_of(plan)}
    return [
        known.get(name) or answer_of(name, (classes.index(name),), len(classes), several=several)
        for name in dict.fromkeys(row.prediction for row in outcomes)
        if name in known or name in classes
    ]


def _transitions(
    before: Sequence[GroupStatistic], after: Sequence[GroupStatistic]
) -> Iterator[Transition]:
    old, new = _by_key(before), _by_key(after)
    for key in sorted({*old, *new}):
        was, now = old.get(key), new.get(key)
        target, class_name, group = key
        if group in (was and was.reference, now and now.reference):
            continue
        moves = [(one.difference or 0.0) * one.flagged for one in (was, now) if one]
        yield Transition(
            group=group,
            target=target,
            class_name=class_name,
            before=was.verdict if was else None,
            after=now.verdict if now else None,
            difference_before=was.difference if was else None,
            difference_after=now.difference if now else None,
            turned=len(moves) == 2 and moves[0] * moves[1] < 0.0,
        )


def _by_key(rows: Sequence[GroupStatistic]) -> dict[tuple[str, str, str], GroupStatistic]:
    return {(row.target, row.class_name, row.group): row for row in rows}
