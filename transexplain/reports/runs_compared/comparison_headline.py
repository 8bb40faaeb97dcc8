"""The findings of a comparison in words: what changed, what did not, what is unknown."""

from collections.abc import Iterator, Sequence

from transexplain.reports.evaluation.evaluation_text import probability
from transexplain.reports.phrasing import named, number, signed, things
from transexplain.reports.report_section import Statement
from transexplain.reports.runs_compared.comparison_records import (
    AnswerChanges,
    ClassChange,
    Disparity,
    GroupChanges,
    Predictions,
    Side,
    Transition,
)
from transexplain.reports.verdict_changes import difference_statements, rate_statements

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
    """The sentences at the top: what became of predictions first, of relevance last."""
    answers = predictions.answers
    return (
        *_disparities(disparities),
        *_left_out(predictions),
        *_unfinished(sides),
        *(rate_statements(groups.rates) if groups else ()),
        *(difference_statements(groups.verdicts) if groups else ()),
        *(_changed(predictions) if answers is None else _answers(answers)),
        *_found(predictions),
        *_correctness(predictions),
        *_same_model(sides),
        *_agreement(changes, answers),
        *_relevance(groups, {"logits": "logit"}.get(unit, unit)),
    )


def correlation(value: float) -> str:
    """A correlation in three decimals, with a true minus sign."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def newly(groups: GroupChanges) -> list[Transition]:
    """Groups whose relevance differs from their reference's now and did not, or turned."""
    return [one for one in groups.transitions if one.after == "difference" and _moved(one)]


def gone(groups: GroupChanges) -> list[Transition]:
    """Groups whose relevance differed from their reference's and does not now, or turned."""
    return [one for one in groups.transitions if one.before == "difference" and _moved(one)]


def _moved(one: Transition) -> bool:
    return one.turned or one.before != one.after


def _same_model(sides: tuple[Side, Side]) -> Iterator[Statement]:
    if sides[0].model_digest and sides[0].model_digest == sides[1].model_digest:
        yield Statement(kind="fact", text="Both runs audited the same model.")


def _disparities(disparities: Sequence[Disparity]) -> Iterator[Statement]:
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


def _changed(found: Predictions) -> Iterator[Statement]:
    if not found.changed:
        alike = f"All {found.common:,} items in both are predicted alike."
        if found.common == 1:
            alike = "The only item in both is predicted alike."
        yield Statement(kind="clear", text=alike)
        return
    most = found.counts[0]
    yield Statement(
        kind="fact",
        text=f"{found.changed:,} of {found.common:,} items in both "
        f"({_percent(found.changed / found.common)}) are predicted "
        f"differently, most often {most.after} instead of {most.before} ({most.items:,}).",
    )


def _answers(found: AnswerChanges) -> Iterator[Statement]:
    if found.unknown:
        yield Statement(
            kind="unknown",
            text=f"Of {things('', found.unknown)} the answers are not stored, so whether they "
            "changed is unknown.",
        )
    if found.share is None:
        return
    yield Statement(
        kind="fact" if found.changed else "clear",
        text=f"{found.changed:,} of {found.items:,} prompts in both ({_percent(found.share)}) have "
        "another answer.",
    )
    if found.changed and len(found.groups) > 1:
        rows = sorted(found.groups, key=lambda one: one.share)
        least, most = (f"{_percent(one.share)} ({one.group})" for one in (rows[0], rows[-1]))
        text = f"By the group that a prompt names that share is {least} to {most}."
        yield Statement(kind="fact", text=text)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _found(predictions: Predictions) -> Iterator[Statement]:
    for one in predictions.found:
        if not one.before + one.after:
            continue
        gone = one.before - one.same - one.renamed
        renamed = f", {one.renamed:,} with another type" if one.renamed else ""
        yield Statement(
            kind="clear" if one.same == one.before == one.after else "fact",
            text=f"{one.name}: the earlier run found {one.before:,}. {one.same:,} of them are "
            f"found again with the same characters{renamed}, {gone:,} are not; the later run found "
            f"{one.after:,}.",
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


def _agreement(
    changes: Sequence[ClassChange], answers: AnswerChanges | None
) -> Iterator[Statement]:
    known = [(one.agreement.mean, one) for one in changes if one.agreement is not None]
    if not known:
        text = "No explanation has enough positions in common to measure agreement."
        if answers is not None and answers.changed == answers.items:
            text = "No answer is the same in both, so no explanation is compared."
        yield Statement(kind="unknown", text=text)
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


def _relevance(groups: GroupChanges | None, unit: str) -> Iterator[Statement]:
    """What became of the relevance of mentions, which says nothing of who is treated how."""
    if groups is None:
        return
    for said, rows in (
        ("differs from the reference's, and the earlier run did not show it", newly(groups)),
        ("is not shown to differ from the reference's any more", gone(groups)),
    ):
        if names := list(dict.fromkeys(one.group for one in rows)):
            text = f"The relevance of mentions of {named(names)} {said}."
            yield Statement(kind="fact", text=text)
    apart = [one for one in groups.shifts if one.apart_verdict == "difference"]
    apart.sort(key=lambda one: -abs(one.apart or 0.0))
    for one in apart[:_SHOWN]:
        yield Statement(
            kind="fact",
            text=f"The relevance of mentions of {one.group} moved by "
            f"{signed(one.apart or 0.0, 2)} {unit} against {one.reference} for {one.class_name} "
            f"(adjusted {probability(one.apart_adjusted_p)}; {one.entities:,} entities).",
        )
    if len(apart) > _SHOWN:
        text = f"That of {len(apart) - _SHOWN} more groups moved so; see the table."
        yield Statement(kind="fact", text=text)
    if groups.shifts:
        yield _moves(groups, f"{number(groups.practical)} {unit}")


def _moves(groups: GroupChanges, limit: str) -> Statement:
    """Whether any group's relevance changed by itself."""
    moved = list(dict.fromkeys(one.group for one in groups.shifts if one.verdict == "difference"))
    text = "Whether the relevance of mentions changed is open for some groups."
    if moved:
        text = f"The relevance of mentions changed by more than {limit} for {named(moved)}."
    elif all(one.verdict == "equivalent" for one in groups.shifts):
        text = f"The relevance of no group's mentions changed by more than {limit}."
    return Statement(kind="fact", text=text)
