"""Compares two runs in one record."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy.stats import binomtest

from transexplain.analysis.groups.answers import Answer, answer_of, answers_of
from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.group_cells import reference_name
from transexplain.analysis.groups.intervals import t_interval
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.paired_runs import GroupShift, shift_table
from transexplain.errors import ConfigurationError, TargetError
from transexplain.reports import forest
from transexplain.reports.evaluation.score_statistics import FEWEST, intervals
from transexplain.reports.page import page
from transexplain.reports.phrasing import class_phrase, things
from transexplain.reports.report_formats import schema_of
from transexplain.reports.report_section import Statement, merged, of_run, statements
from transexplain.reports.runs_compared.compared_items import (
    Walk,
    answer_changes,
    clusters_of,
    found_changes,
    of_plans,
    rate_changes,
    walk_pairs,
)
from transexplain.reports.runs_compared.comparison_records import (
    SCHEMA_VERSION,
    ChangeCount,
    ClassChange,
    ComparedMean,
    ComparedRun,
    Disparity,
    DriftSummary,
    GroupChanges,
    Predictions,
    Transition,
)
from transexplain.reports.sections.group_relevance import rules_of
from transexplain.reports.sections.group_section import groups_of
from transexplain.reports.sections.item_fates import counts_of
from transexplain.reports.verdict_words import CHANGES, verdict_changes
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.shard_digests import refuse_damaged
from transexplain.types.findings import Decision, GroupStatistic
from transexplain.types.plans import AuditPlan, AuditRun
from transexplain.version import __version__

_ALPHA = 0.05


def headline(
    sides: tuple[ComparedRun, ComparedRun],
    disparities: Sequence[Disparity],
    predictions: Predictions,
    changes: Sequence[ClassChange],
    groups: GroupChanges | None,
    unit: str,
) -> tuple[Statement, ...]:
    """The sentences at the top: what became of predictions first, of relevance last."""
    digest = sides[0].model_digest
    return tuple(
        statements(
            "comparison_headline.txt.j2",
            sides=sides,
            disparities=disparities,
            predictions=predictions,
            changes=changes,
            groups=groups,
            unit={"logits": "logit"}.get(unit, unit),
            alpha=_ALPHA,
            correlation=correlation,
            same_model=digest and digest == sides[1].model_digest,
            **CHANGES,
            **(_of_relevance(groups) if groups else {}),
        )
    )


def _of_relevance(groups: GroupChanges) -> dict[str, Any]:
    apart = [shift for shift in groups.shifts if shift.apart_verdict == "difference"]
    return {
        "newly": list(dict.fromkeys(row.group for row in newly(groups))),
        "gone": list(dict.fromkeys(row.group for row in gone(groups))),
        "apart": sorted(apart, key=lambda shift: -abs(shift.apart or 0.0)),
    }


def correlation(value: float) -> str:
    """A correlation in three decimals, with a true minus sign."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def newly(groups: GroupChanges) -> list[Transition]:
    """Groups whose relevance differs from their reference's now and did not, or turned."""
    return [row for row in groups.transitions if row.after == "difference" and _moved(row)]


def gone(groups: GroupChanges) -> list[Transition]:
    """Groups whose relevance differed from their reference's and does not now, or turned."""
    return [row for row in groups.transitions if row.before == "difference" and _moved(row)]


def _moved(row: Transition) -> bool:
    return row.turned or row.before != row.after


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
    for run in (old, new):
        refuse_damaged(db, run.id)
    known = of_plans(old.plan, new.plan)
    walk = walk_pairs(db, Walk.of(old, new), known, force=force)
    if not walk.common:
        raise ConfigurationError(
            f"runs {old.id} and {new.id} explained no item in common: items are the same where "
            "their ids and their contents are, so both need the same data (or the same `data.id` "
            f"column); of the ids in both, {walk.other_content:,} have different contents, and "
            f"{walk.unknown_content:,} contents that cannot be compared"
        )
    disparities = (*known, *walk.disparities.values())
    sides = (
        of_run(ComparedRun, old, counts=counts_of(db, old)),
        of_run(ComparedRun, new, counts=counts_of(db, new)),
    )
    predictions, changes = _predictions(walk), tuple(_changes(walk, new.plan.targets))
    groups = _groups(db, old, new, walk)
    unit = " and ".join(sorted(walk.units)) or "logits"
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
        other_class=walk.other_class,
        groups=groups,
    )


def _audit(db: Database, run_id: str) -> AuditRun:
    run = runs.get(db, run_id)
    if run.plan.task == "evaluation":
        raise ConfigurationError(f"run {run.id} is no audit; only audits can be compared")
    return run


def _predictions(walk: Walk) -> Predictions:
    lost, gained = walk.right[True, False], walk.right[False, True]
    labelled = walk.right.total()
    return Predictions(
        common=walk.common,
        other_content=walk.other_content,
        unknown_content=walk.unknown_content,
        changed=walk.changed.total(),
        counts=tuple(
            ChangeCount(before=was, after=now, items=count)
            for (was, now), count in sorted(walk.changed.items(), key=lambda e: (-e[1], e[0]))
        ),
        shown=walk.shown,
        labelled=labelled,
        right_before=walk.right[True, True] + lost,
        right_after=walk.right[True, True] + gained,
        lost=lost,
        gained=gained,
        p=mcnemar_p(lost, gained) if labelled else None,
        found=found_changes(walk.found),
        answers=answer_changes(walk.answers, walk.unknown_answers),
    )


