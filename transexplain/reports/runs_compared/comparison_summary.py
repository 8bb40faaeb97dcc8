"""Compares two runs in one record, with findings in words: what changed, what did not, what is
unknown.
"""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import binomtest

from transexplain.analysis.groups.group_cells import reference_name
from transexplain.analysis.groups.intervals import t_interval
from transexplain.analysis.groups.paired_runs import shift_table
from transexplain.errors import ConfigurationError
from transexplain.reports.evaluation.evaluation_text import probability
from transexplain.reports.evaluation.score_statistics import FEWEST, intervals
from transexplain.reports.phrasing import named, number, signed, things
from transexplain.reports.report_section import Statement, merged
from transexplain.reports.runs_compared import compared_items
from transexplain.reports.runs_compared.compared_items import ClassPairs, Walk, walk_pairs
from transexplain.reports.runs_compared.comparison_records import (
    ClassChange,
    Disparity,
    DriftSummary,
    FlipCount,
    GroupChanges,
    Mean,
    Predictions,
    Side,
    Transition,
)
from transexplain.reports.sections.group_relevance import group_rows, rules_of
from transexplain.reports.sections.item_fates import counts_of
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import AuditRun
from transexplain.version import __version__

_ALPHA = 0.05
_SHOWN = 6


def headline(
    sides: tuple[Side, Side],
    disparities: Sequence[Disparity],
    predictions: Predictions,
    changes: Sequence[ClassChange],
    groups: GroupChanges | None,
    unit: str,
) -> tuple[Statement, ...]:
    """The sentences at the top, the most important facts first."""
    return (
        *_what(sides, disparities),
        *_left_out(predictions),
        *_unfinished(sides),
        *_flips(predictions),
        *_correctness(predictions),
        *_agreement(changes),
        *_group_statements(groups, {"logits": "logit"}.get(unit, unit)),
    )


