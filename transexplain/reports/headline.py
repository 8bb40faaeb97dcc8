"""The findings in plain words: what holds, what does not, and what cannot be said."""

from collections.abc import Iterator, Sequence

from transexplain.analysis.groups.group_verdicts import GroupFinding
from transexplain.evaluating.metrics.class_sensitivity import HARDLY
from transexplain.reports.approximating import approximation_sentences
from transexplain.reports.controls import learnt
from transexplain.reports.evaluation.evaluation_text import probability
from transexplain.reports.phrasing import named, number, power, spoken, things
from transexplain.reports.report_records import (
    Audited,
    ClassSensitivity,
    Conservation,
    Counts,
    FailureKind,
    Groups,
    Statement,
    StatementKind,
)
from transexplain.reports.report_verdict import by_verdict, verdict_sentence
from transexplain.types.findings import GroupStatistic
from transexplain.types.scores import Approximation

#: verdict on a group -> how its sentence is marked, the gravest first
_KINDS: dict[GroupFinding, StatementKind] = {
    "different answers": "flagged",
    "different outcomes": "flagged",
    "inconclusive": "unknown",
    "explained differently": "fact",
    "equivalent": "clear",
}
_NAMED_OF_A_KIND = 6  #: of one kind
RELEVANCE = "Relevance: "  #: how sentences about where answers come from begin
_NEVER_NAMED = 4


def headline(
    audited: Audited,
    counts: Counts,
    conservation: Conservation | None,
    sensitivity: ClassSensitivity | None,
    groups: Groups | None,
    failures: Sequence[FailureKind],
    approximates: Approximation | None = None,
) -> tuple[Statement, ...]:
    """The sentences at the top of a report, the most important facts first."""
    return (
        *_coverage(audited, counts, failures),
        *_accuracy(counts),
        *_truncated(audited, counts),
        *_groups(audited, groups),
        *(_conservation(audited, conservation, approximates) if counts.done else ()),
        *_sensitivity(audited, sensitivity),
    )


def _coverage(
    audited: Audited, counts: Counts, failures: Sequence[FailureKind]
) -> Iterator[Statement]:
    total = things(audited.modality, counts.total)
    if counts.failed:
        kinds = named([f"{kind.count:,} {kind.kind}" for kind in failures])
        of_kinds = f" ({kinds})" if kinds else ""  # none where redaction left out the rare ones
        yield Statement(
            kind="fact",
            text=f"{counts.done:,} of {total} were explained; {counts.failed:,} failed{of_kinds}.",
        )
    elif counts.pending:
        yield Statement(kind="fact", text=f"{counts.done:,} of {total} were explained so far.")
    else:
        verb = "was" if counts.total == 1 else "were"
        yield Statement(kind="fact", text=f"{total} {verb} explained; none failed.")
    if counts.pending:
        why = f" ({counts.dead_shards} shards gave up)" if counts.dead_shards else ""
        yield Statement(
            kind="problem",
            text=f"{things(audited.modality, counts.pending)} "
            f"{'has' if counts.pending == 1 else 'have'} no result: the run is "
            f"{audited.state}{why}. Everything below is about the rest.",
        )


def _accuracy(counts: Counts) -> Iterator[Statement]:
    if counts.accuracy is None:
        yield Statement(
            kind="unknown", text="No item has a label, so nothing is said about accuracy."
        )
        return
    yield Statement(
        kind="fact",
        text=f"The model agrees with the label of {counts.correct:,} of {counts.labelled:,} "
        f"labelled items: accuracy {counts.accuracy:.3f}.",
    )


def _groups(audited: Audited, groups: Groups | None) -> Iterator[Statement]:
    if groups is None:
        if audited.modality == "text":
            yield Statement(
                kind="unknown",
                text="No entity groups were given, so nothing is said about who is mentioned.",
            )
        return
    by = by_verdict(groups)
    for word, kind in _KINDS.items():
        for one in by[word][:_NAMED_OF_A_KIND]:
            yield Statement(kind=kind, text=verdict_sentence(one))
        if rest := by[word][_NAMED_OF_A_KIND:]:
            names = named([one.group for one in rest])
            yield Statement(kind=kind, text=f"{word.capitalize()} as well: {names}.")
    yield from _relevance(audited, groups)
    yield from _unknown_groups(groups)


