"""The group table: every group compared with its reference, with intervals and adjusted p values.

A group and its reference may share entities: where the entities are pictures, every picture has
regions of both. Their values are then not independent, so the differences within entities are
tested.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from transexplain.analysis.groups.entity_totals import EntityRow, EntityTotals
from transexplain.analysis.groups.group_cells import (
    Cell,
    PlanReference,
    Reference,
    cells_of,
    references_of,
)
from transexplain.analysis.groups.intervals import (
    BOOTSTRAP_FROM,
    MIN_ENTITIES,
    RESAMPLES,
    Estimate,
    bootstrapped,
    one_sample,
    t_interval,
    welch,
)
from transexplain.analysis.groups.resampling import (
    PERMUTATIONS,
    permutation_p,
    poisson_weights,
    sign_flip_p,
)
from transexplain.analysis.groups.verdict_rules import adjusted, judge
from transexplain.types.findings import Correction, GroupStatistic, Robustness


@dataclass(frozen=True, slots=True)
class Within:
    """Differences (entities,) of a group to its reference, by name of the entity."""

    means: Sequence[float]  #: of relevance, in the unit
    shares: Sequence[float]  #: of the share of |R|

    @classmethod
    def of(cls, members: Iterable[EntityRow], others: Iterable[EntityRow]) -> "Within":
        """Of the entities that are on both sides; several rows of a side are averaged."""
        left, right = _by_entity(members), _by_entity(others)
        both = sorted(left.keys() & right.keys())
        return cls(
            means=[left[one][0] - right[one][0] for one in both],
            shares=[left[one][1] - right[one][1] for one in both],
        )

    def __len__(self) -> int:
        return len(self.means)

    @property
    def estimate(self) -> Estimate:
        """The mean difference; at least two entities."""
        return one_sample(self.means)

    def p(self, seed: Sequence[object], permutations: int | None = None) -> float:
        """Two-sided, of sign flips."""
        return sign_flip_p(self.means, seed=seed, permutations=permutations or PERMUTATIONS)

    def robustness(self) -> Iterator[Robustness]:
        """The share of |R| instead of the unit."""
        found = one_sample(self.shares)
        yield Robustness(
            name="share of |R|",
            unit="share",
            difference=found.difference,
            interval=found.interval(),
        )


def _by_entity(rows: Iterable[EntityRow]) -> Mapping[str, tuple[float, float]]:
    """Mean relevance and share of every entity over all its mentions."""
    sums: dict[str, tuple[int, float, float]] = {}
    for row in rows:
        n, mean, share = sums.get(row.entity, (0, 0.0, 0.0))
        sums[row.entity] = (
            n + row.mentions,
            mean + row.mentions * row.mean,
            share + row.mentions * row.share,
        )
    return {entity: (mean / n, share / n) for entity, (n, mean, share) in sums.items()}


_LARGE_SHARE = 0.3  #: of a group's mentions, above which one entity decides over the group


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How groups are compared: declared in the plan, before any result is known."""

    reference: PlanReference = None  #: None: the entities of all other groups of the family
    groups: tuple[str, ...] = ()  #: of the plan, whether mentioned or not
    practical: float = 0.1  #: smallest |difference| that matters, in the unit
    correction: Correction = "bh"
    seed: int = 0
    permutations: int | None = None  #: None: by the size of the groups
    bare: bool = False  #: p and verdict *difference* only: no bootstrap, no robustness

    def references(self, cells: Iterable[Cell]) -> dict[str, Reference]:
        """What every group is compared with: those of the plan, and those in `cells`."""
        mentioned = (group for cell in cells for group in cell.groups)
        return references_of(self.reference, (*self.groups, *mentioned))


def group_table(totals: EntityTotals, rules: Rules) -> list[GroupStatistic]:
    """One row per (target, class, group), sorted by these names; all rows are one family.

    An entity that a group shares with its reference counts for the group only, and one that
    several reference groups share counts once, so the two sides of a difference are disjoint.
    Where that leaves the reference fewer than `MIN_ENTITIES`, and at least as many are shared but
    mentioned separately (regions of one picture), they are compared within those, see `within`.
    """
    return table_of(cells_of(totals), rules)


def table_of(cells: Iterable[Cell], rules: Rules) -> list[GroupStatistic]:
    """As `group_table`, from cells in memory."""
    cells = list(cells)
    references = rules.references(cells)
    compared = [
        _compare(cell, group, references[group], rules) for cell in cells for group in cell.groups
    ]
    p = adjusted([one.row.p for one in compared], rules.correction)
    return [_judged(one, value, rules) for one, value in zip(compared, p, strict=True)]


@dataclass(frozen=True, slots=True)
class _Compared:
    row: GroupStatistic
    estimate: Estimate | None
    both: Estimate | None = None  #: over entities and documents
    why: str = ""  #: there is no estimate, if not for too few entities


def _compare(cell: Cell, group: str, reference: Reference, rules: Rules) -> _Compared:
    members = cell.groups[group]
    notes = [f"fewer than {MIN_ENTITIES} entities"] if len(members) < MIN_ENTITIES else []
    row = _described(cell, group, members, reference.name)
    if group == reference.name:
        return _Compared(replace(row, note="; ".join([*notes, "the reference itself"])), None)
    if reference.note:
        notes.append(reference.note)
    others, shared = cell.others(group, reference.groups)
    if len(others) < MIN_ENTITIES <= shared and (within := _within(cell, group, reference)):
        return _compared_within(row, within, rules)
    if shared:
        notes.append(f"{shared} entities shared with the reference count for the group only")
    if not others:
        notes.append("no reference entity was mentioned")
    elif len(others) < MIN_ENTITIES:
        notes.append(f"reference has fewer than {MIN_ENTITIES} entities")

    row = replace(row, note="; ".join(notes))
    if min(len(members), len(others)) < MIN_ENTITIES:
        return _Compared(row, None)
    both = cell.two_way(members, others) if cell.pairs else None
    if cell.pairs and both is None:
        why = f"all mentions of a side are in one {cell.unit}"
        return _Compared(replace(row, note="; ".join([*notes, why])), None, why=why)
    row = replace(row, note="; ".join([*notes, *_uneven(members)]))
    found = _tested(row, members, others, rules)
    if both is None:
        return found
    return replace(found, row=_with_two_way(found.row, both, cell, rules), both=both)


