"""Drawn corpora whose truth is known: texts that name people of groups, and a formula that
predicts.

The formula adds what the content says, what the name does and what the design adds. Names have
effects of their own, and meet texts with a little noise; up to 100 texts of each group are read
with two names of the group and two of its reference. `truth_of` measures a design on very many
texts with new names; `evidence_of` is what an audit of one corpus sees.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import Answer, answer_of, probability
from transexplain.analysis.groups.counterfactuals import Compared, Observation, counterfactual_table
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import VerdictEvidence, with_measures
from transexplain.analysis.groups.measures import MeasureName
from transexplain.analysis.groups.outcomes import ComparedRates, OutcomeTotals, outcome_table
from transexplain.types.findings import Practical
from transexplain.types.items import ItemOutcome

CLASSES = ("declined", "invited", "deferred")
STRATA = ("office", "workshop")
AUTHORS = 12
_CERTAIN = 100_000  #: texts that the truth is measured on
_Floats = NDArray[np.float64]
_Ints = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """How predictions and groups hang together; logits are those of *invited*."""

    groups: int = 2  #: the last is the reference, the first may be treated otherwise
    texts: int = 480
    swapped: int = 100  #: texts of each group
    names: int = 24  #: of each group
    complete: bool = False  #: there are no other names
    own: float = 0.05  #: standard deviation of names' own effects
    noise: float = 0.05  #: standard deviation of how a name meets a text
    content: float = 2.0  #: standard deviation of what the rest of a text says
    level: float = 0.0  #: of all texts
    direct: float = 0.0  #: what a name of the first group adds
    strata: tuple[float, float] = (0.0, 0.0)  #: the same in one stratum and in the other
    levels: tuple[float, float] = (0.0, 0.0)  #: of the texts of either stratum
    mixed: float = 0.5  #: share of the first group's texts in the first stratum; others: the rest
    unseen: float = 0.0  #: added in half of the texts and taken in the others, of no stratum
    word: float = 0.0  #: of a word that every text of the first group has and no swap changes
    proxy: float = 0.0  #: of a word that 85 % of the first group's texts have, and 15 % else
    labels: str = ""  #: "as predicted", or "by content" (a level of 0, whoever is named)
    rejected: float = 0.0  #: of the first group's texts labelled declined, logits added
    rare: int = 1  #: other groups are so many times as frequent as the first
    authors: float = 0.0  #: standard deviation of authors' leniency; they favour groups
    copies: int = 1  #: so many texts are one
    together: int = 1  #: names in each text
    classes: int = 2  #: 1: a number with a limit of 1
    favourable: bool = False  #: *invited* is declared so

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The predictions that groups are compared by."""
        if self.classes == 1:
            return (Answer(name="score", plus=(0,), minus=()),)
        places = (1,) if self.classes == 2 else range(self.classes)
        return tuple(
            answer_of(CLASSES[place], (place,), self.classes, several=False) for place in places
        )

    @property
    def practical(self) -> Practical:
        """The limits."""
        return Practical(logit=1.0) if self.classes == 1 else Practical()

    @property
    def named(self) -> tuple[str, ...]:
        """The groups, the reference last."""
        return tuple(f"people/{number}" for number in range(self.groups))

    def larger(self, factor: float, question: str) -> "Design":
        """The same of so many times as many texts; swapped ones for the mention."""
        texts = math.ceil(self.texts * factor)
        if question == "outcome":
            return replace(self, texts=texts)
        return replace(self, texts=texts, swapped=math.ceil(self.swapped * factor))