def mcnemar_p(lost: int, gained: int) -> float:
    """Exact two-sided p of as many items lost as gained (McNemar 1947); 1 where none changed."""
    changed = lost + gained
    return float(binomtest(lost, changed, 0.5).pvalue) if changed else 1.0


def _changes(walk: Walk, targets: Sequence[str]) -> Iterator[ClassChange]:
    place = {target: number for number, target in enumerate(targets)}
    for key in sorted(walk.pairs, key=lambda key: (place.get(key[0], len(place)), key)):
        pairs = walk.pairs[key]
        before, after = np.frombuffer(pairs.before), np.frombuffer(pairs.after)
        moved = after - before
        yield ClassChange(
            target=key[0],
            class_name=key[1],
            items=len(moved),
            logit_before=float(before.mean()),
            logit_after=float(after.mean()),
            logit_change=mean_over_items(array("d", moved.tobytes())),
            logit_change_size=float(np.abs(moved).mean()),
            agreement=mean_over_items(pairs.agreement) if pairs.agreement else None,
            without_agreement=pairs.without_agreement,
            least_alike=pairs.least_alike,
        )


def mean_over_items(values: "array[float]") -> ComparedMean:
    """The mean of at least one value, with a bootstrap interval over items from five on."""
    numbers = np.frombuffer(values)
    if len(numbers) < FEWEST:
        interval = None
    elif len(numbers) <= _BOOTSTRAP_TO:
        interval = intervals(numbers[None, :], seed=0)[0]
    else:
        interval = t_interval(values)
    return ComparedMean(mean=float(numbers.mean()), interval=interval, items=len(numbers))


def _groups(db: Database, old: AuditRun, new: AuditRun, walk: Walk) -> GroupChanges | None:
    if not (old.plan.groups and new.plan.groups):
        return None
    totals = merged(db, old.id), merged(db, new.id)
    before, after = (
        groups_of(db, run, total) for run, total in zip((old, new), totals, strict=True)
    )
    assert before is not None and after is not None  # both plans name groups
    plan = new.plan
    shifts = shift_table(walk.mentions, rules_of(plan))
    return GroupChanges(
        rates=rate_changes(
            walk.rates,
            _answers(plan, after.outcomes),
            plan.model.classes,
            plan.matters.rates,
            clusters=clusters_of(*(total.outcomes for total in totals)),
            whole=[group.name for group in plan.groups if is_whole(plan, group.name)],
        ),
        verdicts=verdict_changes(before.verdicts, after.verdicts),
        shifts=tuple(shifts),
        transitions=tuple(_transitions(before.rows, after.rows)),
        unpaired=walk.mentions.unpaired,
        reference=reference_name(shift.reference for shift in shifts),
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
    old, new = (
        {(row.target, row.class_name, row.group): row for row in rows} for rows in (before, after)
    )
    for key in sorted({*old, *new}):
        was, now = old.get(key), new.get(key)
        target, class_name, group = key
        if group in (was and was.reference, now and now.reference):
            continue
        moves = [(row.difference or 0.0) * row.flagged for row in (was, now) if row]
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


class ShiftTable(NamedTuple):
    """The groups of one target and class, those that rose most first."""

    target: str
    class_name: str
    rows: tuple[GroupShift, ...]
    axis: forest.ForestAxis


def render(summary: DriftSummary) -> str:
    """One self-contained HTML page."""
    groups = summary.groups
    return page(
        "drift.html.j2",
        s=summary,
        tables=tuple(_tables(groups)) if groups else (),
        verdicts=_matrix(groups.transitions) if groups else (),
        moves=_moves(groups) if groups else (),
        correlation=correlation,
        noun=lambda count: things(summary.modality, count),
        class_phrase=lambda target, name: class_phrase(target, name, summary.classes),
    )


def _tables(groups: GroupChanges) -> Iterator[ShiftTable]:
    for key in dict.fromkeys((row.target, row.class_name) for row in groups.shifts):
        rows = [row for row in groups.shifts if (row.target, row.class_name) == key]
        rows.sort(key=lambda row: (row.interval is None, -row.change, row.group))
        axis = forest.axis_of([(row.change, row.interval) for row in rows], groups.practical)
        yield ShiftTable(*key, tuple(rows), axis)


def _matrix(transitions: Sequence[Transition]) -> list[tuple[str, list[int]]]:
    """Return how many comparisons had which verdict before (rows) and after (columns)."""
    counts = Counter((move.before, move.after) for move in transitions)
    ends: list[Decision | None] = [*get_args(Decision), None]
    return [(was or "not mentioned", [counts[was, now] for now in ends]) for was in ends]


def _moves(groups: GroupChanges) -> tuple[Transition, ...]:
    """Comparisons that became or ceased to be a difference, then those that changed otherwise."""
    first = dict.fromkeys([*newly(groups), *gone(groups)])
    rest = (row for row in groups.transitions if row.before != row.after)
    return tuple(first | dict.fromkeys(rest))


def schema() -> dict[str, Any]:
    """The JSON Schema that every comparison satisfies."""
    return schema_of(DriftSummary, "comparison", SCHEMA_VERSION)
