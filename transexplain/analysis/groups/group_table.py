"""The group table: every group compared with its reference, with intervals and adjusted p values.

A group and its reference may share entities: where the entities are pictures, every picture has
regions of both. Their values are then not independent, so the differences within entities are
tested.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.entity_totals import EntityRow, EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import (
    Cell,
    PlanReference,
    Reference,
    by_class,
    cell_of,
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
    """The rules by which groups are compared: declared in the plan, before any result is known."""

    reference: PlanReference = None  #: None: the entities of all other groups of the family
    groups: tuple[str, ...] = ()  #: of the plan, whether mentioned or not
    practical: float = 0.1  #: smallest |difference| that matters, in the unit
    correction: Correction = "bh"
    seed: int = 0
    permutations: int | None = None  #: None: by the size of the groups
    bare: bool = False  #: p and verdict *difference* only: no bootstrap, no robustness

    def references(self, cells: Iterable[Cell]) -> dict[str, Reference]:
        """Return what every group is compared with: those of the plan, and those in `cells`."""
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
    p = adjusted([comparison.row.p for comparison in compared], rules.correction)
    return [_judged(row, value, rules) for row, value in zip(compared, p, strict=True)]


class _ComparedMeans(NamedTuple):
    row: GroupStatistic
    estimate: Estimate | None
    both: Estimate | None = None  #: over entities and documents
    why: str = ""  #: there is no estimate, if not for too few entities


def _compare(cell: Cell, group: str, reference: Reference, rules: Rules) -> _ComparedMeans:
    members = cell.groups[group]
    notes = [f"fewer than {MIN_ENTITIES} entities"] if len(members) < MIN_ENTITIES else []
    row = _described(cell, group, members, reference.name)
    if group == reference.name:
        return _ComparedMeans(replace(row, note="; ".join([*notes, "the reference itself"])), None)
    if reference.note:
        notes.append(reference.note)
    others, shared = cell.others(group, reference.groups)
    # entities without a difference have the same mentions in both
    if len(others) < MIN_ENTITIES <= shared and any((both := _within(cell, group, reference))[0]):
        return _compared_within(row, *both, rules)
    if shared:
        notes.append(f"{shared} entities shared with the reference count for the group only")
    if not others:
        notes.append("no reference entity was mentioned")
    elif len(others) < MIN_ENTITIES:
        notes.append(f"reference has fewer than {MIN_ENTITIES} entities")

    row = replace(row, note="; ".join(notes))
    if min(len(members), len(others)) < MIN_ENTITIES:
        return _ComparedMeans(row, None)
    two_way = cell.two_way(members, others) if cell.pairs else None
    if cell.pairs and two_way is None:
        why = f"all mentions of a side are in one {cell.unit}"
        return _ComparedMeans(replace(row, note="; ".join([*notes, why])), None, why=why)
    row = replace(row, note="; ".join([*notes, *_uneven(members)]))
    return _ComparedMeans(*_tested(row, members, others, rules, two_way, cell.unit), two_way)


def _uneven(members: Sequence[EntityRow]) -> Iterator[str]:
    """Why a group's mentions carry less information than their number suggests."""
    largest = max(members, key=lambda row: (row.mentions, row.entity))
    share = largest.mentions / sum(member.mentions for member in members)
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
    two_way: Estimate | None,
    unit: str,
) -> tuple[GroupStatistic, Estimate]:
    """The row with its difference; `two_way` is that over mentions, by entity and `unit`."""
    left, right = [row_.mean for row_ in members], [row_.mean for row_ in others]
    shares = [row_.share for row_ in members], [row_.share for row_ in others]
    estimate, more = estimated(members, others, rules), []
    if not rules.bare:
        more.append(robustness(_SHARE, "share", _estimate(members, others, *shares, rules)))
        if two_way is not None:
            more.append(robustness(f"over mentions, by entity and {unit}", "", two_way))
    tested = replace(
        row,
        difference=estimate.difference,
        difference_interval=estimate.interval(),
        interval_by="t" if min(len(left), len(right)) < BOOTSTRAP_FROM else "bootstrap",
        p=permutation_p(
            left,
            right,
            seed=(rules.seed, row.group, row.target, row.class_name),
            permutations=rules.permutations,
        ),
        detectable=estimate.detectable,
        robustness=tuple(more),
    )
    return tested, estimate


