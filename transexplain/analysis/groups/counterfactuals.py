"""The effect of a name on the answer: the same text with names of two groups in one place.

Every observation is an answer to a text with some name in the place of a mention, the text's own
name among them. A text in which names of a group and of its reference were put is compared with
itself, so nothing but the name differs. Names of one group in one text show how much any other
name changes the answer: that is the noise which a difference between groups has to exceed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.exact_totals import numbered
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.intervals import Estimate, Interval
from transexplain.types.findings import Practical

_Floats = NDArray[np.float64]
_Ints = NDArray[np.intp]
#: names of one side that a text is read with, its own among them; two show how much names matter
NAMES = 2
MIN_TEXTS = 5  #: compared; an interval over fewer is mostly chance
SHOWN = 5  #: examples of a comparison

#: how the answer was changed: another name in its text, or a region of its picture or a
#: substructure of its graph hidden
Kind = Literal["swap", "region", "substructure"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Observation:
    """An answer to one text with one name in the place of a mention."""

    document: str  #: item id, or the template that several items are made from
    group: str
    entity: str  #: whose name stands there
    cluster: str = ""  #: that the text belongs to; "": the document
    slice: str = ""
    template: bool = False  #: whether `document` is a template
    own: bool = False  #: the name that the text came with
    positions: int = 0  #: that the model reads
    predicted: str = ""
    log_odds: tuple[float, ...] = ()  #: of every answer of the plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One text in which another name moved the answer, or a picture without one of its regions."""

    document: str
    entity: str
    replacement: str  #: "": a region was hidden
    other: str  #: group of the replacement
    change: (
        float  #: log-odds with the first name, or the region, minus those with the second, or none
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Counterfactual:
    """What names of a group, in the place of names of its reference, do to one answer.

    Of kind `region`: what regions of a group add to the answers to their pictures, more than those
    of its reference. Texts are then pictures, and names what the regions are called. Of kind
    `substructure` the same of graphs.
    """

    kind: Kind = "swap"
    group: str
    reference: str
    answer: str
    stratum: str  #: value of the slice; "": all texts
    documents: int  #: texts with names of both sides
    clusters: int  #: of these texts
    entities: int  #: of the group, that stood in a text
    other_entities: int  #: of the reference
    effect: float  #: mean change of the log-odds, in logits
    interval: Interval | None  #: 95 %, over entities and clusters of texts
    #: 95 % of the effect of the names that were read, over clusters of texts alone
    names_interval: Interval | None
    probability: float  #: mean change of the answer's probability
    probability_interval: Interval | None
    #: share of pairs of names, one of each side, that are answered differently; of the group's
    #: regions without which another class is predicted; None: the answer is a number
    flips: float | None
    #: the same of two names of one side (None: there are no such pairs); of the reference's regions
    own_flips: float | None
    #: root mean square of half the change between two names of one side, or two ways of hiding
    noise: float | None
    #: standard deviation of the effect between texts, beyond the noise, in logits; of regions
    #: beyond that of the other side, and 0 where chance may have made it
    varies: float
    varies_p: float | None  #: of an effect that varies by no more than is practical
    per_position: float | None  #: change by a name of one more word piece, within one group
    #: of an effect of these names within practical limits, in logits and in probability, or of none
    #: at all of names like them
    p: float | None
    equal: bool  #: both 90 % intervals lie within the limits, and the effect varies within them
    needed: int | None  #: from which on the half-width would be half of what is practical
    needed_of: Literal["texts", "names"]  #: what `needed` counts: the scarcer of the two
    examples: tuple[Change, ...]  #: the widest


def counterfactual_table(
    observations: Iterable[Observation],
    answers: Sequence[Answer],
    references: Mapping[str, Reference],
    practical: Practical,
) -> list[Counterfactual]:
    """One row per group, answer and stratum; a group without swapped names has none."""
    by_document: dict[tuple[bool, str], list[Observation]] = {}
    for one in sorted(observations):
        by_document.setdefault((one.template, one.document), []).append(one)
    found: list[Counterfactual] = []
    for group, reference in references.items():
        others = set(reference.groups) - {group}
        if reference.name == group or not others:
            continue
        texts = list(_with_both(by_document.values(), group, others))
        strata = ["", *sorted({text[0].slice for text in texts} - {""})]
        for stratum in strata:
            within = [one for one in texts if stratum in ("", one[0].slice)]
            if len(within) >= (MIN_TEXTS if stratum else 2):
                compared, named = _Compared(within, group), (group, reference.name, stratum)
                found += [
                    compared.row(number, answer, named, practical)
                    for number, answer in enumerate(answers)
                ]
    return found


def observations_to_json(observations: Iterable[Observation]) -> list[dict[str, Any]]:
    """As JSON holds them, in one order whatever they came in."""
    return [{**asdict(one), "log_odds": list(one.log_odds)} for one in sorted(observations)]


def observations_from_json(content: Iterable[Mapping[str, Any]]) -> list[Observation]:
    """Read what `observations_to_json` wrote."""
    return [Observation(**{**one, "log_odds": tuple(one["log_odds"])}) for one in content]


def _with_both(
    documents: Iterable[list[Observation]], group: str, others: set[str]
) -> Iterator[list[Observation]]:
    for observed in documents:
        kept = [one for one in observed if one.group == group or one.group in others]
        sides = {one.group == group for one in kept}
        if len(sides) == 2:
            yield kept


class _Compared:
    """The texts of one comparison as arrays: N observations in D texts."""

    def __init__(self, texts: Sequence[Sequence[Observation]], group: str) -> None:
        self.texts = texts
        observed = [one for text in texts for one in text]
        self.observed = observed
        self.left = np.array([one.group == group for one in observed])
        self.text: _Ints = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        self.entities, self.entity = numbered(
            [(one.group == group, one.entity) for one in observed]
        )
        firsts = [text[0] for text in texts]
        alone = [None if one.cluster else (one.template, one.document) for one in firsts]
        clusters, self.cluster = numbered(
            [(one.cluster, document) for one, document in zip(firsts, alone, strict=True)]
        )
        self.clusters = len(clusters)
        self.values = np.array([one.log_odds for one in observed], dtype=np.float64)
        counts = self._by_text(self.left), self._by_text(~self.left)
        self.weight: _Floats = np.where(
            self.left, 1.0 / counts[0][self.text], -1.0 / counts[1][self.text]
        ) / len(texts)
        self.counts = counts

    def row(
        self, number: int, answer: Answer, named: tuple[str, str, str], practical: Practical
    ) -> Counterfactual:
        """The comparison of one answer; `named` are group, reference and stratum."""
        values = self.values[:, number]
        effect, these, scarce = self.estimates(values)
        chance, known, _ = self.estimates(probability(values))
        varies, varies_p = self._spread(values, practical.logit)
        own = sum(left for left, _ in self.entities)
        enough = len(self.texts) >= MIN_TEXTS and effect.freedom >= 1.0
        p = min(_p(effect, these, practical.logit), _p(chance, known, practical.probability))
        counts = {"texts": len(self.texts), "names": max(own, len(self.entities) - own)}
        inside = effect.inside(practical.logit) and chance.inside(practical.probability)
        flips, own_flips = (None, None) if answer.is_number else self._flips()
        return Counterfactual(
            group=named[0],
            reference=named[1],
            answer=answer.name,
            stratum=named[2],
            documents=len(self.texts),
            clusters=self.clusters,
            entities=own,
            other_entities=len(self.entities) - own,
            effect=effect.difference,
            interval=effect.interval() if enough else None,
            names_interval=these.interval() if enough else None,
            probability=chance.difference,
            probability_interval=chance.interval() if enough else None,
            flips=flips,
            own_flips=own_flips,
            noise=self._noise(values),
            varies=varies,
            varies_p=varies_p if enough else None,
            per_position=self._per_position(values),
            p=p if enough else None,
            equal=enough and inside and varies <= practical.logit,
            needed=effect.needed(practical.logit, counts[scarce]) if enough else None,
            needed_of=scarce,
            examples=self._examples(values),
        )

    def estimates(self, values: _Floats) -> tuple[Estimate, Estimate, Literal["texts", "names"]]:
        """The mean over texts of the difference between the sides, in two views; what is scarce.

        First with names as a sample, errors by entity and cluster: the variance is that of entities
        plus that of clusters of texts minus that of their meeting (Cameron, Gelbach and Miller
        2011, eq. 2.11), never below the larger of the first two, each with the factor G / (G - 1);
        Student's freedom is that of the scarcer of the three, less one. Then of the names that were
        read, errors by cluster alone. Last of what more would make the first interval narrower.
        """
        by_entity, by_cluster, meeting, numbers = self._variances(values)
        variance = max(by_entity + by_cluster - meeting, by_entity, by_cluster)
        freedom = min((self.clusters, *(one for one in numbers if one > 1))) - 1
        difference = float((self.weight * values).sum())
        like = Estimate(difference=difference, error=math.sqrt(variance), freedom=float(freedom))
        these = replace(like, error=math.sqrt(by_cluster), freedom=float(self.clusters - 1))
        return like, these, "names" if by_entity > by_cluster else "texts"

    def _variances(self, values: _Floats) -> tuple[float, float, float, list[int]]:
        """Of the difference: between entities, between clusters of texts, where they meet.

        Last the entities of either side.
        """
        parts = self._parts(values)
        difference = float((self.weight * values).sum())
        sides = [self._between(parts, left) for left in (True, False)]
        apart = self._side(values, 0) - self._side(values, 1) - difference
        by_cluster = _factor(self.clusters) * _squares(apart / len(self.texts), self.cluster)
        meeting = _squares(parts, self.entity * self.clusters + self.cluster[self.text])
        by_entity = sum(variance for variance, _ in sides)
        return by_entity, by_cluster, meeting, [count for _, count in sides]

    def _parts(self, values: _Floats) -> _Floats:
        """(N,) what the name of every observation adds to the error of the difference.

        A name is measured against the other side of its text. Against the text's own middle, of
        which it is a part, names would seem to differ less than they do.
        """
        other = np.where(self.left, *(self._side(values, side)[self.text] for side in (1, 0)))
        mean = float((self.weight * values).sum())
        return np.asarray(self.weight * (values - other - np.where(self.left, mean, -mean)))

    def _between(self, parts: _Floats, left: bool) -> tuple[float, int]:
        """The variance between the entities of one side, and how many they are."""
        own = self.left == left
        count = sum(one[0] == left for one in self.entities)
        return _factor(count) * _squares(parts[own], self.entity[own]) if count > 1 else 0.0, count

    def _side(self, values: _Floats, side: int) -> _Floats:
        """(D,) means of one side of every text: 0 the group, 1 its reference."""
        own = self.left if side == 0 else ~self.left
        return self._by_text(own * values) / self.counts[side]

    def _by_text(self, values: Any) -> _Floats:
        weights = np.asarray(values, dtype=np.float64)
        return np.asarray(np.bincount(self.text, weights, len(self.texts)), dtype=np.float64)

    def _spread(self, values: _Floats, practical: float) -> tuple[float, float | None]:
        """How much the effect differs between texts beyond the noise of names; and p, see `row`.

        The variance of the texts' differences minus what names of one side would make of it; p is
        that of a variance of at most `practical` squared, by Student's test over texts. None where
        no text has two names of one side.
        """
        differences = self._side(values, 0) - self._side(values, 1)
        noise = self._noise_by_text(values)
        if noise is None or len(differences) < MIN_TEXTS:
            return 0.0, None
        beyond = (differences - differences.mean()) ** 2 - noise
        mean, error = float(beyond.mean()), float(beyond.std(ddof=1)) / math.sqrt(len(beyond))
        p = 1.0
        if mean > practical**2:
            from scipy.special import stdtr  # slow to import, and a wrong request comes first

            p = float(stdtr(len(beyond) - 1, -(mean - practical**2) / error)) if error else 0.0
        return math.sqrt(max(mean, 0.0)), p

    def _within(self, values: _Floats, side: int) -> tuple[_Floats, _Floats]:
        """(D,) sums of squares within one side of every text, and their degrees of freedom."""
        own = self.left if side == 0 else ~self.left
        apart = np.where(own, values - self._side(values, side)[self.text], 0.0)
        return self._by_text(apart**2), self.counts[side] - 1

    def _noise_by_text(self, values: _Floats) -> _Floats | None:
        """(D,) the variance that names alone give to a text's difference; pooled over texts."""
        found = np.zeros(len(self.texts))
        pooled = [self._within(values, side) for side in (0, 1)]
        if not sum(freedom.sum() for _, freedom in pooled):
            return None
        both = sum(s.sum() for s, _ in pooled) / sum(f.sum() for _, f in pooled)
        for side, (squares, freedom) in enumerate(pooled):
            variance = squares.sum() / freedom.sum() if freedom.sum() else both
            local = np.where(freedom > 0, squares / np.maximum(freedom, 1.0), variance)
            found += local / self.counts[side]
        return found

    def _noise(self, values: _Floats) -> float | None:
        squares = [self._within(values, side) for side in (0, 1)]
        freedom = sum(float(f.sum()) for _, f in squares)
        return math.sqrt(sum(float(s.sum()) for s, _ in squares) / freedom) if freedom else None

    def _per_position(self, values: _Floats) -> float | None:
        """The slope of the answer on the number of word pieces, within texts and sides."""
        positions = np.array([one.positions for one in self.observed], dtype=np.float64)
        x, y = (self._apart(one) for one in (positions, values))
        square = float((x * x).sum())
        return float((x * y).sum()) / square if square else None

    def _apart(self, values: _Floats) -> _Floats:
        means = np.where(self.left, *(self._side(values, side)[self.text] for side in (0, 1)))
        return np.asarray(values - means)

    def _flips(self) -> tuple[float, float | None]:
        """Shares of pairs of names that are answered differently: of two sides, and of one."""
        across, within = [], []
        for text in self._split():
            left, right = text
            across.append(np.mean([a != b for a in left for b in right]))
            for side in text:
                pairs = [a != b for place, a in enumerate(side) for b in side[place + 1 :]]
                within += [float(np.mean(pairs))] if pairs else []
        return float(np.mean(across)), float(np.mean(within)) if within else None

    def _split(self) -> Iterator[tuple[list[str], list[str]]]:
        sides: list[tuple[list[str], list[str]]] = [([], []) for _ in self.texts]
        for one, place, left in zip(self.observed, self.text, self.left, strict=True):
            sides[place][0 if left else 1].append(one.predicted)
        return iter(sides)

    def _examples(self, values: _Floats) -> tuple[Change, ...]:
        """The largest change of every text from a name of the group to one of its reference."""
        widest: dict[int, Change] = {}
        for mine in np.flatnonzero(self.left):
            place = int(self.text[mine])
            for other in np.flatnonzero((self.text == place) & ~self.left):
                change = float(values[mine] - values[other])
                if place not in widest or abs(change) > abs(widest[place].change):
                    widest[place] = Change(
                        document=self.observed[mine].document,
                        entity=self.observed[mine].entity,
                        replacement=self.observed[other].entity,
                        other=self.observed[other].group,
                        change=change,
                    )
        return tuple(sorted(widest.values(), key=lambda one: -abs(one.change))[:SHOWN])


def _p(like: Estimate, these: Estimate, limit: float) -> float:
    """The larger p of two tests: these names' effect is within `limit`, names like them have none.

    Each has its own test, and the larger p is that of both (an intersection-union test, Berger
    1982). So the size of an effect is that of the names of the lexicon, which are known, and
    randomly sampled names, which differ by chance, are no effect of their group.
    """
    return max(these.p_beyond(limit), like.p_beyond(0.0))


def _squares(parts: _Floats, places: _Ints) -> float:
    """The sum over indices of the squared sum of their parts."""
    _, dense = np.unique(places, return_inverse=True)
    return float((np.bincount(dense, parts) ** 2).sum())


def _factor(count: int) -> float:
    return count / (count - 1) if count > 1 else 1.0
