"""The share of the audited model's difference that randomised models show, with its interval.

Numerator and denominator are differences of the same entities, so they vary together. The interval
is Fieller's (E. C. Fieller, *Some problems in interval estimation*, Journal of the Royal
Statistical Society B 16, 1954), which, unlike the delta method, holds where the denominator is not
known well, and has no end where it may be 0. The numerator varies by entity and by draw of the
weights; its variance is clustered two ways (Cameron, Gelbach and Miller 2011, eq. 2.11, as in
`two_way`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

from transexplain.analysis.groups.entity_totals import EntityRow, EntityTotals
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_table import Rules, group_table, table_of
from transexplain.analysis.groups.intervals import MIN_ENTITIES, Interval
from transexplain.store.exact_sums import Sums, add_row
from transexplain.types.findings import GroupStatistic, Verdict

#: (group, entity) -> its row
ByName = Mapping[tuple[str, str], EntityRow]


class Ratio(NamedTuple):
    """One difference over another."""

    ratio: float
    interval: Interval | None  #: 95 %; None: the lower one may be 0, so it has no end


def ratio_of(
    left: Sequence[EntityRow], right: Sequence[EntityRow], draws: Sequence[ByName]
) -> Ratio | None:
    """The randomised models' difference of shares of |R| over the audited model's.

    Args:
        left: entities of a group, by the audited model over the sampled items.
        right: of its reference; either other entities or all the same ones.
        draws: the entities by every randomised model, each over its own part of the items.

    None where a side has fewer than two entities, or the audited model no difference at all.
    """
    sides = [_DrawnSide(left, draws), _DrawnSide(right, draws)]
    if min(len(side.mentions) for side in sides) < 2:
        return None
    real = sides[0].real - sides[1].real
    random = sides[0].random - sides[1].random
    if real == 0.0:
        return None
    parts = _Parts(sides, len(draws))
    return Ratio(ratio=random / real, interval=parts.fieller(random, real))


class _DrawnSide:
    """The entities of one side: mentions, and sums of shares by the audited model and each draw."""

    def __init__(self, rows: Iterable[EntityRow], draws: Sequence[ByName]) -> None:
        self.mentions: dict[str, int] = {}
        self._real: dict[str, float] = {}
        self._drawn: dict[tuple[str, int], tuple[int, float]] = {}
        for row in rows:
            self.mentions[row.entity] = self.mentions.get(row.entity, 0) + row.mentions
            self._real[row.entity] = self._real.get(row.entity, 0.0) + row.mentions * row.share
            for number, by_name in enumerate(draws):
                drawn = by_name.get((row.group, row.entity))
                if drawn is not None:
                    m, s = self._drawn.get((row.entity, number), (0, 0.0))
                    self._drawn[row.entity, number] = (
                        m + drawn.mentions,
                        s + drawn.mentions * drawn.share,
                    )
        counts = self.mentions.items()
        self._shares = {entity: self._real[entity] / m for entity, m in counts}
        by_entity: dict[str, list[float]] = {entity: [] for entity in self.mentions}
        for (entity, _), (_, summed) in self._drawn.items():
            by_entity[entity].append(summed)
        n = max(1, len(self.mentions))
        self.real = math.fsum(self._shares.values()) / n
        self.random = math.fsum(math.fsum(by_entity[entity]) / m for entity, m in counts) / n

    def influences(self) -> tuple[dict[str, float], dict[tuple[str, int], float]]:
        """Return what each entity adds to the real mean, and in each draw to the random one."""
        n = len(self.mentions)
        scale = 1.0 / math.sqrt(n * (n - 1))  # 1 / n, with the factor of small samples
        real = {entity: scale * (share - self.real) for entity, share in self._shares.items()}
        random = {
            key: scale * (summed - m * self.random) / self.mentions[key[0]]
            for key, (m, summed) in self._drawn.items()
        }
        return real, random


class _Parts:
    """Variances of both differences and their covariance, with the freedom of the interval."""

    def __init__(self, sides: Sequence[_DrawnSide], draws: int) -> None:
        real: dict[str, list[float]] = {}
        random: dict[tuple[str, int], list[float]] = {}
        for side, sign in zip(sides, (1.0, -1.0), strict=True):
            mine, theirs = side.influences()
            for entity, value in mine.items():
                real.setdefault(entity, []).append(sign * value)
            for key, value in theirs.items():
                random.setdefault(key, []).append(sign * value)
        by_entity: dict[str, list[float]] = {}
        by_draw: dict[int, list[float]] = {}
        for (entity, number), values in random.items():
            by_entity.setdefault(entity, []).extend(values)
            by_draw.setdefault(number, []).extend(values)
        v = {entity: math.fsum(values) for entity, values in real.items()}
        u = {entity: math.fsum(values) for entity, values in by_entity.items()}
        self.real = math.fsum(x * x for x in v.values())
        self.both = math.fsum(x * v[entity] for entity, x in u.items())
        entities = math.fsum(x * x for x in u.values())
        meeting = math.fsum(math.fsum(values) ** 2 for values in random.values())
        among = math.fsum(math.fsum(values) ** 2 for values in by_draw.values())
        among *= draws / (draws - 1) if draws > 1 else 0.0
        self.random = entities + max(0.0, among - meeting)
        least = min(len(side.mentions) for side in sides) - 1
        self.freedom = _freedom(least, among / self.random if self.random else 0.0, draws)

    def fieller(self, random: float, real: float) -> Interval | None:
        """Interval of random / real; None where real may be 0."""
        from scipy.special import stdtrit  # 30 MB that a server of pages does without

        t = float(stdtrit(self.freedom, 0.975))
        ratio, g = random / real, t * t * self.real / real**2
        if g >= 1.0:
            return None
        inner = self.random - 2.0 * ratio * self.both + ratio**2 * self.real
        if self.real:
            inner -= g * (self.random - self.both**2 / self.real)
        half = t / abs(real) * math.sqrt(max(0.0, inner))
        middle = ratio - (g * self.both / self.real if self.real else 0.0)
        return (middle - half) / (1.0 - g), (middle + half) / (1.0 - g)


def _freedom(entities: int, among: float, draws: int) -> float:
    """Satterthwaite's: the part of the variance that is among draws has their freedom.

    That part is counted whole, although some of it is the entities': three draws cannot separate
    the two.
    """
    share = min(1.0, among)
    return 1.0 / (share**2 / max(1, draws - 1) + (1.0 - share) ** 2 / entities)


#: ratio from which on a randomised model shows a material part of a difference, and the least
#: that the lower end of its interval must then be
MATERIAL, AT_LEAST = 0.5, 0.25

Shown = Literal["material", "small", "unknown"]


class RandomisedTotals:
    """Totals of every entity over the sampled items, by the audited and the randomised models.

    Totals of `sums` whose names begin with "randomised"; items: () -> [explained by both, sampled
    but not explained by the randomised model].
    """

    def __init__(self, sums: Sums | None = None) -> None:
        self.sums = Sums() if sums is None else sums
        self.real = EntityTotals(self.sums, "randomised.real")

    def count(self, items: int, failed: int) -> None:
        """Count sampled items: explained by both, and not explained by the randomised model."""
        add_row(self.sums.table("randomised.items"), (), [items, failed])

    @property
    def items(self) -> int:
        """Items that were explained by both."""
        return self.sums.table("randomised.items").get((), [0, 0])[0]

    @property
    def failed(self) -> int:
        """Sampled items that the randomised model could not be explained on."""
        return self.sums.table("randomised.items").get((), [0, 0])[1]

    @property
    def draws(self) -> list[EntityTotals]:
        """Totals of each draw of the weights, which have their own items each."""
        names = {name.split(".")[1] for name in self.sums.names() if name.startswith(_DRAW)}
        last = max((int(name.removeprefix("draw ")) for name in names), default=-1)
        return list(map(self.of_draw, range(last + 1)))

    @property
    def randomised(self) -> EntityTotals:
        """All draws together: the items of `real`."""
        whole = EntityTotals()
        for draw in self.draws:
            whole.merge(draw)
        return whole

    def of_draw(self, number: int) -> EntityTotals:
        """The totals of one draw, to be added to."""
        return EntityTotals(self.sums, f"{_DRAW}{number}")

    def merge(self, other: "RandomisedTotals") -> None:
        """Add what `other` holds."""
        self.sums.merge(other.sums, "randomised.", "randomised.")


_DRAW = "randomised.draw "


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One comparison by one of the two models, over the sampled items."""

    difference: float  #: in the unit; the scales of two models are not the same
    interval: Interval  #: 95 %
    share: float  #: the difference of shares of |R|
    share_interval: Interval  #: 95 %
    verdict: Verdict  #: by the rules of the group table, over the sampled items alone


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomisedRow:
    """One comparison of the group table, over the sampled items, by both models."""

    group: str
    target: str
    class_name: str
    entities: int  #: of the group, in the sampled items
    real: Measured
    randomised: Measured
    ratio: float | None = None  #: randomised over real difference of shares; None: real is 0
    ratio_interval: Interval | None = None  #: 95 %; None: the real one may be 0

    def shown(self, difference: float) -> Shown:
        """Return whether randomised models show a material part of this difference, in the unit.

        *material*: at least `MATERIAL` of it, and the interval of the ratio begins at `AT_LEAST` or
        above: it comes from the words or the method, at least in part. *small*: the interval ends
        below `MATERIAL`. *unknown*: neither, or over the sampled items the audited model's
        difference has the other sign or may be 0.
        """
        if self.ratio is None or self.ratio_interval is None or self.real.share * difference <= 0:
            return "unknown"
        low, high = self.ratio_interval
        if self.ratio >= MATERIAL and low >= AT_LEAST:
            return "material"
        return "small" if high < MATERIAL else "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Randomised:
    """The groups as the randomised models see them."""

    items: int
    failed: int
    rows: tuple[RandomisedRow, ...]  #: comparisons with enough entities in the sampled items
    differences: int  #: verdicts of *difference* of the audited model over the sampled items
    randomised_differences: int  #: and of the randomised ones together
    draws: int = 1  #: of the weights, that explained an item with a mention


