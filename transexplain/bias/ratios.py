"""How much of the audited model's difference randomised models show: a ratio with its interval.

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

from scipy.special import stdtrit

from transexplain.bias.entity_rows import EntityRow
from transexplain.bias.intervals import Interval

#: (group, entity) -> its row
ByName = Mapping[tuple[str, str], EntityRow]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
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
    sides = [_Side(left, draws), _Side(right, draws)]
    if min(len(side.mentions) for side in sides) < 2:
        return None
    real = sides[0].real - sides[1].real
    random = sides[0].random - sides[1].random
    if real == 0.0:
        return None
    parts = _Parts(sides, len(draws))
    return Ratio(ratio=random / real, interval=parts.fieller(random, real))


class _Side:
    """The entities of one side: mentions, and sums of shares by the audited model and each draw."""

    def __init__(self, rows: Iterable[EntityRow], draws: Sequence[ByName]) -> None:
        self.mentions: dict[str, int] = {}
        self._real: dict[str, float] = {}
        self._drawn: dict[tuple[str, int], tuple[int, float]] = {}
        for row in rows:
            self.mentions[row.entity] = self.mentions.get(row.entity, 0) + row.mentions
            self._real[row.entity] = self._real.get(row.entity, 0.0) + row.mentions * row.share
            for number, by_name in enumerate(draws):
                one = by_name.get((row.group, row.entity))
                if one is not None:
                    m, s = self._drawn.get((row.entity, number), (0, 0.0))
                    self._drawn[row.entity, number] = m + one.mentions, s + one.mentions * one.share
        found = self.mentions.items()
        self._shares = {entity: self._real[entity] / m for entity, m in found}
        by_entity: dict[str, list[float]] = {entity: [] for entity in self.mentions}
        for (entity, _), (_, summed) in self._drawn.items():
            by_entity[entity].append(summed)
        n = max(1, len(self.mentions))
        self.real = math.fsum(self._shares.values()) / n
        self.random = math.fsum(math.fsum(by_entity[entity]) / m for entity, m in found) / n

    def influences(self) -> tuple[dict[str, float], dict[tuple[str, int], float]]:
        """What each entity adds to the real mean, and in each draw to the random one."""
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

    def __init__(self, sides: Sequence[_Side], draws: int) -> None:
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
        self.real = math.fsum(one * one for one in v.values())
        self.both = math.fsum(one * v[entity] for entity, one in u.items())
        entities = math.fsum(one * one for one in u.values())
        meeting = math.fsum(math.fsum(values) ** 2 for values in random.values())
        among = math.fsum(math.fsum(values) ** 2 for values in by_draw.values())
        among *= draws / (draws - 1) if draws > 1 else 0.0
        self.random = entities + max(0.0, among - meeting)
        least = min(len(side.mentions) for side in sides) - 1
        self.freedom = _freedom(least, among / self.random if self.random else 0.0, draws)

    def fieller(self, random: float, real: float) -> Interval | None:
        """Interval of random / real; None where real may be 0."""
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