def _within(cell: Cell, group: str, reference: Reference) -> tuple[list[float], list[float]]:
    """Differences (entities,) of a group to its reference within the entities that both have.

    Of means of relevance, and of the share of |R|; several rows of a side are averaged.
    """
    others = (
        row for other, rows in cell.groups.items() if other in reference.groups for row in rows
    )
    left, right = _by_entity(cell.groups[group]), _by_entity(others)
    both = sorted(left.keys() & right.keys())
    means, shares = ([left[name][k] - right[name][k] for name in both] for k in (0, 1))
    return means, shares


def _compared_within(
    row: GroupStatistic, means: Sequence[float], shares: Sequence[float], rules: Rules
) -> _ComparedMeans:
    estimate = one_sample(means)
    seed = (rules.seed, row.group, row.target, row.class_name)
    tested = replace(
        row,
        difference=estimate.difference,
        difference_interval=estimate.interval(),
        interval_by="t",
        p=sign_flip_p(means, seed=seed, permutations=rules.permutations or PERMUTATIONS),
        detectable=estimate.detectable,
        robustness=() if rules.bare else (robustness(_SHARE, "share", one_sample(shares)),),
        note=f"within {len(means)} entities that both groups have",
    )
    return _ComparedMeans(tested, estimate)


def robustness(name: str, unit: str, estimate: Estimate) -> Robustness:
    """An estimate as a robustness row; `unit` is "" for that of the table."""
    return Robustness(
        name=name, unit=unit, difference=estimate.difference, interval=estimate.interval()
    )


_SHARE = "share of |R|"


def estimated(members: Sequence[EntityRow], others: Sequence[EntityRow], rules: Rules) -> Estimate:
    """The difference of the entity means of two sides, each of at least two entities."""
    left, right = [row.mean for row in members], [row.mean for row in others]
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
        poisson_weights([row.entity for row in side], RESAMPLES, rules.seed)
        for side in (members, others)
    )
    return bootstrapped(left, right, (weights[0], weights[1]))


def _judged(compared: _ComparedMeans, p: float | None, rules: Rules) -> GroupStatistic:
    if compared.row.group == compared.row.reference:
        return replace(
            compared.row, verdict="reference", reason="what the others are compared with"
        )
    judgement = judge(compared.estimate, p, rules.practical, both=compared.both)
    reason = compared.why or judgement.reason
    return replace(compared.row, adjusted_p=p, verdict=judgement.verdict, reason=reason)


_Array = NDArray[np.float64]


class Shrunken(NamedTuple):
    """Means of entities, shrunk towards the mean of all; more where there are fewer mentions."""

    mean: _Array  #: (entities,), posterior means, in the unit of what was given
    low: _Array  #: (entities,), 95 % intervals
    high: _Array
    centre: float  #: of all entities
    spread: float  #: standard deviation of true means between entities


def shrink(means: Sequence[float], variances: Sequence[float]) -> Shrunken:
    """Posterior of each entity's true mean under a normal prior that all entities estimate.

    Args:
        means: of each entity's mentions.
        variances: squared standard error of each mean, above 0.

    The spread between entities is Paule and Mandel's (1982) estimate; the posterior is that of
    the normal-normal model (Efron and Morris 1975). Intervals add the uncertainty of the centre
    (Morris 1983, without the term for the spread's). Raises ValueError for a variance of 0.
    """
    from scipy.special import ndtri  # slow to import

    x, v = np.asarray(means, float), np.asarray(variances, float)
    if np.any(v <= 0.0):
        raise ValueError("a mean without sampling variance cannot be shrunk")
    between = _paule_mandel(x, v)
    weights = 1.0 / (v + between)
    centre = float(np.sum(weights * x) / np.sum(weights))
    kept = between / (between + v)
    mean = centre + kept * (x - centre)
    variance = kept * v + (1.0 - kept) ** 2 / np.sum(weights)
    half = ndtri(0.975) * np.sqrt(variance)
    return Shrunken(
        mean=mean, low=mean - half, high=mean + half, centre=centre, spread=float(np.sqrt(between))
    )


