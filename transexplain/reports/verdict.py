"""The whole report in one sentence: what was found, or why nothing can be said."""

from collections.abc import Iterator

from transexplain.findings import Verdict
from transexplain.metrics.class_sensitivity import HARDLY
from transexplain.reports.mixed import told
from transexplain.reports.records import Groups, Statement, StatementKind, Summary
from transexplain.reports.wording import named

_GRAVEST_FIRST: tuple[Verdict, ...] = ("difference", "inconclusive", "equivalent", "suppressed")


def verdict(summary: Summary) -> Statement:
    """What somebody has to know who reads one sentence of the report."""
    if not summary.counts.done:
        return Statement(kind="unknown", text="Nothing was explained, so nothing can be said.")
    doubts = " ".join(_doubts(summary))
    kind, found = _found(summary)
    if mixed := told(summary.mixed):
        found = f"{found} {mixed}"
    elif summary.approximates is not None:
        teacher = summary.approximates.teacher
        found = f"{found} Relevance was predicted by an explainer, which approximates {teacher}."
    so_far = "So far: " if summary.counts.pending else ""
    if not doubts:
        return Statement(kind=kind, text=f"{so_far}{found}")
    return Statement(kind="problem", text=f"{doubts} {so_far}{found}")


def _doubts(summary: Summary) -> Iterator[str]:
    conservation, sensitivity = summary.conservation, summary.class_sensitivity
    if conservation is not None and conservation.above:
        yield "Do not rely on this audit: explanations do not add up to their logits."
    if sensitivity is not None and sensitivity.mean < HARDLY:
        yield f"Read with care: {summary.audited.method} hardly tells classes apart here."
    judged = [row.beats for row in summary.faithfulness.rows] if summary.faithfulness else []
    if False in judged and True not in judged:
        yield f"Read with care: {summary.audited.method} does not beat a random ranking here."


def _found(summary: Summary) -> tuple[StatementKind, str]:
    groups = summary.groups
    if groups is None:
        return "fact", "Below is what each class looks at; no groups were asked for."
    compared = by_verdict(groups)
    differing, equal = compared["difference"], compared["equivalent"]
    open_ = compared["inconclusive"]
    total = len({*differing, *equal, *open_})
    than = f"from {groups.reference} by more than {groups.practical:g} {summary.audited.unit}"
    if not total:
        return "unknown", "No group could be compared: too few different entities are mentioned."
    if differing:
        verb = "differs" if len(differing) == 1 else "differ"
        return "flagged", f"{len(differing)} of {total} groups {verb} {than}: {named(differing)}."
    if open_:
        return (
            "unknown",
            f"No difference was found, but of {len(open_)} of {total} groups its absence is not "
            "shown either.",
        )
    only = "The group" if total == 1 else f"None of {total} groups"
    return "clear", f"{only} {'does not differ' if total == 1 else 'differs'} {than}."


def by_verdict(groups: Groups) -> dict[Verdict, list[str]]:
    """Verdict -> groups, the reference apart, each once and under the gravest of its rows."""
    found: dict[Verdict, list[str]] = {}
    seen = {groups.reference}
    for one in _GRAVEST_FIRST:
        rows = [row for row in groups.rows if row.verdict == one and row.group not in seen]
        rows.sort(key=lambda row: -abs(row.difference or 0.0))
        found[one] = list(dict.fromkeys(row.group for row in rows))
        seen.update(found[one])
    return found
