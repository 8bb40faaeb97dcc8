"""The sentences of a verdict: which measure decided, its interval, its limit, in plain words; and
advice on an open question: the inverse of a run's power.

Nothing is advised that the data or the lexicon cannot give: then it is said what they have.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from transexplain.analysis.groups.counterfactuals import MIN_TEXTS, Counterfactual, Kind
from transexplain.analysis.groups.intervals import ItemRate
from transexplain.analysis.groups.measures import Measure, MeasureName, gravest
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.power import INSIDE, Precision, RatePrecision


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """The words for one kind of counterfactual."""

    deed: str  #: what was done to the group
    itself: str  #: what is in question
    too_few: str
    none: str
    nothing: str  #: why, where other groups have some
    items: str
    named: str  #: what entities are
    against: str  #: what an effect is measured from; "": it is plain


def _of_hidden(part: str) -> Words:
    return Words(
        deed=f"hiding its {part}s",
        itself=f"the {part} itself",
        too_few=f"too few of its {part}s were hidden",
        none=f"none of its {part}s was hidden",
        nothing="none was drawn, or none of its reference",
        items="items",
        named="entities",
        against=" more than hiding its reference's",
    )


WORDS: Mapping[Kind, Words] = {
    "swap": Words(
        deed="swapping its mentions",
        itself="the mention itself",
        too_few="too few mentions were swapped",
        none="no mention was swapped",
        nothing="no text has a mention that a name of its reference could replace",
        items="texts",
        named="names",
        against="",
    ),
    "region": _of_hidden("region"),
    "substructure": _of_hidden("substructure"),
}


def decided_effect(row: Counterfactual) -> str:
    """Return what swaps do to a prediction, by the measure that decided."""
    measure = gravest(row.measures)
    assert measure is not None  # a row is decided by one
    deed = f"{WORDS[row.kind].deed}{in_stratum(row.stratum)}"
    if measure.state == "outside":
        return f"{deed} {_measured(row, measure)}{_beside(row, measure)}"
    shown = [row.measure("probability") or row.measure("logit"), row.measure("changed")]
    return f"{deed} {' and '.join(_measured(row, part) for part in shown if part is not None)}"


def open_effect(row: Counterfactual) -> str:
    """Why swaps leave open whether a mention changes the prediction."""
    words = WORDS[row.kind]
    if not row.enough and row.clusters == 1 < row.documents:
        return f"the {row.documents:,} {words.items} that were changed are one cluster: no interval"
    if not row.enough:
        return (
            f"{words.too_few} ({row.documents} {words.items} in {row.clusters} clusters, "
            f"{row.entities} and {row.other_entities} {words.named})"
        )
    undecided = [measure for measure in row.measures if measure.state != "inside"]
    measure = gravest(undecided or row.measures)
    assert measure is not None  # there is an interval
    where = in_stratum(row.stratum)
    return f"{words.deed}{where} {_measured(row, measure)}"


def _measured(row: Counterfactual, measure: Measure) -> str:
    """Return what swaps do, by a measure with its interval and its limit."""
    against = WORDS[row.kind].against
    if measure.name == "changed":
        return (
            f"changes {_percent(row.changed_across)} of predictions, "
            f"{_percent(row.changed_within)} {_by_chance(row)} ({_sure(measure, 100.0, 1)}, limit "
            f"{100 * measure.high:g} points)"
        )
    if measure.name == "spread":
        items = WORDS[row.kind].items
        return (
            f"does not do the same to {row.prediction} in all {items}: the effect differs by "
            f"{measure.value:.2f} logit ({_sure(measure, 1.0, 2)}, limit {measure.high:g})"
        )
    if measure.name == "probability":
        return (
            f"moves the probability of {row.prediction} by {signed(100 * measure.value, 1)} points"
            f"{against} ({_sure(measure, 100.0, 1)}, limit {100 * measure.high:g})"
        )
    if row.measure("probability") is None:
        return (
            f"moves {row.prediction} by {signed(measure.value)}{against} "
            f"({_sure(measure, 1.0, 2)}, limit {measure.high:g})"
        )
    return (
        f"moves the log-odds of {row.prediction} by {signed(measure.value)}{against} "
        f"({_sure(measure, 1.0, 2)}, limit {measure.high:g}), which is "
        f"{signed(100 * row.probability, 1)} points of probability"
    )


def _by_chance(row: Counterfactual) -> str:
    return "within the group" if row.kind == "swap" else "by hiding its reference's"


def _beside(row: Counterfactual, measure: Measure) -> str:
    """Return how many predictions change, where another measure decided."""
    if measure.name == "changed" or row.changed_across is None:
        return ""
    return (
        f"; {_percent(row.changed_across)} of predictions change, "
        f"{_percent(row.changed_within)} {_by_chance(row)}"
    )


def decided_rates(row: Outcome) -> str:
    """Return how rates compare, by the measure that decided."""
    measure = gravest(row.measures)
    assert measure is not None  # a row is decided by one
    differ = "" if measure.state == "outside" else " within limits"
    return f"{_rates(row, measure)}{differ}"


def open_rates(row: Outcome) -> str:
    """Why rates leave open whether the outcome differs."""
    measure = gravest(measure for measure in row.measures if measure.state != "inside")
    assert measure is not None  # else the row is decided
    return f"rates may differ: {_rates(row, measure)}"


def rates(row: Outcome) -> str:
    """Return how often a prediction is made of a group and of its reference."""
    return _rates(row, row.measure("rate") or row.measures[0]) if row.measures else ""


#: measure -> the rate of a side that it compares, and the items that this is over
_OVER: Mapping[MeasureName, tuple[str, str]] = {
    "rate": ("selected", ""),
    "impact ratio": ("selected", ""),
    "true positive rate": ("true_positive", " labelled so"),
    "false positive rate": ("false_positive", " labelled otherwise"),
    "precision": ("precision", " predicted so"),
}
#: the same of a type of entities, of which the type is the first word
_OF_TYPES: Mapping[MeasureName, tuple[str, str]] = {
    "rate": ("is found in", ""),
    "true positive rate": ("is recognised in", " labelled "),
    "precision": ("is right in", " predicted as "),
}


def _rates(row: Outcome, measure: Measure) -> str:
    field, which = _OVER[measure.name]
    mine, other = getattr(row.own, field), getattr(row.other, field)
    said, items, again = f"{row.prediction} is predicted for", _noun(row, mine), ""
    if row.counted == "answers":
        said = "the answer is that of the data for"
    elif row.counted == "entities":
        verb, which = _OF_TYPES[measure.name]
        said, again, which = f"{row.prediction} {verb}", "in ", which and which + row.prediction
    who = (
        f"{items} of {row.group}{which}"
        if row.whole
        else f"{items}{which} that mention {row.group}"
    )
    text = (
        f"{said} {_part(row, mine)} {who} and {again}{_part(row, other)} of {row.reference}"
        f"{in_stratum(row.stratum)}"
    )
    if measure.interval is None:
        return f"{text} (too few for an interval)"
    if measure.name == "impact ratio":
        value = "infinite" if math.isinf(measure.value) else f"{measure.value:.2f}"
        return (
            f"{text} (impact ratio {value}, {_sure(measure, 1.0, 2, sign=False)}, "
            f"limit {measure.low:g})"
        )
    return (
        f"{text} ({signed(100 * measure.value, 1)} points, {_sure(measure, 100.0, 1)}, limit "
        f"{100 * measure.high:g})"
    )


_ONE = {"items": "item", "entities": "entity", "answers": "answer"}


def _part(row: Outcome, rate: ItemRate | None) -> str:
    """The counted items or entities out of all; entities as they are, since they are few."""
    if rate is None:
        return "0 of 0"
    if row.counted == "entities":
        return f"{rate.count:,} of {rate.total:,}"
    return f"{100 * rate.share:.1f} % of {rate.total:,}"


def _noun(row: Outcome, rate: ItemRate | None) -> str:
    return row.counted if rate is None or rate.total != 1 else _ONE[row.counted]


def labels_say(row: Outcome) -> Iterator[str]:
    """Yield whether the labels differ as the predictions do."""
    mine, other = row.own.labelled, row.other.labelled
    measure = gravest(row.measures)
    if row.counted != "items" or mine is None or other is None or measure is None:
        return
    shares = f"{100 * mine.share:.1f} % and {100 * other.share:.1f} %"
    alike = abs(row.difference - (mine.share - other.share)) <= measure.high
    if measure.name == "impact ratio":
        ratios = row.own.selected.share * other.share, row.other.selected.share * mine.share
        alike = min(ratios) >= measure.low * max(ratios)
    if alike:
        yield f"the labels differ as the predictions do ({shares})"
    else:
        yield f"the labels do not differ so ({shares})"


def in_stratum(stratum: str) -> str:
    """Return where a result holds, unless it is everywhere."""
    return f" in {stratum}" if stratum else ""


def _sure(measure: Measure, scale: float, digits: int, *, sign: bool = True) -> str:
    """The interval that decided, with its level."""
    low, high = measure.interval or (math.nan, math.nan)
    if not sign or measure.name == "spread":
        upper = "no limit" if math.isinf(high) else f"{scale * high:.{digits}f}"
        return f"{_level(measure.level)} {scale * low:.{digits}f} to {upper}"
    return (
        f"{_level(measure.level)} {signed(scale * low, digits)} to {signed(scale * high, digits)}"
    )


def _level(level: float) -> str:
    return f"{100 * level:.3g} %" if level < 0.999 else f"{100 * level:.5g} %"


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{100 * share:.1f} %"


def signed(value: float, digits: int = 2) -> str:
    """With its sign, or 0 without one."""
    text = f"{value:+.{digits}f}"
    return text.strip("+-") if float(text) == 0.0 else text.replace("-", "\N{MINUS SIGN}")


_OFTEN = "in 9 of 10 runs"
_SCALE: dict[MeasureName, tuple[float, str]] = {
    "logit": (1.0, "logit"),
    "probability": (100.0, "points of probability"),
    "rate": (100.0, "points"),
    "true positive rate": (100.0, "points of true positives"),
    "false positive rate": (100.0, "points of false positives"),
    "precision": (100.0, "points of precision"),
}


def mention_advice(
    rows: Sequence[Counterfactual], texts: int, names: int, *, templates: bool = False
) -> str:
    """Return what would settle whether the mention changes the prediction; "": not known.

    Args:
        rows: of one group, of all predictions and strata.
        texts: of the data that mention the group or its reference; 0: not known.
        names: in the shorter of both lists; 0: not known.
        templates: whether the texts are templates, all of which were compared.
    """
    everywhere = next((row for row in rows if not row.stratum), None)
    if everywhere is None:
        return ""
    if not everywhere.enough:
        return (
            f"At least {MIN_TEXTS} texts in as many clusters have to be changed, "
            f"and {everywhere.documents:,} were."
        )
    if not (open_ := _open_swaps(rows)):
        return ""
    if templates:
        texts = everywhere.documents
    needed = _factor([precision for _, precision in open_], names)
    if needed is None or (texts and needed * everywhere.documents > texts):
        short = _too_short(open_, names, texts / everywhere.documents)
        if short:
            return short
    if needed is None:
        return _at_the_limit(everywhere.documents, "texts")
    needed_texts = _rounded(needed * everywhere.documents)
    items = "templates" if templates else WORDS[everywhere.kind].items
    if texts and needed_texts > texts:
        return (
            f"The data have {texts:,} {items} that mention either group; about {needed_texts:,} "
            f"would settle it {_OFTEN}."
        )
    return (
        f"With the mention changed in about {needed_texts:,} {items} ({everywhere.documents:,} "
        f"now) it is settled {_OFTEN}: raise `groups.check`."
    )


def outcome_advice(rows: Sequence[Outcome], names: int) -> str:
    """Return what would settle whether rates differ; "" where nothing is known.

    `names` are in the shorter of both lists; 0: not known.
    """
    everywhere = next((row for row in rows if not row.stratum), None)
    if everywhere is None:
        return ""
    if not (open_ := _open_rates(rows)):
        return ""
    own, other = everywhere.own.selected.total, everywhere.other.selected.total
    needed, counted = _factor([precision for _, precision in open_], names), everywhere.counted
    if needed is None:
        return _too_short(open_, names, 0.0) or _at_the_limit(own + other, counted)
    number, group = min((own, everywhere.group), (other, everywhere.reference))
    return (
        f"Swaps cannot settle it. Further data like these can: about {_rounded(needed * number):,} "
        f"{counted} of {group} ({number:,} now) do {_OFTEN}."
    )


def mention_factor(rows: Sequence[Counterfactual], names: int) -> float | None:
    """The times as many texts with which nine of ten runs settle the mention; None: no number."""
    return _factor([precision for _, precision in _open_swaps(rows)], names)


def outcome_factor(rows: Sequence[Outcome], names: int) -> float | None:
    """The times as many items with which nine of ten runs settle the outcome; None: no number."""
    return _factor([precision for _, precision in _open_rates(rows)], names)


def _open_swaps(rows: Sequence[Counterfactual]) -> list[tuple[Measure, Precision]]:
    named = min(min(row.entities, row.other_entities) for row in rows if not row.stratum)
    return [(measure, _with_names(precision, named)) for measure, precision in _open(rows)]


def _open_rates(rows: Sequence[Outcome]) -> list[tuple[Measure, Precision]]:
    return [(measure, _with_names(known, known.names)) for measure, known in _open(rows)]


def _factor(precisions: Sequence[Precision], names: int) -> float | None:
    """The times as much data with which nine of ten runs settle all of these.

    A value beyond its limit settles the question by itself.
    """
    beyond = [precision for precision in precisions if precision.beyond]
    factors = [precision.factor(names) for precision in beyond or precisions]
    known = [factor for factor in factors if factor is not None]
    if beyond:
        return min(known, default=None)
    return max(known, default=1.0) if len(known) == len(factors) else None


def _open(
    rows: Sequence[Counterfactual] | Sequence[Outcome],
) -> Iterator[tuple[Measure, Precision]]:
    """The measures that leave a question open, as group verdicts count them."""
    for row in rows:
        for measure in row.measures:
            counts = measure.doubtful if row.stratum else measure.state == "open"
            if counts and measure.precision is not None:
                yield measure, measure.precision


def _with_names(precision: Precision, names: float) -> Precision:
    """Its names those that were read, and their variance less what chance makes of it.

    Of names without effects the estimate is about `by_text` times the square root of 2 / names, and
    that of rates, of which there are more, is taken to be up to twice as much.
    """
    if math.isinf(precision.names):
        return precision
    number = max(names, 2)
    chance = (
        (1.0 + isinstance(precision, RatePrecision)) * precision.by_text * math.sqrt(2.0 / number)
    )
    return replace(precision, names=number, by_name=max(precision.by_name - chance, 0.0))


def _too_short(open_: Sequence[tuple[Measure, Precision]], names: int, most: float) -> str:
    """Return whether names are scarce: without their part of the error the data would do."""
    sampled = [
        (measure, known)
        for measure, known in open_
        if known.by_name > 0.0 and measure.name != "impact ratio"
    ]
    if not sampled:
        return ""
    alone = [replace(known, by_name=0.0, names=math.inf) for _, known in open_]
    needed = _factor(alone, 0)
    if needed is None or (most and needed > most):
        return ""
    measure, known = next((pair for pair in sampled if pair[0].name == "probability"), sampled[0])
    scale, unit = _SCALE.get(measure.name, (1.0, measure.name))
    low, high = replace(known, by_name=0.0, names=math.inf).like.interval(INSIDE)
    what = "difference" if isinstance(known, RatePrecision) else "effect"
    return (
        "This list is too short to say more about names like these "
        f"({max(int(known.names), names)} of the shorter side); for these names the {what} is "
        f"{scale * known.value:+.2f} {unit} "
        f"(90 % {scale * low:+.2f} to {scale * high:+.2f}). Where a list holds all that there are, "
        "such as nationalities or pronouns, declare `groups.complete: true`."
    )


def _at_the_limit(number: int, what: str) -> str:
    return f"The value lies so near the limit that no number of {what} settles it ({number:,} now)."


def _rounded(number: float) -> int:
    """Two digits, upwards."""
    step = int(10 ** max(math.floor(math.log10(max(number, 1.0))) - 1, 0))
    return math.ceil(number / step) * step