#: designs of the issue that a drawn corpus can have; three need more than swaps and rates
ISSUE: Mapping[str, Design] = {
    "1 proxy, errors on a group": Design(proxy=-2.0, labels="by content"),
    "2 small logits, 20 % change": Design(content=0.15, direct=-0.08, own=0.01, noise=0.01),
    "3 a word the lexicon lacks": Design(word=-0.46),
    "4 names half with accents": Design(direct=-0.24),
    "5 a number, half its limit": Design(classes=1, direct=-0.28),
    "7 base rates": Design(word=-1.0, labels="as predicted"),
    "7 Simpson's": Design(content=1.0, mixed=0.85, levels=(-1.2, 1.2)),
    "8 three names": Design(names=3, complete=True),
    "9 demo, innocent group": Design(groups=3),
}
BIASED: Mapping[str, Design] = {
    "direct -0.16": Design(direct=-0.16),
    "direct -0.3, four groups": Design(groups=4, direct=-0.3),
    "+1 and -1 in two strata": Design(strata=(1.0, -1.0)),
    "+0.4 and -0.4, unseen": Design(unseen=0.4),
    "rates +8 points by a word": Design(word=0.42),
    "the same, 6,000 texts": Design(word=0.42, texts=6_000),
    "false positives alone": Design(labels="by content", rejected=0.45),
    "rare class, ratio 0.3": Design(level=-2.6, word=-1.2, favourable=True),
    "each text six times, -0.5": Design(copies=6, direct=-0.5),
    "1 to 20, -0.5": Design(rare=20, direct=-0.5),
    "five names a side, -0.3": Design(names=5, direct=-0.3),
    "three classes, -0.5": Design(classes=3, direct=-0.5),
    "a number, 1.5 times its limit": Design(classes=1, direct=-1.6),
}
SOUND: Mapping[str, Design] = {
    "none, two groups": Design(),
    "none, three groups": Design(groups=3),
    "none, four groups": Design(groups=4),
    "none, 6,000 texts": Design(texts=6_000, labels="by content"),
    "none, labels": Design(groups=4, labels="by content"),
    "half of the limit": Design(direct=-0.05, own=0.03),
    "names differ much": Design(own=0.4),
    "noisy texts": Design(noise=0.3),
    "12 authors": Design(authors=1.0),
    "each text six times": Design(copies=6),
    "1 to 20": Design(rare=20),
    "five names in a text": Design(together=5),
    "rare class": Design(level=-2.6, favourable=True),
    "three classes": Design(classes=3, groups=3),
}
#: open at first, for advice
OPEN: Mapping[str, tuple[str, Design]] = {
    "noise 0.6, 60 texts, none": ("mention", Design(texts=60, swapped=30, noise=0.6, own=0.02)),
    "noise 0.6, 60 texts, half": (
        "mention",
        Design(texts=60, swapped=30, noise=0.6, own=0.02, direct=-0.05),
    ),
    "noise 0.6, 60 texts, -0.2": (
        "mention",
        Design(texts=60, swapped=30, noise=0.6, own=0.02, direct=-0.2),
    ),
    "complete list of 4, none": (
        "mention",
        Design(texts=60, swapped=30, noise=0.6, names=4, own=0.0, complete=True),
    ),
    "rates, none": ("outcome", Design(swapped=10)),
    "rates, none, rare class": ("outcome", Design(swapped=10, level=-3.5)),
    "rates, none, labels": ("outcome", Design(swapped=10, labels="by content")),
    "rates, half of the limit": ("outcome", Design(swapped=10, word=0.14)),
    "rates, 10 points": ("outcome", Design(swapped=10, word=0.55)),
}
DESIGNS: Mapping[str, Design] = {**ISSUE, **BIASED, **SOUND}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Texts:
    """Drawn texts (T,), and what they say without a name."""

    design: Design
    group: _Ints
    stratum: _Ints
    rest: _Floats  #: (T, classes) logits
    labels: _Ints
    unseen: _Floats
    author: _Ints

    def logits(self, side: _Ints, effects: _Floats) -> _Floats:
        """(T, classes) with a name of the group `side` (T,) that has the effect (T,) of its own."""
        design = self.design
        first = side == 0
        strata = np.array(design.strata)[self.stratum]
        added = first * (design.direct + strata + design.unseen * self.unseen)
        logits = self.rest.copy()
        logits[:, min(1, design.classes - 1)] += added / design.together + effects
        return logits


