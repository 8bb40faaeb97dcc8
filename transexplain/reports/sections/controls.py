"""The results of the group table's controls, one sentence each, for every format."""

from collections.abc import Mapping, Sequence

from transexplain.analysis.groups.group_controls import Placebo, Planted
from transexplain.analysis.groups.mention_ablation import Ablations, AblationStatistic
from transexplain.analysis.groups.randomised_control import (
    Measured,
    Randomised,
    RandomisedRow,
    Shown,
)
from transexplain.reports.phrasing import named, number, percent
from transexplain.reports.redaction import RedactionRules, at_least, kept, within
from transexplain.types.findings import GroupStatistic


def ablation_sentence(found: Ablations) -> str:
    """How often the prediction depended on the mention."""
    share = percent(found.changed / found.items)
    return (
        f"Taking the mention out changed the prediction of {found.changed:,} of {found.items:,} "
        f"sampled items ({share})."
    )


def _shown(rows: Sequence[GroupStatistic], found: Randomised) -> list[tuple[RandomisedRow, Shown]]:
    """Every comparison with a *difference*, and how much of it randomised models show."""
    flagged = {(row.group, row.target, row.class_name): row for row in rows if row.flagged}
    return [
        (one, one.shown(row.difference or 0.0))
        for one in found.rows
        if (row := flagged.get((one.group, one.target, one.class_name))) is not None
    ]


def part(one: RandomisedRow) -> str:
    """How much of a difference randomised models show, with its interval."""
    if one.ratio is None or one.ratio_interval is None:
        return "a part of it that is not known"
    low, high = (f"{100 * end:.0f}".replace("-", "\u2212") for end in one.ratio_interval)
    size = f"{100 * one.ratio:.0f}\u00a0% of it" if one.ratio > 0 else "none of it"
    return f"{size} (95\u00a0% interval {low} to {high}\u00a0%)"


def learnt(one: RandomisedRow, difference: float) -> str:
    """Whether a difference comes from what was learnt, in a sentence; "" where that is unknown."""
    shown = one.shown(difference)
    if shown == "unknown":
        return ""
    begun = f"A model with random weights shows {part(one)}"
    if shown == "material":
        return f"{begun}, too: it is not only learnt."
    return f"{begun}: what the model learnt makes the difference."


def randomised_sentence(rows: Sequence[GroupStatistic], found: Randomised) -> str:
    """The result of the randomised models, in a sentence."""
    if not found.items:
        return (
            f"Randomised model: it could be explained on none of the {found.failed:,} sampled "
            "items, so what such a model shows was not measured."
        )
    lost = f" ({found.failed:,} more could not be explained)" if found.failed else ""
    what = "Randomised model" if found.draws == 1 else f"Randomised models, {found.draws} draws"
    begun = f"{what}, over {found.items:,} sampled items{lost}: "
    if not found.rows:
        return f"{begun}too few entities are mentioned in them to compare groups."
    times = "verdict" if found.randomised_differences == 1 else "verdicts"
    return (
        f"{begun}{found.randomised_differences} {times} of difference, where the audited model has "
        f"{found.differences} over the same items. {_survivors(rows, found)}"
    )


def _survivors(rows: Sequence[GroupStatistic], found: Randomised) -> str:
    if not any(row.flagged for row in rows):
        return "The table has no difference that it could explain away."
    shown = _shown(rows, found)
    names: dict[Shown, list[str]] = {
        kind: list(dict.fromkeys(one.group for one, part_shown in shown if part_shown == kind))
        for kind in ("material", "small", "unknown")
    }
    sentences = []
    if names["material"]:
        sentences.append(
            f"At least half of the difference survives randomisation for "
            f"{named(names['material'])}; it comes from the words or the method, not only from "
            "what the model learnt."
        )
    if names["small"]:
        sentences.append(
            f"Less than half survives for {named(names['small'])}: what the model learnt makes "
            "the difference."
        )
    if names["unknown"]:
        sentences.append(
            f"How much survives is not known for {named(names['unknown'])}: the sampled items "
            "(groups.check) are too few, or differ otherwise than all items."
        )
    return (
        " ".join(sentences) or "None of the table's differences could be compared over these items."
    )


def planted_sentence(found: tuple[Planted, ...]) -> str:
    """The differences that the run could have found, in a sentence."""
    shares = [
        f"{number(one.difference)} in {percent(one.share)} "
        f"[{percent(one.interval[0])} to {percent(one.interval[1])}]"
        for one in sorted(found, key=lambda one: one.difference)
    ]
    wrong = sum(one.wrong for one in found)
    turned = f" With the wrong sign: {wrong} of {sum(one.lexicons for one in found)}."
    return (
        "Planted into randomly sampled groups, a difference would have been found: "
        f"{'; '.join(shares)} of {found[0].lexicons} lexicons.{turned if wrong else ''}"
    )


RULES: Mapping[type, RedactionRules] = {
    Ablations: RedactionRules(
        stands=at_least("items"), fields={"rows": within, **kept("items changed")}
    ),
    AblationStatistic: RedactionRules(
        stands=at_least("items"),
        fields=kept(
            "group target class_name items entities changed rate interval change change_interval "
            "correlation"
        ),
    ),
    Randomised: RedactionRules(
        fields={
            "rows": within,
            **kept("items failed differences randomised_differences draws"),
        }
    ),
    RandomisedRow: RedactionRules(
        fields={
            "real": within,
            "randomised": within,
            **kept("group target class_name entities ratio ratio_interval"),
        }
    ),
    Measured: RedactionRules(fields=kept("difference interval share share_interval verdict")),
    Placebo: RedactionRules(fields=kept("lexicons comparisons below differences")),
    Planted: RedactionRules(fields=kept("difference lexicons found wrong share interval")),
}
