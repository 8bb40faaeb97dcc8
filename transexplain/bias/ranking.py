"""Entities ranked by what their mentions add; those mentioned once or twice shrink to the mean."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transexplain.bias.cells import by_class
from transexplain.bias.entity_rows import EntityRow
from transexplain.bias.entity_totals import EntityTotals
from transexplain.bias.shrinkage import mean_variances, shrink

FEWEST = 10  #: entities; the spread between fewer is not known well enough


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedEntity:
    """One entity for one target and class, and what is believed of its mean."""

    groups: tuple[str, ...]
    entity: str
    mentions: int
    documents: int
    mean: float  #: over its mentions, in the unit
    shrunken: float  #: shrunk towards the mean of all entities
    interval: tuple[float, float]  #: 95 %, of the shrunken mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """All entities for one target and class, highest shrunken mean first."""

    target: str
    class_name: str
    centre: float  #: of all entities
    spread: float  #: standard deviation between entities beyond chance
    entities: tuple[RankedEntity, ...]
    omitted: int = 0  #: entities between the highest and the lowest that are shown

    def ends(self, each: int) -> "Ranking":
        """The same with only the `each` highest and lowest."""
        if len(self.entities) <= 2 * each:
            return self
        kept = (*self.entities[:each], *self.entities[-each:])
        return replace(self, entities=kept, omitted=len(self.entities) - len(kept))


def rankings(totals: EntityTotals) -> list[Ranking]:
    """One ranking per (target, class) in which enough entities were mentioned, sorted by these.

    Means are shrunk by empirical Bayes, see `shrinkage.shrink`; an entity of several groups is
    ranked once.
    """
    found = (_ranking(key, totals.rows(strata)) for key, strata in by_class(totals).items())
    return [one for one in found if one is not None]


def _ranking(key: tuple[str, str], rows: Sequence[EntityRow]) -> Ranking | None:
    groups: dict[str, list[str]] = {}
    single: dict[str, EntityRow] = {}
    for row in rows:
        groups.setdefault(row.entity, []).append(row.group)
        single.setdefault(row.entity, row)
    once = list(single.values())
    if len(once) < FEWEST:
        return None
    means = [row.mean for row in once]
    variances = mean_variances([row.mentions for row in once], means, [row.squares for row in once])
    if variances is None:
        return None
    believed = shrink(means, variances)
    ranked = [
        RankedEntity(
            groups=tuple(groups[row.entity]),
            entity=row.entity,
            mentions=row.mentions,
            documents=row.documents,
            mean=row.mean,
            shrunken=float(mean),
            interval=(float(low), float(high)),
        )
        for row, mean, low, high in zip(
            once, believed.mean, believed.low, believed.high, strict=True
        )
    ]
    return Ranking(
        target=key[0],
        class_name=key[1],
        centre=believed.centre,
        spread=believed.spread,
        entities=tuple(sorted(ranked, key=lambda one: (-one.shrunken, one.entity))),
    )
