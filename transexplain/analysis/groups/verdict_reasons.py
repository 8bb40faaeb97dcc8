"""The words of a verdict's reason: what swapped names, or hidden regions, did to the answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from transexplain.analysis.groups.counterfactuals import Counterfactual, Kind
from transexplain.analysis.groups.intervals import Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """The words of one kind of counterfactual."""

    deed: str  #: what was done to the group
    moves: str  #: the deed, and what it does
    may_move: str  #: the same in doubt
    itself: str  #: what is in question
    too_few: str
    none: str
    nothing: str  #: why, where other groups have some
    items: str
    named: str  #: what entities are
    against: str  #: what an effect is measured from; "": it is plain


WORDS: Mapping[Kind, Words] = {
    "swap": Words(
        deed="swapping its mentions",
        moves="swapping its mentions moves",
        may_move="swapping its mentions may move",
        itself="the mention itself",
        too_few="too few mentions were swapped",
        none="no mention was swapped",
        nothing="no text has a mention that a name of its reference could replace",
        items="texts",
        named="names",
        against="",
    ),
    "region": Words(
        deed="hiding its regions",
        moves="hiding its regions shows that they move",
        may_move="hiding its regions suggests that they move",
        itself="the region itself",
        too_few="too few of its regions were hidden",
        none="none of its regions was hidden",
        nothing="none was drawn, or none of its reference",
        items="pictures",
        named="entities",
        against=" against its reference's",
    ),
}


def _flips_of(row: Counterfactual) -> str:
    """How often the prediction changes."""
    if row.kind == "swap":
        return f"{100 * row.flips:.0f} % of pairs of names are answered differently"
    return (
        f"the prediction changes without {100 * row.flips:.0f} % of them and "
        f"{100 * (row.own_flips or 0.0):.0f} % of its reference's"
    )


def effect_of(row: Counterfactual, *, names: bool = False) -> str:
    """The size of an effect; with `names`, of the names that were read beside names like them."""
    words = WORDS[row.kind]
    like, these = _span(row.interval), _span(row.names_interval)
    sure = f"95 % {like}"
    if names and these != like:
        sure = f"95 % {these} for these names, {like} for names like them"
    return (
        f"by {signed(row.effect)} logit ({sure}), "
        f"{signed(100 * row.probability, 1)} points of probability{words.against}; {_flips_of(row)}"
    )


def _span(interval: Interval | None) -> str:
    low, high = interval or (math.nan, math.nan)
    return f"{signed(low)} to {signed(high)}"


def signed(value: float, digits: int = 2) -> str:
    """With its sign, or 0 without one."""
    text = f"{value:+.{digits}f}"
    return text.strip("+-") if float(text) == 0.0 else text.replace("-", "\N{MINUS SIGN}")