def mean_variances(
    mentions: Sequence[int], means: Sequence[float], squares: Sequence[float]
) -> list[float] | None:
    """Squared standard errors of entities' means, from one variance of mentions for all.

    Args:
        mentions: per entity.
        means: per entity.
        squares: per entity, sums of squared relevance of its mentions.

    None where no entity was mentioned twice or its mentions never differ: nothing is known of
    their variance then.
    """
    n, x = np.asarray(mentions, float), np.asarray(means, float)
    freedom = float(np.sum(n - 1.0))
    within = float(np.sum(np.maximum(np.asarray(squares, float) - n * x**2, 0.0)))
    if freedom == 0.0 or within <= 0.0:
        return None
    return [float(variance) for variance in within / freedom / n]


def _paule_mandel(x: _Array, v: _Array) -> float:
    """The variance between entities at which the weighted squares have their expected sum."""

    from scipy.optimize import brentq  # slow to import

    def excess(between: float) -> float:
        weights = 1.0 / (v + between)
        centre = np.sum(weights * x) / np.sum(weights)
        return float(np.sum(weights * (x - centre) ** 2)) - (len(x) - 1)

    if len(x) < 2 or excess(0.0) <= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, float(np.var(x)) * len(x) + float(v.max())))


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
class EntityRanking:
    """All entities for one target and class, highest shrunken mean first."""

    target: str
    class_name: str
    centre: float  #: of all entities
    spread: float  #: standard deviation between entities beyond chance
    entities: tuple[RankedEntity, ...]
    omitted: int = 0  #: entities between the highest and the lowest that are shown

    def ends(self, each: int) -> "EntityRanking":
        """The same with only the `each` highest and lowest."""
        if len(self.entities) <= 2 * each:
            return self
        kept = (*self.entities[:each], *self.entities[-each:])
        return replace(self, entities=kept, omitted=len(self.entities) - len(kept))


def rankings(totals: EntityTotals) -> list[EntityRanking]:
    """One ranking per (target, class) in which enough entities were mentioned, sorted by these.

    Means are shrunk by empirical Bayes, see `shrink`; an entity of several groups is
    ranked once.
    """
    lists = (_ranking(key, totals.rows(strata)) for key, strata in by_class(totals).items())
    return [ranking for ranking in lists if ranking is not None]


def _ranking(key: tuple[str, str], rows: Sequence[EntityRow]) -> EntityRanking | None:
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
    return EntityRanking(
        target=key[0],
        class_name=key[1],
        centre=believed.centre,
        spread=believed.spread,
        entities=tuple(sorted(ranked, key=lambda entity: (-entity.shrunken, entity.entity))),
    )


SplitBy = Literal["predicted class", "label", "slice"]
PARTS = 12  #: of a split that are shown, those with the most mentions

