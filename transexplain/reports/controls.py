"""What the controls of the group table found, one sentence each; for every format."""

from transexplain.bias.planted import Planted
from transexplain.bias.randomised import Randomised, RandomisedRow
from transexplain.bias.removals import Removals
from transexplain.reports.records import Groups
from transexplain.reports.wording import named, number, percent


def removal_sentence(found: Removals) -> str:
    """How often the prediction hung on the mention."""
    share = percent(found.flips / found.items)
    return (
        f"Taking the mention out changed the prediction of {found.flips:,} of {found.items:,} "
        f"drawn items ({share})."
    )


def surviving(groups: Groups, found: Randomised) -> list[RandomisedRow]:
    """Comparisons with a *difference* that the randomised model shows, too."""
    flagged = {(row.group, row.target, row.class_name): row for row in groups.rows if row.flagged}
    return [
        one
        for one in found.rows
        if (row := flagged.get((one.group, one.target, one.class_name))) is not None
        and one.survives(row.difference or 0.0)
    ]


def randomised_sentence(groups: Groups, found: Randomised) -> str:
    """What a model that has learnt nothing says of the groups."""
    if not found.items:
        return (
            f"Randomised model: it could be explained on none of the {found.failed:,} drawn items, "
            "so this control says nothing."
        )
    lost = f" ({found.failed:,} more could not be explained)" if found.failed else ""
    begun = f"Randomised model, over {found.items:,} drawn items{lost}: "
    if not found.rows:
        return f"{begun}too few entities are mentioned in them to compare groups."
    times = "verdict" if found.randomised_differences == 1 else "verdicts"
    return (
        f"{begun}{found.randomised_differences} {times} of difference, where the audited model has "
        f"{found.differences} over the same items. {_survivors(groups, found)}"
    )


def _survivors(groups: Groups, found: Randomised) -> str:
    if not any(row.flagged for row in groups.rows):
        return "The table has no difference that it could explain away."
    names = list(dict.fromkeys(one.group for one in surviving(groups, found)))
    if not names:
        return "No difference of the table survives randomisation."
    return (
        f"Survives randomisation: {named(names)}; what survives comes from the words or the "
        "method, not from what the model learnt."
    )


def planted_sentence(found: tuple[Planted, ...]) -> str:
    """What the run could have seen."""
    shares = [
        f"{number(one.difference)} in {percent(one.share)} "
        f"[{percent(one.interval[0])} to {percent(one.interval[1])}]"
        for one in sorted(found, key=lambda one: one.difference)
    ]
    wrong = sum(one.wrong for one in found)
    turned = f" With the wrong sign: {wrong} of {sum(one.lexicons for one in found)}."
    return (
        "Planted into groups drawn by lot, a difference would have been found: "
        f"{'; '.join(shares)} of {found[0].lexicons} lexicons.{turned if wrong else ''}"
    )


def sentences(groups: Groups) -> list[str]:
    """Everything above that the run has, in this order; plain text."""
    found = [removal_sentence(groups.removals)] if groups.removals else []
    if groups.randomised:
        found.append(randomised_sentence(groups, groups.randomised))
    if groups.planted:
        found.append(planted_sentence(groups.planted))
    return found