def randomised_control(totals: RandomisedTotals, rules: Rules) -> Randomised | None:
    """Both models judged over the same items by the same rules; None where no item was sampled."""
    if not totals.items + totals.failed:
        return None
    cells = cells_of(totals.real)
    real, random = table_of(cells, rules), group_table(totals.randomised, rules)
    by_key = {_key(row): row for row in random}
    by_class = {(cell.target, cell.class_name): cell for cell in cells}
    draws = [draw for draw in totals.draws if draw.strata]
    rows = [
        _row(row, mine, theirs, _ratio(row, by_class[row.target, row.class_name], draws, rules))
        for row in real
        if (mine := _measured(row)) and (theirs := _measured(by_key[_key(row)]))
    ]
    return Randomised(
        items=totals.items,
        failed=totals.failed,
        rows=tuple(rows),
        differences=_flagged(real),
        randomised_differences=_flagged(random),
        draws=max(1, len(draws)),
    )


def _row(
    row: GroupStatistic, mine: Measured, theirs: Measured, ratio: Ratio | None
) -> RandomisedRow:
    return RandomisedRow(
        group=row.group,
        target=row.target,
        class_name=row.class_name,
        entities=row.entities,
        real=mine,
        randomised=theirs,
        ratio=ratio.ratio if ratio else None,
        ratio_interval=ratio.interval if ratio else None,
    )