RIGHT, WRONG = "right", "wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class TablePart:
    """The group table of some of the items."""

    value: str  #: predicted class; right or wrong; or what the metadata column holds
    rows: tuple[GroupStatistic, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reversal:
    """A difference whose sign is the other one in every part that could be compared.

    Where neither it nor that of any part exceeds the practical size, nothing turned around.
    """

    group: str
    target: str
    class_name: str
    overall: float  #: difference, in the unit
    parts: Mapping[str, float]  #: value -> difference


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """All parts of one way to split; their comparisons are one family, p is adjusted within."""

    by: SplitBy
    parts: tuple[TablePart, ...]
    omitted: int  #: parts with fewer mentions than those shown
    reversals: tuple[Reversal, ...]

    def apart(self, overall: Iterable[GroupStatistic]) -> Iterator[tuple[str, GroupStatistic]]:
        """(value, row) where the verdict of a part differs from that of all items together.

        A part that is inconclusive or suppressed has fewer entities, so that is no contradiction.
        """
        known = {_key(row): row.verdict for row in overall}
        for part in self.parts:
            for row in part.rows:
                decided = row.verdict in ("difference", "equivalent")
                if decided and row.verdict != known.get(_key(row)):
                    yield part.value, row


def splits(
    totals: EntityTotals, overall: Sequence[GroupStatistic], rules: Rules
) -> tuple[Split, ...]:
    """Every split in which a target and class has at least two parts.

    A target and class with one part only (predicted classes of the target `predicted`) would be
    compared a second time and is left out; so are items without a label, or without the slice's
    column. The same rules judge.

    Args:
        totals: of the run.
        overall: the group table over all items, for reversals.
        rules: of the table.
    """
    ways: tuple[tuple[SplitBy, Callable[[Stratum], str]], ...] = (
        ("predicted class", lambda stratum: stratum.predicted),
        ("label", _rightness),
        ("slice", lambda stratum: stratum.slice),
    )
    parts = (_split(by, value_of, totals, overall, rules) for by, value_of in ways)
    return tuple(split for split in parts if split is not None)


def with_reversals(
    rows: Iterable[GroupStatistic], parts: Iterable[Split]
) -> Iterator[GroupStatistic]:
    """Rows with a note where their difference is reversed within the parts of a split."""
    turned: dict[tuple[str, str, str], list[str]] = {}
    for split in parts:
        for reversal in split.reversals:
            key = (reversal.target, reversal.class_name, reversal.group)
            turned.setdefault(key, []).append(f"the sign is the other one within every {split.by}")
    for row in rows:
        notes = turned.get(_key(row), [])
        yield replace(row, note="; ".join(filter(None, (row.note, *notes))))


def _rightness(stratum: Stratum) -> str:
    if not stratum.label:
        return ""
    return RIGHT if stratum.label == stratum.predicted else WRONG


def _split(
    by: SplitBy,
    value_of: Callable[[Stratum], str],
    totals: EntityTotals,
    overall: Sequence[GroupStatistic],
    rules: Rules,
) -> Split | None:
    cells: list[tuple[str, Cell]] = []
    for strata in by_class(totals).values():
        parts: dict[str, list[Stratum]] = {}
        for stratum in strata:
            if value := value_of(stratum):
                parts.setdefault(value, []).append(stratum)
        if len(parts) > 1:
            cells += [(value, cell_of(totals, some)) for value, some in parts.items()]
    if not cells:
        return None
    sizes: Counter[str] = Counter()
    for value, cell in cells:
        sizes[value] += sum(row.mentions for rows in cell.groups.values() for row in rows)
    shown = sorted(sorted(sizes, key=lambda value: (-sizes[value], value))[:PARTS])
    kept = [(value, cell) for value, cell in cells if value in shown]
    rows = _by_value(kept, rules)
    return Split(
        by=by,
        parts=tuple(TablePart(value=value, rows=tuple(rows[value])) for value in shown),
        omitted=len(sizes) - len(shown),
        reversals=tuple(_reversals(overall, rows, rules.practical)),
    )


def _by_value(cells: Sequence[tuple[str, Cell]], rules: Rules) -> dict[str, list[GroupStatistic]]:
    """The rows of all cells, judged as one family."""
    values = [value for value, cell in cells for _ in cell.groups]
    by_value: dict[str, list[GroupStatistic]] = {}
    for value, row in zip(values, table_of([cell for _, cell in cells], rules), strict=True):
        by_value.setdefault(value, []).append(row)
    return by_value


def _reversals(
    overall: Iterable[GroupStatistic],
    parts: Mapping[str, Sequence[GroupStatistic]],
    practical: float,
) -> Iterator[Reversal]:
    within: dict[tuple[str, str, str], dict[str, float]] = {}
    for value, rows in parts.items():
        for row in rows:
            if row.difference is not None:
                within.setdefault(_key(row), {})[value] = row.difference
    for row in overall:
        parts_of_row, whole = within.get(_key(row), {}), row.difference or 0.0
        matters = max(map(abs, (whole, *parts_of_row.values()))) > practical
        if (
            matters
            and len(parts_of_row) > 1
            and all(inside * whole < 0.0 for inside in parts_of_row.values())
        ):
            yield Reversal(
                group=row.group,
                target=row.target,
                class_name=row.class_name,
                overall=whole,
                parts=dict(sorted(parts_of_row.items())),
            )


def _key(row: GroupStatistic) -> tuple[str, str, str]:
    return row.target, row.class_name, row.group
