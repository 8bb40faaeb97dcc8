"""The control that should find something: a difference planted into randomly sampled groups.

It measures the power of this run: with its entities, its groups' sizes and its rules, how often a
true difference of a given size would have had the verdict *difference*.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from transexplain.bias.cells import Cell
from transexplain.bias.families import Reference, family
from transexplain.bias.group_table import Rules
from transexplain.bias.intervals import BOOTSTRAP_FROM, MIN_ENTITIES, Interval, welch, wilson
from transexplain.bias.multiplicity import adjusted
from transexplain.bias.permutation import PERMUTATIONS, welch_t
from transexplain.bias.verdicts import ALPHA
from transexplain.errors import ConfigurationError
from transexplain.randomness import generator

LEXICONS = 200
SIZES = (0.5, 1.0, 2.0)  #: of the difference that the plan names
_BESIDE = 999  #: permutations of the comparisons that nothing is planted into
_CLOSE = 1e-12  #: relative; as in `permutation`
_Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """How often a planted difference is found."""

    difference: float  #: in the unit
    lexicons: int  #: randomly sampled; it is planted into one comparison of each
    found: int  #: with the verdict *difference* and the right sign
    wrong: int  #: with the verdict and the wrong sign
    share: float  #: found / lexicons
    interval: Interval  #: 95 %, Wilson's score interval


def planted(
    cells: Sequence[Cell], rules: Rules, difference: float, lexicons: int = LEXICONS
) -> tuple[Planted, ...]:
    """Half of `difference`, all of it and twice as much, each planted into the same lexicons.

    A lexicon deals the entities of a family out anew, so that the groups, their overlaps and the
    reference keep their sizes (as `placebo`). Into one comparison of each, all in turn, the
    difference is planted: it is added to the mean of every entity of the group. That comparison is
    judged by the run's rules, its p adjusted with those of all other comparisons of that lexicon.
    From 30 entities on both sides p is Student's with Welch's freedom, which the permutations of
    the group table come to there (Janssen 1997). Nothing is planted where the table compares
    nothing; without any comparison the result is empty.

    Raises ConfigurationError for a difference that is not a positive number.
    """
    if not (math.isfinite(difference) and difference > 0.0):
        raise ConfigurationError(
            f"a planted difference of {difference} cannot be; give a positive number in the unit"
        )
    references = rules.references(cells)
    compared = [one for cell in cells for one in _comparisons(cell, rules, references)]
    if not compared:
        return ()
    beside = np.array([one.p_values(range(lexicons), 0.0, _BESIDE)[1] for one in compared])
    turns = generator("planted", rules.seed).permutation(len(compared))
    found = [(0, 0) for _ in SIZES]
    for place, number in enumerate(turns):
        draws = range(place, lexicons, len(compared))
        if not draws:
            continue
        for row, size in enumerate(SIZES):
            signs = _signs(compared[number], draws, size * difference, rules, beside, int(number))
            found[row] = found[row][0] + signs.count(1), found[row][1] + signs.count(-1)
    return tuple(
        _row(size * difference, lexicons, *counts)
        for size, counts in zip(SIZES, found, strict=True)
    )


def _signs(
    one: "_Comparison", draws: range, size: float, rules: Rules, beside: _Array, number: int
) -> list[int]:
    """The sign of every difference that is found, 0 where none is; `beside` (comparisons, all)."""
    differences, values = one.p_values(draws, size, rules.permutations or PERMUTATIONS)
    signs = []
    for draw, difference, p in zip(draws, differences, values, strict=True):
        family = [float(other) for other in beside[:, draw]]
        family[number] = float(p)
        judged = adjusted(family, rules.correction)[number]
        flagged = judged is not None and judged <= ALPHA and abs(difference) > rules.practical
        signs.append(int(np.sign(difference)) if flagged else 0)
    return signs


def _row(difference: float, lexicons: int, found: int, wrong: int) -> Planted:
    return Planted(
        difference=difference,
        lexicons=lexicons,
        found=found,
        wrong=wrong,
        share=found / lexicons,
        interval=wilson(found, lexicons),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """One comparison of the group table: which entities of its cell stand on which side."""

    name: tuple[object, ...]  #: of the cell, with the seed
    group: str
    means: _Array  #: (entities,) of all entities of the families on both sides
    left: NDArray[np.intp]  #: the group's
    right: NDArray[np.intp]  #: the reference's

    def p_values(self, draws: range, size: float, permutations: int) -> tuple[_Array, _Array]:
        """Differences and p (draws,) with `size` added to the group of every lexicon."""
        few = min(len(self.left), len(self.right))
        order = None
        if few < BOOTSTRAP_FROM:
            random = generator("planted", *self.name, self.group)
            order = _subsets(random, permutations, len(self.left) + len(self.right), few)
        pairs = [self._judged(draw, size, order) for draw in draws]
        return np.array([one for one, _ in pairs]), np.array([p for _, p in pairs])

    def _judged(
        self, draw: int, size: float, order: NDArray[np.intp] | None
    ) -> tuple[float, float]:
        dealt = self.means[generator("planted", *self.name, draw).permutation(len(self.means))]
        left, right = dealt[self.left] + size, dealt[self.right]
        difference = float(left.mean() - right.mean())
        if order is None:
            return difference, _student_p(left, right)
        few, many = sorted((left, right), key=len)
        pool = np.concatenate([few, many])
        pool = pool - pool.mean()
        observed = float(welch_t(pool, np.arange(len(few))[None, :])[0])
        extreme = int(np.sum(welch_t(pool, order) >= observed * (1 - _CLOSE)))
        return difference, (extreme + 1) / (len(order) + 1)


def _comparisons(
    cell: Cell, rules: Rules, references: Mapping[str, Reference]
) -> Iterator[_Comparison]:
    name = (rules.seed, cell.target, cell.class_name)
    for group, members in cell.groups.items():
        against = references[group].groups
        others, _ = cell.others(group, against)
        if min(len(members), len(others)) >= MIN_ENTITIES:
            single = _means(cell, {family(one) for one in (group, *against)})
            places = {entity: place for place, entity in enumerate(single)}
            left, right = (
                np.array([places[one.entity] for one in side], dtype=np.intp)
                for side in (members, others)
            )
            yield _Comparison(name, group, np.array(list(single.values())), left, right)


def _means(cell: Cell, families: Collection[str]) -> dict[str, float]:
    """The mean of every entity of these families, by name."""
    found = {
        row.entity: row.mean
        for group, rows in cell.groups.items()
        if family(group) in families
        for row in rows
    }
    return dict(sorted(found.items()))


def _student_p(left: _Array, right: _Array) -> float:
    known = welch(left.tolist(), right.tolist())
    if known.error == 0.0:
        return float(known.difference == 0.0)
    return float(2.0 * stdtr(known.freedom, -abs(known.difference) / known.error))


def _subsets(random: np.random.Generator, count: int, of: int, size: int) -> NDArray[np.intp]:
    """(`count`, `size`) different numbers below `of` in every row, all sets alike likely."""
    if of < size**2:
        return random.random((count, of)).argpartition(size - 1, axis=1)[:, :size]
    found = random.integers(of, size=(count, size))
    while True:
        ordered = np.sort(found, axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(twice):
            return found.astype(np.intp, copy=False)
        found[twice] = random.integers(of, size=(len(twice), size))