def correlation(value: float) -> str:
    """A correlation in three decimals, with a true minus sign."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def newly(groups: GroupChanges) -> list[Transition]:
    """Groups that differ from their reference now and did not, or the other way round."""
    return [one for one in groups.transitions if one.after == "difference" and _moved(one)]


def gone(groups: GroupChanges) -> list[Transition]:
    """Groups that differed from their reference and do not now, or the other way round."""
    return [one for one in groups.transitions if one.before == "difference" and _moved(one)]


def _moved(one: Transition) -> bool:
    return one.turned or one.before != one.after


def _what(sides: tuple[Side, Side], disparities: Sequence[Disparity]) -> Iterator[Statement]:
    if sides[0].model_digest and sides[0].model_digest == sides[1].model_digest:
        yield Statement(kind="fact", text="Both runs audited the same model.")
    if disparities:
        yield Statement(
            kind="problem",
            text="More than the model differs, and the comparison was forced: "
            f"{named([one.what for one in disparities])}. Changes may come from there.",
        )


def _left_out(found: Predictions) -> Iterator[Statement]:
    left = found.other_content + found.unknown_content
    if not left:
        return
    reasons = [
        f"of {count:,} {why}"
        for count, why in (
            (found.other_content, "the contents differ"),
            (found.unknown_content, "the contents are not stored, so they cannot be compared"),
        )
        if count
    ]
    yield Statement(
        kind="problem",
        text=f"All below rests on {things('', found.common)} with the same content in both runs. "
        f"{left:,} more {'shares' if left == 1 else 'share'} an id and "
        f"{'is' if left == 1 else 'are'} left out: {named(reasons)}.",
    )


def _unfinished(sides: tuple[Side, Side]) -> Iterator[Statement]:
    for side in sides:
        missing = side.counts.total - side.counts.done
        if missing:
            yield Statement(
                kind="problem",
                text=f"{missing:,} of {side.counts.total:,} items of run {side.run_id} have no "
                f"explanation (it is {side.state}); the others are compared.",
            )


def _flips(found: Predictions) -> Iterator[Statement]:
    if not found.flips:
        alike = f"All {found.common:,} items in both are predicted alike."
        if found.common == 1:
            alike = "The only item in both is predicted alike."
        yield Statement(kind="clear", text=alike)
        return
    most = found.counts[0]
    yield Statement(
        kind="fact",
        text=f"{found.flips:,} of {found.common:,} items in both "
        f"({100 * found.flips / found.common:.1f}\u00a0%) are predicted "
        f"differently, most often {most.after} instead of {most.before} ({most.items:,}).",
    )


def _correctness(found: Predictions) -> Iterator[Statement]:
    if found.p is None:
        return
    was, now = (n / found.labelled for n in (found.right_before, found.right_after))
    if not found.lost + found.gained:
        yield Statement(kind="clear", text=f"Accuracy is {now:.3f} as before, item by item.")
        return
    beyond = found.p <= _ALPHA
    verdict = "beyond chance" if beyond else "no more than chance explains"
    yield Statement(
        kind="flagged" if beyond and now < was else "fact",
        text=f"Accuracy was {was:.3f} and is {now:.3f} on {found.labelled:,} labelled items: "
        f"{found.lost:,} lost, {found.gained:,} gained, {verdict} "
        f"(McNemar's exact {probability(found.p)}).",
    )


def _agreement(changes: Sequence[ClassChange]) -> Iterator[Statement]:
    known = [(one.agreement.mean, one) for one in changes if one.agreement is not None]
    if not known:
        yield Statement(
            kind="unknown",
            text="No explanation has enough positions in common to measure agreement.",
        )
        return
    least, place = min(known, key=lambda one: one[0])
    most = max(mean for mean, _ in known)
    agreement = f"a mean correlation of {correlation(least)}"
    if len(known) > 1:
        where = f"{place.class_name}, {place.target}"
        agreement = f"mean correlations of {correlation(least)} ({where}) to {correlation(most)}"
    yield Statement(
        kind="fact",
        text=f"Explanations of one item rank its positions with {agreement}; 1 is the same order.",
    )


def _group_statements(groups: GroupChanges | None, unit: str) -> Iterator[Statement]:
    if groups is None:
        return
    for kind, verb, found in (
        ("flagged", "Newly different from the reference", newly(groups)),
        ("fact", "No longer different from the reference", gone(groups)),
    ):
        if names := list(dict.fromkeys(one.group for one in found)):
            yield Statement(
                kind="flagged" if kind == "flagged" else "fact", text=f"{verb}: {named(names)}."
            )
    apart = [one for one in groups.shifts if one.apart_verdict == "difference"]
    apart.sort(key=lambda one: -abs(one.apart or 0.0))
    for one in apart[:_SHOWN]:
        yield Statement(
            kind="flagged",
            text=f"Mentions of {one.group} moved by {signed(one.apart or 0.0, 2)} {unit} against "
            f"{one.reference} for {one.class_name} (adjusted {probability(one.apart_adjusted_p)}; "
            f"{one.entities:,} entities).",
        )
    if len(apart) > _SHOWN:
        rest = len(apart) - _SHOWN
        yield Statement(kind="flagged", text=f"{rest} more groups moved so; see the table.")
    moved = list(dict.fromkeys(one.group for one in groups.shifts if one.verdict == "difference"))
    if moved:
        yield Statement(
            kind="fact",
            text=f"What mentions add changed by more than {number(groups.practical)} {unit}, "
            f"beyond chance: {named(moved)}.",
        )
    elif groups.shifts and all(one.verdict == "equivalent" for one in groups.shifts):
        yield Statement(
            kind="clear",
            text=f"No group's mentions changed by more than {number(groups.practical)} {unit}.",
        )
    elif groups.shifts:
        yield Statement(
            kind="unknown", text="No change of a group's mentions is shown, nor ruled out for all."
        )


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
    """
    old, new = _audit(db, before), _audit(db, after)
    known = compared_items.of_plans(old.plan, new.plan)
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
        flips=found.flips.total(),
        counts=tuple(
            FlipCount(before=was, after=now, items=count)
            for (was, now), count in sorted(found.flips.items(), key=lambda one: (-one[1], one[0]))
        ),
        shown=found.shown,
        labelled=labelled,
        right_before=found.right[True, True] + lost,
        right_after=found.right[True, True] + gained,
        lost=lost,
        gained=gained,
        p=mcnemar_p(lost, gained) if labelled else None,
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
    before, after = (group_rows(run, merged(db, run.id)) for run in (old, new))
    plan = new.plan
    shifts = shift_table(found.mentions, rules_of(plan))
    return GroupChanges(
        shifts=tuple(shifts),
        transitions=tuple(_transitions(before, after)),
        unpaired=found.mentions.unpaired,
        reference=reference_name(one.reference for one in shifts),
        practical=plan.practical,
        correction=plan.correction,
    )


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
