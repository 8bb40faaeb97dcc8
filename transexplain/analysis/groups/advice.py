"""Advice on an open question, in words: the inverse of a run's power.

Nothing is advised that the data or the lexicon cannot give: then it is said what they have.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transexplain.analysis.groups.counterfactuals import MIN_TEXTS, Counterfactual
from transexplain.analysis.groups.measures import Measure, MeasureName
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.power import INSIDE, Precision, RatePrecision
from transexplain.analysis.groups.verdict_sentences import WORDS

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
