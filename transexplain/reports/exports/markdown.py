"""A run in a comment on a pull request: what stands out and what changed; the rest counted."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.randomised_control import RandomisedRow
from transexplain.reports.approximating import method_of
from transexplain.reports.controls import sentences
from transexplain.reports.escaping import markdown_text
from transexplain.reports.evaluation.evaluation_text import probability
from transexplain.reports.exports.run_facts import compared, interval, redaction, verdict_counts
from transexplain.reports.headline import RELEVANCE
from transexplain.reports.phrasing import percent, short, signed, spoken
from transexplain.reports.report_records import (
    FailureKind,
    GroupChange,
    Groups,
    Previous,
    Statement,
    Summary,
)
from transexplain.reports.report_verdict import by_regions
from transexplain.reports.sections.previous_run import gone, newly
from transexplain.types.findings import GroupStatistic

_ROWS = 12  #: of a table
_LONGEST = 120  #: characters of a name or message
_Row = TypeVar("_Row")
_Compared = GroupStatistic | GroupChange | RandomisedRow


def render(summary: Summary) -> str:
    """`summary` as GitHub-flavoured Markdown of at most 60 lines."""
    audited = summary.audited
    method = method_of(audited.method, summary.approximates)
    lines = [
        f"## {_cell(audited.name)}: {_cell(short(audited.model))} on "
        f"{_cell(short(audited.dataset))}",
        "",
        *(f"- {markdown_text(one.text)}" for one in _headline(summary)),
        *_groups(summary),
        *_controls(summary.groups),
        *_changes(summary.previous),
        *_failures(summary.failures),
        *_redacted(summary),
        "",
        f"Run {audited.run_id}, method {_cell(method)}, plan {audited.plan_digest[:12]}, "
        f"TransExplain {audited.version}.",
    ]
    return "\n".join(lines) + "\n"


def _headline(summary: Summary) -> Iterator[Statement]:
    """Without what the table of differences says with more numbers."""
    return (
        one
        for one in summary.headline
        if one.kind != "flagged" and not one.text.startswith(RELEVANCE)
    )


def _groups(summary: Summary) -> Iterator[str]:
    if summary.groups is None:
        return
    groups = summary.groups
    counts = verdict_counts(groups)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    many = sum(counts.values())
    yield from ("", "### Groups", "")
    limits, hidden = groups.limits, by_regions(groups)
    yield (
        f"{many} group{'' if many == 1 else 's'}: {said or 'none could be compared'}. What matters "
        f"is beyond ±{limits.logit:g} logit or ±{100 * limits.probability:g} points by "
        f"{'hiding regions' if hidden else 'swapping'}, and an impact ratio below "
        f"{limits.impact_ratio:g}."
    )
    yield from _table(
        f"Group|Against|Verdict|Answer|Rate|Impact ratio|{'Regions' if hidden else 'Swapping'}|"
        "95 % interval|Points",
        groups.verdicts,
        _verdict,
    )
    random = {_key(row): row for row in groups.randomised.rows} if groups.randomised else {}

    def line(row: GroupStatistic) -> tuple[str, ...]:
        return (
            row.group,
            spoken(row.target, row.class_name, summary.audited.classes),
            row.reference,
            signed(row.difference or 0.0),
            interval(row.difference_interval),
            probability(row.adjusted_p),
            f"{row.entities:,}",
            _unlearnt(row, random.get(_key(row))) if groups.randomised else "not asked",
        )

    heads = "Group|Class|Against|Relevance|95 % interval|Adjusted p|Entities|Randomised too"
    yield from _table(heads, [row for row in compared(groups) if row.flagged], line)


def _key(row: _Compared) -> tuple[str, str, str]:
    return row.group, row.target, row.class_name


def _verdict(one: GroupVerdict) -> tuple[str, ...]:
    outcome, swap = one.outcome, one.counterfactual
    ratio = outcome.impact_ratio if outcome else None
    return (
        one.group,
        one.reference,
        one.verdict,
        one.answer,
        percent(outcome.own.selected.share) if outcome else "-",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{signed(swap.effect, 2)} logit" if swap else "not measured",
        interval(swap.interval) if swap else "",
        f"{100 * swap.probability:+.1f}" if swap else "",
    )


def _unlearnt(row: GroupStatistic, found: RandomisedRow | None) -> str:
    shown = found.shown(row.difference or 0.0) if found else "unknown"
    word = {"material": "yes", "small": "no", "unknown": "not known"}[shown]
    if found is None or found.ratio is None or shown == "unknown":
        return word
    return f"{word} ({100 * found.ratio:.0f} %)"


def _controls(groups: Groups | None) -> Iterator[str]:
    found = sentences(groups) if groups else []
    if found:
        yield from ("", "### Controls", "")
        yield from (f"- {markdown_text(one)}" for one in found)


def _changes(previous: Previous | None) -> Iterator[str]:
    if previous is None:
        return
    appeared = {_key(one) for one in newly(previous)}
    changed = [one for one in previous.groups if one in newly(previous) or one in gone(previous)]
    yield from ("", f"### Compared with run {previous.run_id}")
    if not changed:
        yield ""
        yield "No group is newly flagged, and none that was is not any more."
        return

    def line(one: GroupChange) -> tuple[str, ...]:
        verb = "newly flagged" if _key(one) in appeared else "no longer flagged"
        return one.group, one.class_name, verb, _number(one.before), _number(one.now)

    yield from _table("Group|Class|Change|Before|Now", changed, line)


def _number(value: float | None) -> str:
    return "not known" if value is None else signed(value)


def _redacted(summary: Summary) -> Iterator[str]:
    said = redaction(summary)
    if said is not None:
        yield from ("", said)


def _failures(found: Sequence[FailureKind]) -> Iterator[str]:
    if not found:
        return

    def line(one: FailureKind) -> tuple[str, ...]:
        first = one.examples[0] if one.examples else None
        said = (first.item_id, first.message) if first else ("", "")
        return one.kind, f"{one.count:,}", *said

    yield from ("", "### Failures")
    yield from _table("Kind|Items|First|Reason", found[: _ROWS // 2], line, len(found))


def _table(
    heads: str,
    rows: Sequence[_Row],
    line: Callable[[_Row], tuple[str, ...]],
    count: int | None = None,
) -> Iterator[str]:
    """A table of the first rows, and how many more there are; nothing without rows."""
    if not rows:
        return
    names = heads.split("|")
    yield ""
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows[:_ROWS]:
        yield f"| {' | '.join(map(_cell, line(row)))} |"
    left = (len(rows) if count is None else count) - min(len(rows), _ROWS)
    if left:
        yield from ("", f"{left:,} more: see the report.")


def _cell(text: str) -> str:
    """A name or message as one cell holds it."""
    short_ = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return markdown_text(short_)