def _ratio(
    row: GroupStatistic, cell: Cell, draws: Sequence[EntityTotals], rules: Rules
) -> Ratio | None:
    """Of the entities that the row compares: those of two sides, or shared ones with themselves."""
    against = rules.references([cell])[row.group].groups
    left, right = list(cell.groups[row.group]), cell.others(row.group, against)[0]
    if len(right) < MIN_ENTITIES:
        mine = {entity.entity for entity in left}
        others = (rows for group, rows in cell.groups.items() if group in against)
        right = [entity for entity in chain(*others) if entity.entity in mine]
        both = {entity.entity for entity in right}
        left = [entity for entity in left if entity.entity in both]
    return ratio_of(left, right, [_by_name(row, draw) for draw in draws])


def _by_name(row: GroupStatistic, totals: EntityTotals) -> ByName:
    key = row.target, row.class_name
    strata = [stratum for stratum in totals.strata if (stratum.target, stratum.class_name) == key]
    return {(entity.group, entity.entity): entity for entity in totals.rows(strata)}


def _key(row: GroupStatistic) -> tuple[str, str, str]:
    return row.group, row.target, row.class_name


def _measured(row: GroupStatistic) -> Measured | None:
    share = next((robustness for robustness in row.robustness if robustness.unit == "share"), None)
    if row.difference is None or row.difference_interval is None or share is None:
        return None
    return Measured(
        difference=row.difference,
        interval=row.difference_interval,
        share=share.difference,
        share_interval=share.interval,
        verdict=row.verdict,
    )


def _flagged(rows: Sequence[GroupStatistic]) -> int:
    return sum(row.flagged for row in rows)