def _uneven(members: Sequence[EntityRow]) -> Iterator[str]:
    """Why a group's mentions carry less information than their number suggests."""
    largest = max(members, key=lambda one: (one.mentions, one.entity))
    share = largest.mentions / sum(one.mentions for one in members)
    if share > _LARGE_SHARE:
        yield f"{largest.entity!r} has {share:.0%} of the group's mentions"
    elif largest.mentions == 1:
        yield "every entity is mentioned once: its effect cannot be separated from its item"


def _described(
    cell: Cell, group: str, members: Sequence[EntityRow], reference: str
) -> GroupStatistic:
    means, mentions = [row.mean for row in members], sum(row.mentions for row in members)
    ranks = [row.rank for row in members if row.rank is not None]
    return GroupStatistic(
        group=group,
        target=cell.target,
        class_name=cell.class_name,
        mentions=mentions,
        documents=cell.documents[group],
        entities=len(members),
        mean=math.fsum(row.mentions * row.mean for row in members) / mentions,
        entity_mean=math.fsum(means) / len(means),
        positive=sum(row.positive for row in members) / mentions,
        interval=t_interval(means) if len(means) >= MIN_ENTITIES else None,
        rank=math.fsum(ranks) / len(ranks) if ranks else None,
        quantiles=cell.quantiles.get(group),
        reference=reference,
        difference=None,
        difference_interval=None,
    )


def _tested(
    row: GroupStatistic,
    members: Sequence[EntityRow],
    others: Sequence[EntityRow],
    rules: Rules,
) -> _Compared:
    left, right = [one.mean for one in members], [one.mean for one in others]
    estimate = estimated(members, others, rules)
    seed = (rules.seed, row.group, row.target, row.class_name)
    tested = replace(
        row,
        difference=estimate.difference,
        difference_interval=estimate.interval(),
        interval_by="t" if min(len(left), len(right)) < BOOTSTRAP_FROM else "bootstrap",
        p=permutation_p(left, right, seed=seed, permutations=rules.permutations),
        detectable=estimate.detectable,
        robustness=() if rules.bare else (_by_share(members, others, rules),),
    )
    return _Compared(tested, estimate)


def _within(cell: Cell, group: str, reference: Reference) -> Within | None:
    """Entities that are the reference's, too; None where they have the same mentions in both."""
    others = (
        one for other, rows in cell.groups.items() if other in reference.groups for one in rows
    )
    within = Within.of(cell.groups[group], others)
    return within if any(within.means) else None


def _compared_within(row: GroupStatistic, within: Within, rules: Rules) -> _Compared:
    estimate = within.estimate
    p = within.p((rules.seed, row.group, row.target, row.class_name), rules.permutations)
    tested = replace(
        row,
        difference=estimate.difference,
        difference_interval=estimate.interval(),
        interval_by="t",
        p=p,
        detectable=estimate.detectable,
        robustness=() if rules.bare else tuple(within.robustness()),
        note=f"within {len(within)} entities that both groups have",
    )
    return _Compared(tested, estimate)


def estimated(members: Sequence[EntityRow], others: Sequence[EntityRow], rules: Rules) -> Estimate:
    """The difference of the entity means of two sides, each of at least two entities."""
    left, right = [one.mean for one in members], [one.mean for one in others]
    return _estimate(members, others, left, right, rules)


def _estimate(
    members: Sequence[EntityRow],
    others: Sequence[EntityRow],
    left: Sequence[float],
    right: Sequence[float],
    rules: Rules,
) -> Estimate:
    if rules.bare or min(len(left), len(right)) < BOOTSTRAP_FROM:
        return welch(left, right)
    weights = tuple(
        poisson_weights([one.entity for one in side], RESAMPLES, rules.seed)
        for side in (members, others)
    )
    return bootstrapped(left, right, (weights[0], weights[1]))


def _by_share(
    members: Sequence[EntityRow], others: Sequence[EntityRow], rules: Rules
) -> Robustness:
    """The share of |R| instead of the unit."""
    shares = ([one.share for one in members], [one.share for one in others])
    estimate = _estimate(members, others, *shares, rules)
    return Robustness(
        name="share of |R|",
        unit="share",
        difference=estimate.difference,
        interval=estimate.interval(),
    )


def _with_two_way(row: GroupStatistic, both: Estimate, cell: Cell, rules: Rules) -> GroupStatistic:
    """With the difference over mentions, clustered by entity and document."""
    if rules.bare:
        return row
    found = Robustness(
        name=f"over mentions, by entity and {cell.unit}",
        unit="",
        difference=both.difference,
        interval=both.interval(),
    )
    return replace(row, robustness=(*row.robustness, found))


def _judged(one: _Compared, p: float | None, rules: Rules) -> GroupStatistic:
    if one.row.group == one.row.reference:
        return replace(one.row, verdict="reference", reason="what the others are compared with")
    found = judge(one.estimate, p, rules.practical, both=one.both)
    reason = one.why or found.reason
    return replace(one.row, adjusted_p=p, verdict=found.verdict, reason=reason)
