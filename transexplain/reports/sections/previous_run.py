"""A run beside the one before: what differs in its plan and in its findings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.methods.learned_facts import portable
from transexplain.reports.phrasing import named
from transexplain.reports.redaction import RedactionRules, Redactor, kept, within
from transexplain.reports.report_section import Section, Statement, merged
from transexplain.reports.sections.group_relevance import group_rows, key_of
from transexplain.reports.sections.group_section import Groups
from transexplain.reports.sections.item_fates import Counts, counts_of
from transexplain.store import run_totals, runs
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import GENERATED, AuditRun

_NAMED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChange:
    """One group's difference to the reference in the run before and in this one."""

    group: str
    target: str
    class_name: str
    before: float | None  #: in the unit; None: too few entities, or the group was not there
    now: float | None
    flagged_before: bool
    flagged_now: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Previous:
    """The run that this one is compared with, and what is different; nothing is tested here."""

    run_id: str
    name: str
    state: str
    created: float
    model_changed: bool  #: weights, config or tokenizer
    data_changed: bool
    method_changed: bool  #: or its parameters
    counts: Counts
    common: int  #: items by id that both runs explained
    other_prediction: int  #: of these; of a model that generates those with another answer
    groups: tuple[GroupChange, ...]


def compared(db: Database, run: AuditRun, groups: Groups | None) -> Previous | None:
    """`run`, whose group table is `groups`, beside the run that it names; None: it names none.

    A run that was deleted since is none either. Numbers stand side by side; nothing is tested.
    """
    if run.previous is None:
        return None
    try:
        before = runs.get(db, run.previous)
    except ConfigurationError:
        return None
    theirs = group_rows(before, merged(db, before.id)) if before.plan.groups else ()
    old, new = before.plan, run.plan
    same_data = old.dataset.content == new.dataset.content
    common, other = run_totals.other_predictions(
        db,
        before.id,
        run.id,
        same_data=same_data,
        generated=old.model.head == new.model.head == GENERATED,
    )
    return Previous(
        run_id=before.id,
        name=old.name,
        state=before.state,
        created=before.created,
        model_changed=old.model.digest != new.model.digest,
        data_changed=not same_data,
        method_changed=portable(old.method) != portable(new.method),
        counts=counts_of(db, before),
        common=common,
        other_prediction=other,
        groups=tuple(_changes(theirs, groups.rows if groups else ())),
    )


def _changes(
    before: Sequence[GroupStatistic], now: Sequence[GroupStatistic]
) -> Iterator[GroupChange]:
    old, new = _by_key(before), _by_key(now)
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


def _by_key(rows: Sequence[GroupStatistic]) -> dict[tuple[str, str, str], GroupStatistic]:
    return {(row.group, row.target, row.class_name): row for row in rows}


def _sentences(report: Any) -> Iterator[Statement]:
    """What changed since the run before, and what came out differently."""
    previous: Previous | None = report.previous
    if previous is None:
        return
    changes = [f"{_changed(previous)} since run {previous.run_id}"]
    if previous.common:
        both = "with the same text in both" if previous.data_changed else "in both"
        changes.append(
            f"{previous.other_prediction:,} of {previous.common:,} items {both} are predicted "
            "differently"
        )
    was, now = previous.counts.accuracy, report.counts.accuracy
    if was is not None and now is not None:
        changes.append(f"accuracy was {was:.3f} and is {now:.3f}")
    yield Statement(kind="fact", text=f"{'; '.join(changes)}.")
    for verb, groups in (("newly flagged", newly(previous)), ("no longer flagged", gone(previous))):
        if names := list(dict.fromkeys(one.group for one in groups)):
            yield Statement(
                kind="flagged" if verb.startswith("newly") else "fact",
                text=f"Compared with that run, {verb}: {_listed(names)}.",
            )


def newly(previous: Previous) -> list[GroupChange]:
    """Groups that stand out now and did not before, or did the other way round."""
    return [one for one in previous.groups if one.flagged_now and not _same_flag(one)]


def gone(previous: Previous) -> list[GroupChange]:
    """Groups that stood out before and do not now, or do the other way round."""
    return [one for one in previous.groups if one.flagged_before and not _same_flag(one)]


def _same_flag(one: GroupChange) -> bool:
    both = one.flagged_before and one.flagged_now
    return both and (one.before or 0.0) * (one.now or 0.0) > 0


def _changed(previous: Previous) -> str:
    changes = {
        "the model": previous.model_changed,
        "the data": previous.data_changed,
        "the method": previous.method_changed,
    }
    names = [what for what, changed in changes.items() if changed]
    if not names:
        return "Neither model, data nor method changed"
    text = named(names)
    return f"{text[0].upper()}{text[1:]} changed"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return named(names[:_NAMED] + ([f"{more} more"] if more > 0 else []))


_RULES: Mapping[type, RedactionRules] = {
    Previous: RedactionRules(
        fields={
            "counts": within,
            "groups": within,  # `_redacted` leaves out those that the group table has not
            **kept(
                "run_id name state created model_changed data_changed method_changed common "
                "other_prediction"
            ),
        }
    ),
    GroupChange: RedactionRules(
        fields=kept("group target class_name before now flagged_before flagged_now")
    ),
}


def _redacted(value: Previous | None, summary: Any, redactor: Redactor) -> Previous | None:
    """Changes of the comparisons alone that are left of the group table."""
    if value is None:
        return None
    groups: Groups | None = redactor.within(summary.groups)
    known = {key_of(row) for row in groups.rows} if groups else set()
    found = (one for one in value.groups if (one.group, one.target, one.class_name) in known)
    made: Previous | None = redactor.within(replace(value, groups=tuple(found)))
    return made


SECTION = Section(
    template="previous.html.j2",
    links=(("previous", "The run before"),),
    redaction=_RULES,
    of_summary={"previous": _redacted},
    present=lambda report: report.previous is not None,
    sentences=_sentences,
)
