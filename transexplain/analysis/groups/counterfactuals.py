"""The effect of a name on the answer: the same text with names of two groups in one place.

Every observation is an answer to a text with some name in the place of a mention, the text's own
name among them. A text in which names of a group and of its reference were put is compared with
itself, so nothing but the name differs. Names of one group in one text show how much any other
name changes the answer: that is the noise which a difference between groups has to exceed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.intervals import Estimate, factor, squares
from transexplain.analysis.groups.measures import (
    Comparison,
    Measure,
    MeasureName,
    effect,
    excess,
    spread,
)
from transexplain.analysis.groups.power import INSIDE
from transexplain.store.exact_sums import numbered
from transexplain.types.findings import Count, Finite, Practical

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
    positions: Count = 0  #: that the model reads
    predicted: str = ""
    log_odds: tuple[Finite, ...] = ()  #: of every answer of the plan


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
    """The effect on one prediction of a group's names in the place of its reference's.

    Of kind `region`: what regions of a group add to the predictions of their pictures, more than
    those of its reference. Texts are then pictures, and names what the regions are called. Of kind
    `substructure` the same of graphs.
    """

    kind: Kind = "swap"
    group: str
    reference: str
    prediction: str
    stratum: str  #: value of the slice; "": all texts
    documents: int  #: texts with names of both sides
    clusters: int  #: of these texts
    entities: int  #: of the group, that stood in a text
    other_entities: int  #: of the reference
    effect: float  #: mean change of the log-odds, in logits
    probability: float  #: mean change of the prediction's probability
    #: share of pairs of names, one of each side, with different predictions; of the group's
    #: regions without which another class is predicted; None: the prediction is a number
    changed_across: float | None
    #: the same of two names of one side (None: there are no such pairs); of the reference's regions
    changed_within: float | None
    shift: float | None  #: share of texts so predicted with the group's names, less the reference's
    #: root mean square of half the change between two names of one side, or two ways of hiding
    noise: float | None
    per_position: float | None  #: change by a name of one more word piece, within one group
    examples: tuple[Change, ...]  #: the widest
    measures: tuple[Measure, ...] = ()  #: that decide

    @property
    def enough(self) -> bool:
        """Return whether enough texts were changed for an interval."""
        return any(measure.interval is not None for measure in self.measures)

    def measure(self, name: MeasureName) -> Measure | None:
        """The measure of this name, if it was taken."""
        return next((measure for measure in self.measures if measure.name == name), None)


#: a comparison before its measures are decided
Compared = tuple[Counterfactual, tuple[Comparison, ...]]


def counterfactual_table(
    observations: Iterable[Observation],
    answers: Sequence[Answer],
    classes: Sequence[str],
    references: Mapping[str, Reference],
    practical: Practical,
    *,
    complete: bool = False,
) -> list[Compared]:
    """One row per group, answer and stratum; a group without swapped names has none.

    `classes` are all of the model. With `complete` the names of the lexicon are all that there are,
    and no sample of others.
    """
    by_document: dict[tuple[bool, str], list[Observation]] = {}
    for observation in sorted(observations):
        document = (observation.template, observation.document)
        by_document.setdefault(document, []).append(observation)
    rows: list[Compared] = []
    for group, reference in references.items():
        others = set(reference.groups) - {group}
        if reference.name == group or not others:
            continue
        texts = list(_with_both(by_document.values(), group, others))
        strata = ["", *sorted({text[0].slice for text in texts} - {""})]
        for stratum in strata:
            within = [text for text in texts if stratum in ("", text[0].slice)]
            if len(within) >= (MIN_TEXTS if stratum else 2):
                compared = _ComparedTexts(within, group, classes, practical, complete=complete)
                named = (group, reference.name, stratum)
                rows += [
                    compared.row(number, answer, named) for number, answer in enumerate(answers)
                ]
    return rows


def _with_both(
    documents: Iterable[list[Observation]], group: str, others: set[str]
) -> Iterator[list[Observation]]:
    for observed in documents:
        kept = [seen for seen in observed if seen.group == group or seen.group in others]
        sides = {seen.group == group for seen in kept}
        if len(sides) == 2:
            yield kept


class _ComparedTexts:
    """The texts of one comparison as arrays: N observations in D texts."""

    def __init__(
        self,
        texts: Sequence[Sequence[Observation]],
        group: str,
        classes: Sequence[str],
        practical: Practical,
        *,
        complete: bool,
    ) -> None:
        self.texts, self.classes = texts, classes
        self.practical, self.complete = practical, complete
        observed = [seen for text in texts for seen in text]
        self.observed = observed
        self.left = np.array([seen.group == group for seen in observed])
        self.text: _Ints = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        self.entities, self.entity = numbered(
            [(seen.group == group, seen.entity) for seen in observed]
        )
        firsts = [text[0] for text in texts]
        alone = [None if first.cluster else (first.template, first.document) for first in firsts]
        clusters, self.cluster = numbered(
            [(first.cluster, document) for first, document in zip(firsts, alone, strict=True)]
        )
        self.clusters = len(clusters)
        self.values = np.array([seen.log_odds for seen in observed], dtype=np.float64)
        counts = self._by_text(self.left), self._by_text(~self.left)
        self.weight: _Floats = np.where(
            self.left, 1.0 / counts[0][self.text], -1.0 / counts[1][self.text]
        ) / len(texts)
        self.counts = counts

    def row(self, number: int, answer: Answer, named: tuple[str, str, str]) -> Compared:
        """The comparison of one answer; `named` are group, reference and stratum."""
        values = self.values[:, number]
        left_entities = sum(left for left, _ in self.entities)
        across, within = (None, None) if answer.is_number else self._changed()
        row = Counterfactual(
            group=named[0],
            reference=named[1],
            prediction=answer.name,
            stratum=named[2],
            documents=len(self.texts),
            clusters=self.clusters,
            entities=left_entities,
            other_entities=len(self.entities) - left_entities,
            effect=float((self.weight * values).sum()),
            probability=0.0
            if answer.is_number
            else float((self.weight * probability(values)).sum()),
            changed_across=None if across is None else float(across.mean()),
            changed_within=None if within is None else float(within.mean()),
            shift=None if answer.is_number else self._shift(answer),
            noise=self._noise(values),
            per_position=self._per_position(values),
            examples=self._examples(values),
        )
        return row, tuple(self._comparisons(values, answer, number, (across, within)))

    def _comparisons(
        self,
        values: _Floats,
        answer: Answer,
        number: int,
        changed: tuple[_Floats | None, _Floats | None],
    ) -> Iterator[Comparison]:
        """The measures of one answer; predictions changed are those of any class, given once."""
        like, these = self.estimates(values)
        enough = len(self.texts) >= MIN_TEXTS and like.freedom >= 1.0
        yield effect("logit", self.practical.logit, like, these, enough=enough)
        if not answer.is_number:
            yield effect(
                "probability",
                self.practical.probability,
                *self.estimates(probability(values)),
                enough=enough,
            )
        across, within = changed
        if across is not None and number == 0:
            more = across if within is None else across - within
            # one text that changes shows that not whole clusters do
            texts = len(self.texts) if more.any() else self._independent(values)
            yield excess(
                "changed", self.practical.changed, self._over_texts(more), texts, enough=enough
            )
        if (spread := self._spread(values)) is not None and enough:
            yield spread

    def _over_texts(self, values: _Floats) -> Estimate:
        """The mean of a value of every text (D,), errors by cluster."""
        mean = float(values.mean())
        square = factor(self.clusters) * squares((values - mean) / len(values), self.cluster)
        return Estimate(difference=mean, error=math.sqrt(square), freedom=float(self.clusters - 1))

    def _independent(self, values: _Floats) -> int:
        """Return how many texts of as many clusters say as much as these texts of fewer clusters.

        Their effective number (Korn & Graubard 1998): texts by their design effect, that of where
        they lie or of how far names move them, whichever is larger, times the squared ratio of
        Student's quantiles for texts and for clusters.
        """
        texts = len(self.texts)
        if self.clusters in (1, texts):
            return self.clusters
        mine, other = self._side(values, 0), self._side(values, 1)
        alone = [differing.var(ddof=1) / texts for differing in (mine, mine - other)]
        clustered = [self._over_texts(differing) for differing in (mine, mine - other)]
        if not all(alone):  # no text differs from another
            return self.clusters
        errors = zip(clustered, alone, strict=True)
        design = max(1.0, *(known.error**2 / square for known, square in errors))
        of_texts = replace(clustered[0], freedom=float(texts - 1)).upper_quantile(INSIDE)
        quantiles = of_texts / clustered[0].upper_quantile(INSIDE)
        return max(self.clusters, int(texts / design * quantiles**2))

    def estimates(self, values: _Floats) -> tuple[Estimate, Estimate]:
        """The mean over texts of the difference between the sides, in two views.

        First with names as a sample, errors by entity and cluster: the variance is that of entities
        plus that of clusters of texts minus that of their meeting (Cameron, Gelbach and Miller
        2011, eq. 2.11), never below the larger of the first two, each with the factor G / (G - 1);
        Student's freedom is that of the scarcer of the three, less one. Then of the names that were
        read, errors by cluster alone; it is both where the list of names is complete.
        """
        by_entity, by_cluster, meeting, numbers = self._variances(values)
        mean = float((self.weight * values).sum())
        these = Estimate(
            difference=mean, error=math.sqrt(by_cluster), freedom=float(self.clusters - 1)
        )
        if self.complete:
            return these, these
        variance = by_cluster + max(by_entity - meeting, 0.0)
        freedom = min((self.clusters, *(number for number in numbers if number > 1))) - 1
        like = replace(these, error=math.sqrt(variance), freedom=float(freedom))
        return like, these

    def _variances(self, values: _Floats) -> tuple[float, float, float, list[int]]:
        """Of the difference: between entities, between clusters of texts, where they meet.

        Last the entities of either side.
        """
        parts = self._parts(values)
        difference = float((self.weight * values).sum())
        sides = [self._between(parts, left) for left in (True, False)]
        apart = self._side(values, 0) - self._side(values, 1) - difference
        by_cluster = factor(self.clusters) * squares(apart / len(self.texts), self.cluster)
        meeting = squares(parts, self.entity * self.clusters + self.cluster[self.text])
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
        mine = self.left == left
        count = sum(entity[0] == left for entity in self.entities)
        return factor(count) * squares(parts[mine], self.entity[mine]) if count > 1 else 0.0, count

    def _side(self, values: _Floats, side: int) -> _Floats:
        """(D,) means of one side of every text: 0 the group, 1 its reference."""
        mine = self.left if side == 0 else ~self.left
        return self._by_text(mine * values) / self.counts[side]

    def _by_text(self, values: Any) -> _Floats:
        weights = np.asarray(values, dtype=np.float64)
        return np.asarray(np.bincount(self.text, weights, len(self.texts)), dtype=np.float64)

    def _spread(self, values: _Floats) -> Comparison | None:
        """Return how much the effect differs between texts beyond the noise of names.

        The variance of the texts' differences, less what names of one side would make of it, with
        Student's interval over clusters of texts; shown as a standard deviation. None where no text
        has two names of one side, or there are too few texts.
        """
        differences = self._side(values, 0) - self._side(values, 1)
        noise = self._noise_by_text(values)
        if noise is None or len(differences) < MIN_TEXTS or self.clusters < MIN_TEXTS:
            return None
        beyond = (differences - differences.mean()) ** 2 - noise
        return spread(self._over_texts(beyond), self.practical.spread)

    def _within(self, values: _Floats, side: int) -> tuple[_Floats, _Floats]:
        """(D,) sums of squares within one side of every text, and their degrees of freedom."""
        mine = self.left if side == 0 else ~self.left
        apart = np.where(mine, values - self._side(values, side)[self.text], 0.0)
        return self._by_text(apart**2), self.counts[side] - 1

    def _noise_by_text(self, values: _Floats) -> _Floats | None:
        """(D,) the variance that names alone give to a text's difference; pooled over texts."""
        variances = np.zeros(len(self.texts))
        pooled = [self._within(values, side) for side in (0, 1)]
        if not sum(freedom.sum() for _, freedom in pooled):
            return None
        both = sum(s.sum() for s, _ in pooled) / sum(f.sum() for _, f in pooled)
        for side, (total, freedom) in enumerate(pooled):
            variance = total.sum() / freedom.sum() if freedom.sum() else both
            local = np.where(freedom > 0, total / np.maximum(freedom, 1.0), variance)
            variances += local / self.counts[side]
        return variances

    def _noise(self, values: _Floats) -> float | None:
        squares = [self._within(values, side) for side in (0, 1)]
        freedom = sum(float(f.sum()) for _, f in squares)
        return math.sqrt(sum(float(s.sum()) for s, _ in squares) / freedom) if freedom else None

    def _per_position(self, values: _Floats) -> float | None:
        """The slope of the answer on the number of word pieces, within texts and sides."""
        positions = np.array([seen.positions for seen in self.observed], dtype=np.float64)
        x, y = (self._apart(column) for column in (positions, values))
        square = float((x * x).sum())
        return float((x * y).sum()) / square if square else None

    def _apart(self, values: _Floats) -> _Floats:
        means = np.where(self.left, *(self._side(values, side)[self.text] for side in (0, 1)))
        return np.asarray(values - means)

    def _changed(self) -> tuple[_Floats, _Floats | None]:
        """(D,) shares of pairs of names with different predictions: of two sides, and of one.

        A text without two names of one side takes the mean of the others; None: all are so.
        """
        across, within = [], []
        for left, right in self._split():
            across.append(np.mean([a != b for a in left for b in right]))
            inside = [
                [a != b for place, a in enumerate(side) for b in side[place + 1 :]]
                for side in (left, right)
            ]
            within.append(
                np.mean([float(np.mean(pairs)) for pairs in inside if pairs] or [math.nan])
            )
        known = np.array(within)
        if np.isnan(known).all():
            return np.array(across), None
        return np.array(across), np.where(np.isnan(known), np.nanmean(known), known)

    def _shift(self, answer: Answer) -> float:
        """The share of texts so predicted with names of the group, less that with the reference's.

        Every name of a side counts alike in its text.
        """
        chosen = np.array([answer.selects(seen.predicted, self.classes) for seen in self.observed])
        return float((self.weight * chosen).sum())

    def _split(self) -> Iterator[tuple[list[str], list[str]]]:
        sides: list[tuple[list[str], list[str]]] = [([], []) for _ in self.texts]
        for seen, place, left in zip(self.observed, self.text, self.left, strict=True):
            sides[place][0 if left else 1].append(seen.predicted)
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
        return tuple(sorted(widest.values(), key=lambda change: -abs(change.change))[:SHOWN])
