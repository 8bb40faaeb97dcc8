"""Exports a run as a comment on a pull request: the main findings and changes in Markdown."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.measures import gravest
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.randomised_control import Randomised, RandomisedRow
from transexplain.reports.exports.export_run import Redaction, explained_summary
from transexplain.reports.exports.run_facts import compared, interval, redaction, verdict_counts
from transexplain.reports.phrasing import (
    MEASURES,
    class_phrase,
    limit,
    markdown_text,
    measured,
    method_of,
    percent,
    probability,
    short,
    signed,
    sureness,
)
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.group_answers import hidden_parts
from transexplain.reports.sections.group_relevance import RELEVANCE, key_of
from transexplain.reports.sections.group_section import Groups, control_sentences
from transexplain.reports.sections.item_fates import FailureKind
from transexplain.reports.sections.previous_run import Previous
from transexplain.reports.tables import Column, Columns, markdown_cell, markdown_table
from transexplain.reports.verdict_words import VerdictChange
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import AuditRun

_ROWS = 12  #: of a table
_LONGEST = 120  #: characters of a name or message
_Row = TypeVar("_Row")


def export(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Raises ConfigurationError for an evaluation."""
    return render(explained_summary(db, run, redaction, "summary for a pull request"))


def render(summary: Summary) -> str:
    """`summary` as GitHub-flavoured Markdown of at most 60 lines."""
    audited, kinds = summary.audited, summary.failures
    method, hidden = method_of(audited.method, summary.approximates), redaction(summary)
    lines = [
        f"## {_cell(audited.name)}: {_cell(short(audited.model))} on "
        f"{_cell(short(audited.dataset))}",
        "",
        *((f"**{markdown_text(summary.verdict.text)}**", "") if summary.verdict else ()),
        # without what the table of differences says with more numbers
        *(
            f"- {markdown_text(line.text)}"
            for line in summary.headline
            if line.kind != "flagged" and not line.text.startswith(RELEVANCE)
        ),
        *_groups(summary),
        *_controls(summary.groups),
        *_changes(summary.previous),
        *(("", "### Failures") if kinds else ()),
        *_table(_FAILURE, kinds[: _ROWS // 2], len(kinds)),
        *(("", hidden) if hidden else ()),
        "",
        f"Run {audited.run_id}, method {_cell(method)}, plan {audited.plan_digest[:12]}, "
        f"TransExplain {audited.version}.",
    ]
    return "\n".join(lines) + "\n"


def _groups(summary: Summary) -> Iterator[str]:
    if summary.groups is None:
        return
    groups = summary.groups
    counts = verdict_counts(groups)
    numbers = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    many = sum(counts.values())
    yield from ("", "### Groups", "")
    limits, hidden = groups.limits, hidden_parts(groups.counterfactuals)
    yield (
        f"{many} group{'' if many == 1 else 's'}: {numbers or 'none could be compared'}. What "
        f"matters, by {f'hiding {hidden}' if hidden else 'swapping'}, is beyond "
        f"±{100 * limits.probability:g} points of probability, ±{limits.logit:g} logit or "
        f"{100 * limits.changed:g} points of predictions changed; of rates, beyond "
        f"±{100 * limits.rates:g} points."
    )
    yield from _table(_VERDICTS, groups.verdicts)
    flagged = [row for row in compared(groups) if row.flagged]
    yield from _table(_relevance_columns(summary, groups.randomised), flagged)


def _answered(state: str, row: Counterfactual | Outcome | None) -> str:
    return state if row else f"{state} (not measured)"


def _decided(row: Counterfactual | Outcome | None) -> str:
    """The measure that decided a question, with its interval and its limit."""
    measure = gravest(row.measures) if row else None
    if row is None or measure is None:
        return "-"
    within = f" in {row.stratum}" if row.stratum else ""
    name, unit = MEASURES[measure.name]
    return (
        f"{row.prediction}{within}: {name} {measured(measure)} {unit} "
        f"({sureness(measure) or 'too few for an interval'}, limit {limit(measure)})"
    )


def _changed(verdict: GroupVerdict) -> str:
    row = verdict.counterfactual
    if row is None or row.changed_across is None:
        return "-"
    within = "" if row.changed_within is None else f" (by chance {percent(row.changed_within)})"
    return f"{percent(row.changed_across)}{within}"


def _rates(verdict: GroupVerdict) -> str:
    if verdict.rates is None:
        return "-"
    rate, other = verdict.rates.own.selected, verdict.rates.other.selected
    return f"{percent(rate.share)} against {percent(other.share)}"


_VERDICTS: Columns[GroupVerdict] = (
    Column("Group", lambda verdict: verdict.group),
    Column("Against", lambda verdict: verdict.reference),
    Column("The mention", lambda verdict: _answered(verdict.mention, verdict.counterfactual)),
    Column("By", lambda verdict: _decided(verdict.counterfactual)),
    Column("Predictions changed", _changed),
    Column("Outcomes", lambda verdict: _answered(verdict.outcome, verdict.rates)),
    Column("By", lambda verdict: _decided(verdict.rates)),
    Column("Rates", _rates),
)


def _relevance_columns(summary: Summary, randomised: Randomised | None) -> Columns[GroupStatistic]:
    random = {key_of(row): row for row in randomised.rows} if randomised else {}
    classes = summary.audited.classes
    return (
        Column("Group", lambda row: row.group),
        Column("Class", lambda row: class_phrase(row.target, row.class_name, classes)),
        Column("Against", lambda row: row.reference),
        Column("Relevance", lambda row: signed(row.difference or 0.0)),
        Column("95 % interval", lambda row: interval(row.difference_interval)),
        Column("Adjusted p", lambda row: probability(row.adjusted_p)),
        Column("Entities", lambda row: f"{row.entities:,}"),
        Column(
            "Randomised too",
            lambda row: _unlearnt(row, random.get(key_of(row))) if randomised else "not measured",
        ),
    )


def _unlearnt(row: GroupStatistic, control: RandomisedRow | None) -> str:
    shown = control.shown(row.difference or 0.0) if control else "unknown"
    word = {"material": "yes", "small": "no", "unknown": "not known"}[shown]
    if control is None or control.ratio is None or shown == "unknown":
        return word
    return f"{word} ({100 * control.ratio:.0f} %)"


def _controls(groups: Groups | None) -> Iterator[str]:
    sentences = control_sentences(groups) if groups else []
    if sentences:
        yield from ("", "### Controls", "")
        yield from (f"- {markdown_text(sentence)}" for sentence in sentences)


def _changes(previous: Previous | None) -> Iterator[str]:
    if previous is None:
        return
    yield from ("", f"### Compared with run {previous.run_id}")
    changed = [verdict for verdict in previous.verdicts if verdict.changed]
    if not changed:
        yield ""
        yield "The verdicts on all groups are the same as before."
        return

    columns: Columns[VerdictChange] = (
        Column("Group", lambda change: change.group),
        Column("The mention before", lambda change: change.mention_before or "no verdict"),
        Column("now", lambda change: change.mention_after or "no verdict"),
        Column("Outcomes before", lambda change: change.outcome_before or "no verdict"),
        Column("now", lambda change: change.outcome_after or "no verdict"),
    )
    yield from _table(columns, changed)


_FAILURE: Columns[FailureKind] = (
    Column("Kind", lambda kind: kind.kind),
    Column("Items", lambda kind: f"{kind.count:,}"),
    Column("First", lambda kind: kind.examples[0].item_id if kind.examples else ""),
    Column("Reason", lambda kind: kind.examples[0].message if kind.examples else ""),
)


def _table(columns: Columns[_Row], rows: Sequence[_Row], count: int | None = None) -> Iterator[str]:
    """A table of the first rows, and how many more there are; nothing without rows."""
    if not rows:
        return
    yield ""
    yield from markdown_table(columns, rows, most=_ROWS, longest=_LONGEST)
    left = (len(rows) if count is None else count) - min(len(rows), _ROWS)
    if left:
        yield from ("", f"{left:,} more: see the report.")


def _cell(text: str) -> str:
    return markdown_cell(text, _LONGEST)