def _relevance(audited: Audited, groups: Groups) -> Iterator[Statement]:
    """Where answers come from; it accuses nobody."""
    rows = sorted(
        (row for row in groups.rows if row.flagged), key=lambda row: -abs(row.difference or 0.0)
    )
    for row in rows[:_NAMED_OF_A_KIND]:
        yield Statement(kind="fact", text=f"{_finding(row, audited)}{_unlearnt(row, groups)}")
    if (rest := len(rows) - _NAMED_OF_A_KIND) > 0:
        more = "comparison" if rest == 1 else "comparisons"
        yield Statement(
            kind="fact", text=f"Relevance differs in {rest} more {more}; see the table."
        )


def _finding(row: GroupStatistic, audited: Audited) -> str:
    difference = row.difference or 0.0
    low, high = row.difference_interval or (0.0, 0.0)
    more = "more" if difference > 0 else "less"
    unit = {"logits": "logit"}.get(audited.unit, audited.unit)
    what = spoken(row.target, row.class_name, audited.classes)
    return (
        f"{RELEVANCE}mentions of {row.group} add {number(abs(difference))} {unit} {more} to "
        f"{what} than those of {row.reference} (95\u00a0% interval {number(low)} to "
        f"{number(high)}; adjusted {probability(row.adjusted_p)}; {row.entities:,} entities in "
        f"{row.documents:,} items)."
    )


def _unlearnt(row: GroupStatistic, groups: Groups) -> str:
    """How much of it models that have learnt nothing show; nothing where that is not known."""
    key = (row.group, row.target, row.class_name)
    for one in groups.randomised.rows if groups.randomised else ():
        if (one.group, one.target, one.class_name) == key:
            said = learnt(one, row.difference or 0.0)
            return f" {said}" if said else ""
    return ""


def _unknown_groups(groups: Groups) -> Iterator[Statement]:
    never = groups.never_mentioned
    if absent := sorted({row.reference for row in groups.rows} & set(never)):
        yield Statement(
            kind="problem",
            text=f"Nothing was compared with {named(absent)}: the reference is never mentioned.",
        )
    if len(never) > _NEVER_NAMED:
        yield Statement(
            kind="unknown",
            text=f"{len(never)} of the {len(groups.sources)} groups were never mentioned.",
        )
    elif never:
        yield Statement(kind="unknown", text=f"Never mentioned: {named(never)}.")


def _conservation(
    audited: Audited, found: Conservation | None, approximates: Approximation | None
) -> Iterator[Statement]:
    if approximates is not None:
        yield Statement(kind="unknown", text=approximation_sentences(approximates))
    elif audited.task == "imported":
        yield Statement(
            kind="unknown",
            text="Not measured, because the model is not at hand: whether explanations add up to "
            "the logit, whether they are faithful and tell classes apart, and whether swapped "
            "mentions change the prediction.",
        )
    elif found is None:
        yield Statement(
            kind="unknown",
            text="This method does not conserve: its numbers do not add up to the logit.",
        )
    elif found.tolerance is None:
        yield Statement(
            kind="fact",
            text=f"Explanations add up to the logit within {power(found.worst)} of their terms "
            "(half precision: measured, not judged).",
        )
    elif found.above:
        yield Statement(
            kind="problem",
            text=f"{found.above:,} of {found.attributions:,} explanations do not add up to their "
            f"logit: the worst gap is {power(found.worst)} of its terms, the tolerance "
            f"{power(found.tolerance)}. Do not rely on them.",
        )
    else:
        yield Statement(
            kind="good",
            text=f"Every explanation adds up to the logit it explains: the worst gap is "
            f"{power(found.worst)} of its terms, the tolerance {power(found.tolerance)}.",
        )


def _sensitivity(audited: Audited, found: ClassSensitivity | None) -> Iterator[Statement]:
    if found is None or found.mean >= HARDLY:
        return
    yield Statement(
        kind="problem",
        text=f"{audited.method} hardly tells classes apart here: class sensitivity "
        f"{found.mean:.2f} on {things(audited.modality, found.items)}, where 0 is the same map "
        "for every class. What is listed for a class shows which items are in it, not what "
        "speaks for it.",
    )


def _truncated(audited: Audited, counts: Counts) -> Iterator[Statement]:
    if counts.truncated:
        yield Statement(
            kind="problem",
            text=f"{things(audited.modality, counts.truncated)} "
            f"{'was' if counts.truncated == 1 else 'were'} longer than the model reads; only the "
            "beginning was explained.",
        )
