"""A run compared with the previous run: the differences of plan and findings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transexplain.analysis.groups.intervals import ItemRate
from transexplain.errors import ConfigurationError
from transexplain.methods.explainer_files import portable
from transexplain.reports.phrasing import named
from transexplain.reports.redaction import Redactor, is_large, published
from transexplain.reports.report_section import (
    RunNamed,
    Section,
    Statement,
    merged,
    of_run,
    statements,
)
from transexplain.reports.sections.group_relevance import key_of
from transexplain.reports.sections.group_section import Groups, groups_of
from transexplain.reports.sections.item_fates import FateCounts, counts_of
from transexplain.reports.verdict_words import (
    CHANGES,
    VerdictChange,
    verdict_changes,
)
from transexplain.store import run_totals, runs
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import GENERATED, AuditRun

_NAMED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChange:
    """One group's relevance against the reference's in the run before and in this one."""

    group: str
    target: str
    class_name: str
    before: float | None  #: in the unit; None: too few entities, or the group was not there
    now: float | None
    flagged_before: bool
    flagged_now: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRate:
    """The rate of one prediction for a group's items in the run before, and in this run."""

    group: str
    prediction: str
    before: ItemRate
    now: ItemRate


@dataclass(frozen=True, kw_only=True, slots=True)
class Previous(RunNamed):
    """The run that this one is compared with, and what is different; nothing is tested here."""

    model_changed: bool  #: weights, config or tokenizer
    data_changed: bool
    method_changed: bool  #: or its parameters
    counts: FateCounts
    common: int  #: items by id that both runs explained
    other_prediction: int  #: of these; of a model that generates those with another answer
    rates: tuple[GroupRate, ...]  #: of all items of a group, the largest change first
    verdicts: tuple[VerdictChange, ...]
    groups: tuple[GroupChange, ...]  #: relevance


def compared(db: Database, run: AuditRun, groups: Groups | None) -> Previous | None:
    """Compare `run`, whose groups are `groups`, with the run that it names; None: it names none.

    A run that was deleted since is none either. Numbers stand side by side; nothing is tested.
    """
    if run.previous is None:
        return None
    try:
        before = runs.get(db, run.previous)
    except ConfigurationError:
        return None
    theirs = groups_of(db, before, merged(db, before.id))
    old, new = before.plan, run.plan
    same_data = old.dataset.content == new.dataset.content
    common, other = run_totals.other_predictions(
        db,
        before.id,
        run.id,
        same_data=same_data,
        generated=old.model.head == new.model.head == GENERATED,
    )
    return of_run(
        Previous,
        before,
        model_changed=old.model.digest != new.model.digest,
        data_changed=not same_data,
        method_changed=portable(old.method) != portable(new.method),
        counts=counts_of(db, before),
        common=common,
        other_prediction=other,
        rates=tuple(sorted(_rates(theirs, groups), key=_moved, reverse=True)),
        verdicts=verdict_changes(
            theirs.verdicts if theirs else (), groups.verdicts if groups else ()
        ),
        groups=tuple(_changes(theirs.rows if theirs else (), groups.rows if groups else ())),
    )


def _rates(before: Groups | None, now: Groups | None) -> Iterator[GroupRate]:
    """The rates over all items of every group and reference that both runs have."""
    old, new = (
        {
            (row.group, row.prediction): row.own.selected
            for row in (groups.outcomes if groups else ())
            if not row.stratum
        }
        for groups in (before, now)
    )
    for key in new:
        if key in old:
            yield GroupRate(group=key[0], prediction=key[1], before=old[key], now=new[key])


def _moved(row: GroupRate) -> float:
    return abs(row.now.share - row.before.share)


def _changes(
    before: Sequence[GroupStatistic], now: Sequence[GroupStatistic]
) -> Iterator[GroupChange]:
    old, new = ({key_of(row): row for row in rows} for rows in (before, now))
    for key in dict.fromkeys([*new, *old]):
        was, is_ = old.get(key), new.get(key)
        group, target, class_name = key
        yield GroupChange(
            group=group,
            target=target,
            class_name=class_name,
            before=was.difference if was else None,
            now=is_.difference if is_ else None,
            flagged_before=was is not None and was.flagged,
            flagged_now=is_ is not None and is_.flagged,
        )


def _sentences(report: Any) -> Iterable[Statement]:
    previous: Previous | None = report.previous
    if previous is None:
        return ()
    parts = {
        "the model": previous.model_changed,
        "the data": previous.data_changed,
        "the method": previous.method_changed,
    }
    changed = named([what for what, is_other in parts.items() if is_other])
    limit = report.groups.limits.rates if report.groups else 0.0
    return statements(
        "previous_headline.txt.j2",
        previous=previous,
        changed=f"{changed[:1].upper()}{changed[1:]}",
        accuracy=report.counts.accuracy,
        apart=[row for row in previous.rates if _moved(row) > limit][:_NAMED],
        **CHANGES,
    )


def _enough(row: GroupRate, fewest: int) -> bool:
    return all(is_large(rate.count, rate.total, fewest) for rate in (row.before, row.now))


def _redacted(value: Previous | None, summary: Any, redactor: Redactor) -> Previous | None:
    """Changes of the comparisons alone that are left of the group table."""
    if value is None:
        return None
    groups: Groups | None = redactor.within(summary.groups)
    known = {key_of(row) for row in groups.rows} if groups else set()
    shown = {row.group for row in groups.verdicts} if groups else set()
    left: Previous | None = redactor.within(
        replace(
            value,
            rates=tuple(row for row in value.rates if row.group in shown),
            verdicts=tuple(row for row in value.verdicts if row.group in shown),
            groups=tuple(
                row for row in value.groups if (row.group, row.target, row.class_name) in known
            ),
        )
    )
    return left


SECTION = Section(
    template="previous.html.j2",
    links=(("previous", "The run before"),),
    redaction={
        Previous: published("run_id name state"),
        GroupRate: published("group prediction", stands=_enough),
        VerdictChange: published("group"),
        GroupChange: published("group target class_name"),
    },
    of_summary={"previous": _redacted},
    present=lambda report: report.previous is not None,
    sentences=_sentences,
)
