"""The effect of hiding a region on the answer to its picture, group against reference.

A region of a picture cannot be replaced by another group's as a name can. It can be hidden: filled,
blurred, in-painted. No way is neutral, so what a region adds is the mean over the ways, and their
spread is its noise. The regions of a group are compared with those of its reference, which are
mostly in other pictures; the unit of the intervals is the picture, or its cluster.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.counterfactuals import (
    MIN_TEXTS,
    SHOWN,
    Change,
    Compared,
    Counterfactual,
    Kind,
)
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.intervals import Estimate
from transexplain.analysis.groups.measures import Comparison, effect, excess, spread
from transexplain.store.exact_sums import numbered
from transexplain.types.findings import Count, Finite, Practical

_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class HiddenRegion:
    """The answers to one picture, as it came and with one region hidden in each of W ways."""

    document: str  #: item id
    place: Count  #: of the region among those of the picture
    group: str
    entity: str  #: the region's, or the item id
    cluster: str = ""  #: that the picture belongs to; "": the picture
    slice: str = ""
    predicted: str = ""  #: of the picture as it came
    log_odds: tuple[Finite, ...] = ()  #: (A,) of every answer of the plan, as it came
    without: tuple[str, ...] = ()  #: (W,) what is predicted without the region
    hidden: tuple[tuple[Finite, ...], ...] = ()  #: (W, A) log-odds without the region

    def __post_init__(self) -> None:
        known = len(self.log_odds)
        if len(self.hidden) != len(self.without) or any(len(way) != known for way in self.hidden):
            raise ValueError("a hidden region with answers to some ways alone")


def region_table(
    regions: Iterable[HiddenRegion],
    answers: Sequence[Answer],
    classes: Sequence[str],
    references: Mapping[str, Reference],
    practical: Practical,
    kind: Kind = "region",
) -> list[Compared]:
    """One row per group, answer and stratum where regions of both sides were hidden.

    `classes` are all of the model; `kind` says what they are: regions of pictures, or substructures
    of graphs.
    """
    ordered = sorted(regions)
    rows: list[Compared] = []
    for group, reference in references.items():
        others = set(reference.groups) - {group}
        if reference.name == group:
            continue
        kept = [region for region in ordered if region.group == group or region.group in others]
        for stratum in ("", *sorted({region.slice for region in kept} - {""})):
            within = [region for region in kept if stratum in ("", region.slice)]
            if not _comparable(within, group, MIN_TEXTS if stratum else 1):
                continue
            compared = _ComparedRegions(within, group, classes, practical)
            named = (group, reference.name, stratum)
            for number, answer in enumerate(answers):
                row, comparisons = compared.row(number, answer, named)
                rows.append((replace(row, kind=kind), comparisons))
    return rows


def _comparable(regions: Sequence[HiddenRegion], group: str, fewest: int) -> bool:
    """Return whether both sides have regions in enough pictures."""
    sides = [
        {mark.document for mark in regions if (mark.group == group) == side} for side in (0, 1)
    ]
    return min(map(len, sides)) >= fewest


class _ComparedRegions:
    """The regions of one comparison as arrays: N regions, G clusters, W ways, A answers."""

    def __init__(
        self,
        regions: Sequence[HiddenRegion],
        group: str,
        classes: Sequence[str],
        practical: Practical,
    ) -> None:
        self.regions, self.classes, self.practical = regions, classes, practical
        self.left = np.array([region.group == group for region in regions])
        clusters = [(mark.cluster, None if mark.cluster else mark.document) for mark in regions]
        names, self.cluster = numbered(clusters)
        self.clusters = len(names)
        self.pictures = len({region.document for region in regions})
        self.before = np.array([region.log_odds for region in regions], dtype=np.float64)  # (N, A)
        self.after = np.array([region.hidden for region in regions], dtype=np.float64)  # (N, W, A)

    def row(self, number: int, answer: Answer, named: tuple[str, str, str]) -> Compared:
        """The comparison of one answer; `named` are group, reference and stratum."""
        before, after = self.before[:, number, None], self.after[:, :, number]
        changes = before - after  # (N, W)
        values = changes.mean(axis=1)
        chances = (probability(before) - probability(after)).mean(axis=1)
        changed, shifts = self._changed(), self._shifts(answer)
        row = Counterfactual(
            group=named[0],
            reference=named[1],
            prediction=answer.name,
            stratum=named[2],
            documents=self.pictures,
            clusters=self.clusters,
            entities=self._entities(self.left),
            other_entities=self._entities(~self.left),
            effect=self.estimate(values).difference,
            probability=0.0 if answer.is_number else self.estimate(chances).difference,
            changed_across=None if answer.is_number else float(changed[self.left].mean()),
            changed_within=None if answer.is_number else float(changed[~self.left].mean()),
            shift=None if answer.is_number else self.estimate(shifts).difference,
            noise=float(np.sqrt(changes.var(axis=1, ddof=1).mean())),
            per_position=None,
            examples=tuple(self._examples(values)),
        )
        measured = {"logit": values}
        if not answer.is_number:
            measured["probability"] = chances
            if number == 0:  # of any class
                measured["changed"] = changed
        return row, tuple(self._comparisons(measured))

    def _comparisons(self, measured: Mapping[str, _Floats]) -> Iterator[Comparison]:
        limits, enough = self.practical, self._enough()
        for name in ("logit", "probability"):
            if name in measured:
                estimate = self.estimate(measured[name])
                sure = enough and estimate.freedom >= 1.0
                limit = getattr(limits, name)
                yield effect(name, limit, estimate, estimate, enough=sure)
        if "changed" in measured:
            estimate = self.estimate(measured["changed"])
            sure = enough and estimate.freedom >= 1.0
            yield excess("changed", limits.changed, estimate, self.clusters, enough=sure)
        if enough:
            values = measured["logit"]
            squares = np.empty_like(values)
            for side in (self.left, ~self.left):
                squares[side] = (values[side] - values[side].mean()) ** 2
            more = self.estimate(squares)  # of either side more than of the other
            yield spread(replace(more, difference=abs(more.difference)), limits.spread)

    def estimate(self, values: _Floats) -> Estimate:
        """The mean of one side less that of the other, errors by cluster.

        Residuals of a cluster are divided by the root of what its own weight in the mean leaves
        (CR2 of Bell and McCaffrey 2002): Welch's error where every cluster has one region, and
        that of paired differences where every cluster has one of either side. Student's freedom is
        Satterthwaite's, as if all regions of a side in one cluster were one.
        """
        means, scores = [], np.zeros(self.clusters)
        for side, sign in ((self.left, 1.0), (~self.left, -1.0)):
            mean, factors = float(values[side].mean()), self._factors(side)
            apart = np.bincount(self.cluster[side], values[side] - mean, self.clusters)
            scores += sign * factors * apart
            means.append(mean)
        error = math.sqrt(float((scores**2).sum()))
        return Estimate(difference=means[0] - means[1], error=error, freedom=self._freedom(values))

    def _factors(self, side: NDArray[np.bool_]) -> _Floats:
        """(G,) what a cluster's sum of residuals counts by; 0 where it is all of a side."""
        counts = np.bincount(self.cluster[side], minlength=self.clusters)
        rest = 1.0 - counts / counts.sum()
        return np.where(rest > 0, 1.0 / (counts.sum() * np.sqrt(np.maximum(rest, 1e-12))), 0.0)

    def _freedom(self, values: _Floats) -> float:
        """(tr K)^2 / tr K^2, where K (G, G) is the covariance of the scores of `estimate`.

        K is a diagonal and, of either side, some products of two vectors: it is never written out.
        """
        sizes = [float(values[side].var()) for side in (self.left, ~self.left)]
        diagonal, columns, core = np.zeros(self.clusters), [], np.zeros((4, 4))
        for place, side in enumerate((self.left, ~self.left)):
            counts = np.bincount(self.cluster[side], minlength=self.clusters).astype(np.float64)
            weights, total = self._factors(side) * counts, counts.sum()
            size = sizes[place] / max(sizes) if max(sizes) else 1.0
            diagonal += size * weights**2
            columns += [weights, weights * counts / total]
            squares = float((counts**2).sum()) / total**2
            at = slice(2 * place, 2 * place + 2)
            core[at, at] = size * np.array([[squares, -1.0], [-1.0, 0.0]])
        across = np.stack(columns, axis=1)  # (G, 4)
        product = core @ (across.T @ across)
        twice = core @ (across.T @ (diagonal[:, None] * across))
        trace = float(diagonal.sum() + np.trace(product))
        square = float((diagonal**2).sum() + 2 * np.trace(twice) + np.trace(product @ product))
        return trace**2 / square if square > 0 else 0.0

    def _enough(self) -> bool:
        """Return whether both sides have enough pictures for an interval, in two clusters."""
        for side in (self.left, ~self.left):
            pictures = {region.document for region in self._of(side)}
            if len(pictures) < MIN_TEXTS or len(np.unique(self.cluster[side])) < 2:
                return False
        return True

    def _of(self, side: NDArray[np.bool_]) -> Iterator[HiddenRegion]:
        return (region for region, inside in zip(self.regions, side, strict=True) if inside)

    def _entities(self, side: NDArray[np.bool_]) -> int:
        return len({(region.group, region.entity) for region in self._of(side)})

    def _changed(self) -> _Floats:
        """(N,) the share of ways of hiding a region that change the prediction."""
        return np.array(
            [
                np.mean([region.predicted != way for way in region.without])
                for region in self.regions
            ]
        )

    def _shifts(self, answer: Answer) -> _Floats:
        """(N,) 1 where only the whole item is so predicted, -1 where only what is left is."""

        def chosen(prediction: str) -> float:
            return float(answer.selects(prediction, self.classes))

        return np.array(
            [
                chosen(region.predicted) - np.mean([chosen(way) for way in region.without])
                for region in self.regions
            ]
        )

    def _examples(self, values: _Floats) -> Iterator[Change]:
        """The group's regions with the largest effect, at most one of each picture."""
        named: set[str] = set()
        pairs = zip(self._of(self.left), values[self.left].tolist(), strict=True)
        for region, change in sorted(pairs, key=lambda pair: -abs(pair[1])):
            if region.document not in named and len(named) < SHOWN:
                named.add(region.document)
                yield Change(
                    document=region.document,
                    entity=region.entity,
                    replacement="",
                    other="",
                    change=change,
                )
