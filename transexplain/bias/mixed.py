"""A mixed audit: how far its cheap method agrees with the exact one, and its corrected groups."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transexplain.bias.cells import Cell
from transexplain.bias.exact_sample import Agreement, ExactSample, PairedMentions
from transexplain.bias.intervals import Interval
from transexplain.bias.prediction_powered import MIN_SAMPLED, corrected


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassAgreement:
    """How far the methods agree on sampled items, for one target and class."""

    target: str
    class_name: str
    items: int
    correlation: float | None  #: median of Spearman's over the positions of an item; None: no item
    spread: Interval | None  #: 5 % and 95 % of items lie below
    error: float | None  #: median of the L2 norm of cheap - exact over that of exact
    cheap: float  #: mean sum over an item's own positions, in logits
    exact: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedGroup:
    """The mean over all mentions of one group, by the cheap method and corrected; in logits."""

    group: str
    target: str
    class_name: str
    mentions: int  #: of all items
    documents: int
    items: int  #: sampled, that mention the group
    cheap: float
    weight: float | None  #: lambda: of the cheap mean in the corrected one; 0: it has no part
    correction: float | None  #: None: too few sampled items, so it is not corrected
    corrected: float | None
    interval: Interval | None  #: 95 %, of what the exact method gives on all items
    alone: float | None  #: mean of the exact sample without the cheap method
    alone_interval: Interval | None
    needed: float | None  #: exact_sample that would do; None: corrected, or one item
    reason: str = ""  #: why the exact sample stands alone in it; "": it does not

    @property
    def narrowing(self) -> float | None:
        """Width of the interval over that of the exact sample alone."""
        if self.interval is None or self.alone_interval is None:
            return None
        alone = self.alone_interval[1] - self.alone_interval[0]
        return (self.interval[1] - self.interval[0]) / alone if alone else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixed:
    """The exact sample of a run, and its findings."""

    method: str  #: cheap, of every item
    exact: str
    share: float  #: of items, in the plan
    items: int  #: explained by both
    failed: int  #: the exact method could not; they left the sample
    classes: tuple[ClassAgreement, ...]
    groups: tuple[MixedGroup, ...]


def fraction_of(sample: ExactSample, items: int) -> float:
    """Which part of a run's explained items the sample is."""
    return min(1.0, sample.items / items) if items else 0.0


def needed_share(size: float, least: int = MIN_SAMPLED) -> float:
    """The exact_sample at which of so many items about `least` are drawn, to 1 %; 1 is all."""
    return min(1.0, math.ceil(125 * least / size) / 100)  # a quarter to spare


def class_agreements(found: Iterable[Agreement]) -> tuple[ClassAgreement, ...]:
    """One row per (target, class), sorted by these."""
    by_class: dict[tuple[str, str], list[Agreement]] = {}
    for one in found:
        by_class.setdefault((one.target, one.class_name), []).append(one)
    return tuple(_class(*key, by_class[key]) for key in sorted(by_class))


def _class(target: str, class_name: str, found: Sequence[Agreement]) -> ClassAgreement:
    ranks = sorted(one.correlation for one in found if one.correlation is not None)
    errors = sorted(one.error for one in found if one.error is not None)
    low, middle, high = np.quantile(ranks, (0.05, 0.5, 0.95)) if ranks else (0.0, 0.0, 0.0)
    return ClassAgreement(
        target=target,
        class_name=class_name,
        items=len({one.item_id for one in found}),
        correlation=float(middle) if ranks else None,
        spread=(float(low), float(high)) if ranks else None,
        error=float(np.median(errors)) if errors else None,
        cheap=float(np.mean(sorted(one.cheap for one in found))),
        exact=float(np.mean(sorted(one.exact for one in found))),
    )


def mixed_groups(
    cells: Iterable[Cell], sample: ExactSample, fraction: float
) -> tuple[MixedGroup, ...]:
    """One row per (target, class, group), sorted by these."""
    rows: dict[tuple[str, str, str], list[PairedMentions]] = {}
    for key, found in sample.by_class().items():
        for one in found:
            rows.setdefault((*key, one.group), []).append(one)
    return tuple(
        _group(cell, group, rows.get((cell.target, cell.class_name, group), ()), fraction)
        for cell in cells
        for group in sorted(cell.groups)
    )


def _group(cell: Cell, group: str, rows: Sequence[PairedMentions], fraction: float) -> MixedGroup:
    members = cell.groups[group]
    mentions = sum(one.mentions for one in members)
    cheap = sum(one.mentions * one.mean for one in members) / mentions
    weights = {(group, one.entity): 1.0 for one in members}
    both = corrected(rows, members, weights, fraction)
    scale, found, exact = both.scale, both.found, both.exact
    enough = found.items >= MIN_SAMPLED or (fraction == 1.0 and found.items > 1)
    documents = cell.documents[group]
    estimate = found.estimate(scale * cheap) if enough else None
    return MixedGroup(
        group=group,
        target=cell.target,
        class_name=cell.class_name,
        mentions=mentions,
        documents=documents,
        items=found.items,
        cheap=cheap,
        weight=scale if enough else None,
        correction=estimate.difference - cheap if estimate else None,
        corrected=estimate.difference if estimate else None,
        interval=estimate.interval() if estimate else None,
        alone=exact.mean if enough else None,
        alone_interval=exact.estimate().interval() if enough else None,
        needed=None if enough or documents < 2 else needed_share(documents),
        reason=both.reason if enough else "",
    )