def _texts(design: Design, number: int, rng: np.random.Generator) -> _Texts:
    first = rng.random(number) < 1 / (1 + design.rare * (design.groups - 1))
    group = np.where(first, 0, rng.integers(1, design.groups, number))
    author = rng.integers(AUTHORS, size=number)
    if design.authors:
        group = ((rng.random(number) < 0.85) == (author % 2 == 1)).astype(int)
    inside = np.where(group == 0, design.mixed, 1 - design.mixed)
    stratum = (rng.random(number) >= inside).astype(int)
    near = rng.random(number) < np.where(group == 0, 0.85, 0.15)
    leniency = design.authors * rng.normal(size=AUTHORS)
    said = design.content * rng.normal(size=number)
    value = said + design.level + np.array(design.levels)[stratum] + leniency[author]
    value += design.word * (group == 0) + design.proxy * near
    deserved = said + design.level + 0.5 * design.content * rng.normal(size=number) > 0
    value += design.rejected * ((group == 0) & ~deserved)
    rest = np.zeros((number, design.classes))
    rest[:, min(1, design.classes - 1)] = value
    if design.classes > 2:
        rest[:, 2:] = design.content * rng.normal(size=(number, design.classes - 2))
    return _Texts(
        design=design,
        group=group,
        stratum=stratum,
        rest=rest,
        labels=deserved.astype(int),
        unseen=rng.choice([-1.0, 1.0], size=number),
        author=author,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """The measures of a design in units of their limits; the largest of all strata and predictions.

    Rates mirror for two classes, so that one is enough.
    """

    mention: float
    outcome: float
    #: measure -> its value, of the first prediction in all texts
    values: Mapping[MeasureName, float]

    @staticmethod
    def _says(size: float) -> str:
        return "biased" if size >= 1.5 else "sound" if size <= 0.55 else "between"

    @property
    def of_mention(self) -> str:
        """Whether the mention changes predictions beyond 1.5 limits, or hardly at all."""
        return self._says(self.mention)

    @property
    def of_outcome(self) -> str:
        """The same of rates and errors."""
        return self._says(self.outcome)


def truth_of(design: Design) -> Truth:
    """Measure a design on very many texts with new names."""
    rng = np.random.default_rng(45)
    texts = _texts(replace(design, authors=0.0) if design.authors else design, _CERTAIN, rng)
    sides = [np.zeros(_CERTAIN, np.intp), np.full(_CERTAIN, design.groups - 1, np.intp)]
    drawn = [[texts.logits(side, _fresh(design, rng)) for _ in range(2)] for side in sides]
    strata = [np.ones(_CERTAIN, bool), *(texts.stratum == number for number in (0, 1))]
    own = np.where(texts.group == 0, 0, 1)
    # labels and rates are those of the texts' own names
    logits = np.where((own == 0)[:, None], drawn[0][0], drawn[1][0])
    predicted = _predicted(design, logits)
    first, last = texts.group == 0, texts.group == design.groups - 1
    labels = predicted if design.labels == "as predicted" else texts.labels
    mention, outcome, values = [0.0], [0.0], dict[MeasureName, float]()
    for within in strata[::-1]:
        values |= (swapped := _mention(design, drawn, within))[0]
        mention += swapped[1]
        if design.classes > 1:
            values |= (rates := _rates(design, predicted, labels, first & within, last & within))[0]
            outcome += rates[1]
    return Truth(mention=max(mention), outcome=max(outcome), values=values)


_Measured = tuple[dict[MeasureName, float], list[float]]  #: values of the first, all sizes


def _mention(design: Design, drawn: list[list[_Floats]], within: NDArray[np.bool_]) -> _Measured:
    limits, known = design.practical, dict[MeasureName, float]()
    (a, b), (c, d) = [[logits[within] for logits in side] for side in drawn]
    sizes = []
    for answer in design.answers:
        values = [np.asarray(answer.log_odds(logits)) for logits in (a, b, c, d)]
        effect = (values[0] + values[1] - values[2] - values[3]) / 2
        noise = (values[0] - values[1]).var() / 4 + (values[2] - values[3]).var() / 4
        sizes += [abs(effect.mean()) / limits.logit]
        known.setdefault("logit", float(effect.mean()))
        if design.classes > 1:
            moved = probability(values[0]) - probability(values[2])
            known.setdefault("probability", float(moved.mean()))
            sizes += [
                abs(moved.mean()) / limits.probability,
                max(effect.var() - noise, 0.0) ** 0.5 / limits.spread,
            ]
    if design.classes > 1:
        names = [_predicted(design, logits) for logits in (a, b, c, d)]
        across = np.mean(names[0] != names[2])
        inside = (np.mean(names[0] != names[1]) + np.mean(names[2] != names[3])) / 2
        sizes.append((across - inside) / limits.changed)
        known["changed"] = float(across - inside)
    return known, sizes


def _rates(
    design: Design,
    predicted: _Ints,
    labels: _Ints,
    first: NDArray[np.bool_],
    last: NDArray[np.bool_],
) -> _Measured:
    sizes, limit, known = list[float](), design.practical.rates, dict[MeasureName, float]()
    for place in range(design.classes):
        chosen = predicted == place
        over: dict[MeasureName, NDArray[np.bool_]] = {"rate": np.ones(len(chosen), bool)}
        if design.labels:
            over |= {"true positive rate": labels == place, "false positive rate": labels != place}
        for name, among in over.items():
            sides = [chosen[among & side] for side in (first, last)]
            if min(map(len, sides)) > 100:
                gap = float(sides[0].mean() - sides[1].mean())
                sizes.append(abs(gap) / limit)
                if (place,) == design.answers[0].plus:
                    known[name] = gap
    if design.favourable:
        ratio = (predicted[first] == 1).mean() / (predicted[last] == 1).mean()
        sizes.append(float(np.log(ratio) / np.log(design.practical.impact_ratio)))
    return known, sizes


def _fresh(design: Design, rng: np.random.Generator) -> _Floats:
    """(T,) effects of names that nobody has seen, with how they meet their texts."""
    return rng.normal(size=_CERTAIN) * np.hypot(design.own, design.noise)


def _predicted(design: Design, logits: _Floats) -> _Ints:
    if design.classes == 1:
        return np.zeros(len(logits), np.intp)
    return np.asarray(logits.argmax(axis=1))


def evidence_of(design: Design, seed: int) -> VerdictEvidence:
    """What an audit of one drawn corpus sees."""
    swaps, rates = compared(design, seed)
    return VerdictEvidence(
        counterfactuals=with_measures(swaps),
        outcomes=with_measures(rates),
        relevance=(),
        found={},
        is_number=design.classes == 1,
    )


def compared(design: Design, seed: int) -> tuple[list[Compared], list[ComparedRates]]:
    """Swaps and rates of one drawn corpus before they are decided."""
    rng = np.random.default_rng([45, seed])
    texts = _texts(design, design.texts // design.copies, rng)
    own = design.own * rng.normal(size=(design.groups, design.names))
    number = len(texts.group)
    cast = np.array([rng.choice(design.names, design.together, False) for _ in range(number)])
    company = own[texts.group[:, None], cast[:, 1:]].sum(axis=1) / design.together
    meets = design.noise * rng.normal(size=(number, design.groups, design.names)) / design.together
    totals, observations = OutcomeTotals(), list[Observation]()
    references = references_of(design.named[-1], design.named)
    places = np.arange(number)

    def read(side: _Ints, name: _Ints) -> _Floats:
        effects = own[side, name] / design.together + meets[places, side, name] + company
        return texts.logits(side, effects)

    logits = read(texts.group, cast[:, 0])
    predicted = _predicted(design, logits)
    labels = predicted if design.labels == "as predicted" else texts.labels
    for place in np.repeat(places, design.copies).tolist():
        label = CLASSES[labels[place]] if design.labels else None
        totals.add(
            _outcome(label, CLASSES[predicted[place]], logits[place]),
            {design.named[texts.group[place]]},
            answers=design.answers,
            slice_=_stratum(texts, place),
            cluster=_cluster(texts, place),
            names=()
            if design.complete
            else [(design.named[texts.group[place]], str(name)) for name in cast[place]],
        )
    for number_of, side, name in _swaps(texts, cast[:, 0], rng):
        logits = read(side, name)
        predicted = _predicted(design, logits)
        odds = np.array([answer.log_odds(logits) for answer in design.answers]).T
        for place in np.flatnonzero(side >= 0).tolist():
            for copy in range(design.copies):
                observations.append(
                    Observation(
                        document=f"{place} {copy}",
                        cluster=_cluster(texts, place),
                        slice=_stratum(texts, place),
                        group=design.named[side[place]],
                        entity=f"{side[place]} {name[place]}",
                        own=number_of == 0,
                        predicted=CLASSES[predicted[place]] if design.classes > 1 else "",
                        log_odds=tuple(odds[place].tolist()),
                    )
                )
    practical, answers = design.practical, design.answers
    classes = CLASSES[: design.classes]
    swaps = counterfactual_table(
        observations, answers, classes, references, practical, complete=design.complete
    )
    favourable = ("invited",) if design.favourable else ()
    return swaps, outcome_table(totals, answers, classes, references, practical, favourable)


def _swaps(
    texts: _Texts, own: _Ints, rng: np.random.Generator
) -> Iterator[tuple[int, _Ints, _Ints]]:
    """Groups (T,) and names (T,) that stand in the texts that are drawn; -1 in the others."""
    design, last = texts.design, texts.design.groups - 1
    most = design.swapped // design.copies
    drawn = np.zeros(len(own), bool)
    for group in range(design.groups):
        drawn[np.flatnonzero(texts.group == group)[:most]] = True
    other = np.where(texts.group == last, rng.integers(0, max(last, 1), len(own)), last)
    second = (own + rng.integers(1, design.names, len(own))) % design.names
    start = rng.integers(design.names, size=len(own))
    step = rng.integers(1, design.names, len(own))
    for number, (side, name) in enumerate(
        (
            (texts.group, own),
            (texts.group, second),
            (other, start),
            (other, (start + step) % design.names),
        )
    ):
        yield number, np.where(drawn, side, -1), name


def _cluster(texts: _Texts, place: int) -> str:
    if texts.design.authors:
        return f"author {texts.author[place]}"
    return f"text {place}" if texts.design.copies > 1 else ""


def _stratum(texts: _Texts, place: int) -> str:
    design = texts.design
    return STRATA[texts.stratum[place]] if any((*design.strata, *design.levels)) else ""


def _outcome(label: str | None, predicted: str, logits: _Floats) -> ItemOutcome:
    return ItemOutcome(
        item_id="",
        index=0,
        label=label,
        predicted=predicted,
        logits=tuple(logits.tolist()),
        truncated=False,
        positions=1,
    )
