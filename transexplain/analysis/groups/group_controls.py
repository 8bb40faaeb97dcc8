"""Controls of the group table: random words as lexicons, a second one, planted bias, background.

How much relevance a word carries depends on how frequent it is, whatever it names. For a group's
background each entity is compared with the mean of the words of no group that are in half to twice
as many documents; it is the mean over entities, so that their own frequencies weigh the words.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.entity_totals import EntityRow
from transexplain.analysis.groups.group_cells import Cell, Reference, family
from transexplain.analysis.groups.group_table import Rules, estimated, robustness, table_of
from transexplain.analysis.groups.intervals import (
    BOOTSTRAP_FROM,
    MIN_ENTITIES,
    Estimate,
    Interval,
    welch,
    wilson,
)
from transexplain.analysis.groups.resampling import PERMUTATIONS, welch_t
from transexplain.analysis.groups.shard_aggregate import WordTotal
from transexplain.analysis.groups.verdict_rules import ALPHA, adjusted
from transexplain.analysis.groups.word_pieces import pieces
from transexplain.errors import ConfigurationError
from transexplain.randomness import generator
from transexplain.types.findings import Background, GroupStatistic
from transexplain.types.items import EntityGroup

DRAWS = 20
_PERMUTATIONS = 999


@dataclass(frozen=True, kw_only=True, slots=True)
class Placebo:
    """The group table's verdicts on lexicons without any meaning."""

    lexicons: int  #: how often the entities were assigned to groups at random
    comparisons: int  #: tested, over all of them
    below: int  #: with a raw p of at most 5 %; one in twenty is what chance gives
    differences: int  #: with the verdict *difference*


def placebo(cells: Sequence[Cell], rules: Rules, draws: int = DRAWS) -> Placebo:
    """Judge `draws` random relabellings by the same rules as the lexicon itself.

    Each entity takes the groups of another one of the same families, the same in every cell: sizes
    of groups and their overlaps stay, and so do the entities' relevance and how often they are
    mentioned.
    """
    comparisons = below = differences = 0
    fast = replace(rules, permutations=rules.permutations or _PERMUTATIONS, bare=True)
    lexicon = _DealtEntities(cells)
    for draw in range(draws):
        for row in table_of(lexicon.relabelled(rules.seed, draw), fast):
            if row.p is not None:
                comparisons += 1
                below += row.p <= 0.05
                differences += row.flagged
    return Placebo(lexicons=draws, comparisons=comparisons, below=below, differences=differences)


class _DealtEntities:
    """The entities of some cells with their groups, to be dealt out anew."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        groups: dict[str, set[str]] = {}
        #: of every cell the rows of each entity, by name
        self._cells: list[tuple[Cell, list[tuple[str, list[EntityRow]]]]] = []
        for cell in cells:
            rows: dict[str, list[EntityRow]] = {}
            for group, of in cell.groups.items():
                for row in of:
                    groups.setdefault(row.entity, set()).add(group)
                    rows.setdefault(row.entity, []).append(row)
            self._cells.append((cell, sorted(rows.items(), key=itemgetter(0))))
        self._groups = {entity: sorted(groups[entity]) for entity in sorted(groups)}
        self._exchangeable = _exchangeable(self._groups)

    def relabelled(self, seed: int, draw: int) -> Iterator[Cell]:
        """The cells with each entity in the groups of another one, for one draw."""
        random = generator("placebo", seed, draw)
        dealt: dict[str, list[str]] = {}
        for names in self._exchangeable:
            order = random.permutation(len(names)).tolist()
            for name, place in zip(names, order, strict=True):
                dealt[name] = self._groups[names[place]]
        drawn = random.integers(2**31, size=len(self._groups)).tolist()
        turns = dict(zip(self._groups, drawn, strict=True))
        for cell, rows in self._cells:
            members: dict[str, list[EntityRow]] = {}
            for group, row in _moved(rows, dealt, turns):
                members.setdefault(group, []).append(row)
            documents = {group: sum(row.documents for row in of) for group, of in members.items()}
            yield replace(cell, groups=members, documents=documents, pairs={}, quantiles={})


def _exchangeable(groups: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Entities that may swap groups, given sorted: those in groups of the same families."""
    by_families: dict[tuple[str, ...], list[str]] = {}
    for entity, of in groups.items():
        by_families.setdefault(tuple(sorted({family(group) for group in of})), []).append(entity)
    return [by_families[families] for families in sorted(by_families)]


def _moved(
    rows: Iterable[tuple[str, Sequence[EntityRow]]],
    dealt: Mapping[str, Sequence[str]],
    turns: Mapping[str, int],
) -> Iterator[tuple[str, EntityRow]]:
    """The new groups of each entity, each with one of its rows, in a random order per entity.

    An entity of several groups has the same row in each where a lexicon has it there, and rows of
    its own where they are regions of one picture.
    """
    for entity, entity_rows in rows:
        for place, group in enumerate(dealt[entity], start=turns[entity]):
            yield group, entity_rows[place % len(entity_rows)]


NAME = "second lexicon"


def with_second(
    rows: Iterable[GroupStatistic],
    cells: Iterable[Cell],
    second: Iterable[Cell],
    names: Sequence[str],
    rules: Rules,
) -> Iterator[GroupStatistic]:
    """Rows with one more robustness row where the second lexicon has their group.

    Its groups stand in the place of those of the same name, the reference's included; groups
    that it does not have stay as they are. Its mentions count nowhere else.

    Args:
        rows: of the group table.
        cells: that the table was made of.
        second: cells of the second lexicon's mentions.
        names: of the second lexicon's groups.
        rules: of the table.
    """
    cells, second = list(cells), list(second)
    theirs = {(cell.target, cell.class_name): cell.groups for cell in second}
    mixed = {}
    for cell in cells:
        key = (cell.target, cell.class_name)
        kept = {group: of for group, of in cell.groups.items() if group not in names}
        mixed[key] = replace(cell, groups={**kept, **theirs.get(key, {})})
    references = rules.references([*cells, *second])
    for row in rows:
        if row.group not in names or row.group == row.reference:
            yield row
            continue
        against = references[row.group].groups
        estimate = _compared(mixed[row.target, row.class_name], row.group, against, rules)
        if estimate is None:
            note = f"{NAME}: fewer than {MIN_ENTITIES} entities on a side"
            yield replace(row, note="; ".join(filter(None, (row.note, note))))
        else:
            yield replace(row, robustness=(*row.robustness, robustness(NAME, "", estimate)))


def _compared(cell: Cell, group: str, against: Collection[str], rules: Rules) -> Estimate | None:
    members = cell.groups.get(group, ())
    others = cell.others(group, against)[0] if members else []
    if min(len(members), len(others)) < MIN_ENTITIES:
        return None
    return estimated(members, others, rules)


LEXICONS = 200
SIZES = (0.5, 1.0, 2.0)  #: of the difference that the plan names
_BESIDE = 999  #: permutations of the comparisons that nothing is planted into
_CLOSE = 1e-12  #: relative; as in `permutation`
_Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """The share of lexicons in which a planted difference is found."""

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

    A lexicon deals the entities of a family out again, so that the groups, their overlaps and the
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
    compared = [row for cell in cells for row in _comparisons(cell, rules, references)]
    if not compared:
        return ()
    beside = np.array([row.p_values(range(lexicons), 0.0, _BESIDE)[1] for row in compared])
    turns = generator("planted", rules.seed).permutation(len(compared))
    hits = [(0, 0) for _ in SIZES]
    for place, number in enumerate(turns):
        draws = range(place, lexicons, len(compared))
        if not draws:
            continue
        for row, size in enumerate(SIZES):
            signs = _signs(compared[number], draws, size * difference, rules, beside, int(number))
            hits[row] = hits[row][0] + signs.count(1), hits[row][1] + signs.count(-1)
    return tuple(
        Planted(
            difference=size * difference,
            lexicons=lexicons,
            found=right,
            wrong=wrong,
            share=right / lexicons,
            interval=wilson(right, lexicons),
        )
        for size, (right, wrong) in zip(SIZES, hits, strict=True)
    )


def _signs(
    comparison: "_Comparison", draws: range, size: float, rules: Rules, beside: _Array, number: int
) -> list[int]:
    """The sign of every difference that is found, 0 where none is; `beside` (comparisons, all)."""
    differences, values = comparison.p_values(draws, size, rules.permutations or PERMUTATIONS)
    signs = []
    for draw, difference, p in zip(draws, differences, values, strict=True):
        family = [float(other) for other in beside[:, draw]]
        family[number] = float(p)
        judged = adjusted(family, rules.correction)[number]
        flagged = judged is not None and judged <= ALPHA and abs(difference) > rules.practical
        signs.append(int(np.sign(difference)) if flagged else 0)
    return signs


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
        return np.array([difference for difference, _ in pairs]), np.array([p for _, p in pairs])

    def _judged(
        self, draw: int, size: float, order: NDArray[np.intp] | None
    ) -> tuple[float, float]:
        dealt = self.means[generator("planted", *self.name, draw).permutation(len(self.means))]
        left, right = dealt[self.left] + size, dealt[self.right]
        difference = float(left.mean() - right.mean())
        if order is None:
            return difference, welch(left.tolist(), right.tolist()).p_beyond(0.0)
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
            single = _means(cell, {family(name_) for name_ in (group, *against)})
            places = {entity: place for place, entity in enumerate(single)}
            left, right = (
                np.array([places[row.entity] for row in side], dtype=np.intp)
                for side in (members, others)
            )
            yield _Comparison(name, group, np.array(list(single.values())), left, right)


def _means(cell: Cell, families: Collection[str]) -> dict[str, float]:
    """The mean of every entity of these families, by name."""
    means = {
        row.entity: row.mean
        for group, rows in cell.groups.items()
        if family(group) in families
        for row in rows
    }
    return dict(sorted(means.items()))


def _subsets(random: np.random.Generator, count: int, of: int, size: int) -> NDArray[np.intp]:
    """(`count`, `size`) different numbers below `of` in every row, all sets alike likely."""
    if of < size**2:
        return random.random((count, of)).argpartition(size - 1, axis=1)[:, :size]
    numbers = random.integers(of, size=(count, size))
    while True:
        ordered = np.sort(numbers, axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(twice):
            return numbers.astype(np.intp, copy=False)
        numbers[twice] = random.integers(of, size=(len(twice), size))


MIN_WORDS = 5  #: as frequent as an entity, for it to be matched
_FACTOR = 2.0  #: between the documents of an entity and of a word

Words = Callable[[str, str], Sequence[WordTotal]]  #: of a target and class


def with_backgrounds(
    rows: Iterable[GroupStatistic],
    cells: Sequence[Cell],
    words: Words,
    groups: Sequence[EntityGroup],
) -> Iterator[GroupStatistic]:
    """Rows with the background of their group, where it has enough entities with enough words.

    Words of a group's terms, or of the names that the data marks for it, are no background.

    Args:
        rows: of the group table.
        cells: that the table was made of.
        words: every word of a target and class.
        groups: whose entities are words; rows of other groups stay as they are.
    """
    named, listed = {group.name for group in groups}, _listed(groups, cells)
    by_class = {(cell.target, cell.class_name): cell for cell in cells}
    pools: dict[tuple[str, str], _WordPool] = {}
    for row in rows:
        key = (row.target, row.class_name)
        if row.group not in named:
            yield row
            continue
        if key not in pools:
            pools[key] = _WordPool.of(words(*key), listed)
        yield replace(row, background=background(by_class[key].groups[row.group], pools[key]))


def _listed(groups: Iterable[EntityGroup], cells: Iterable[Cell]) -> set[str]:
    """Every word of every term and of every entity's name, case-folded."""
    named = {group.name for group in groups}
    terms = {term for group in groups for term in group.terms}
    for cell in cells:
        for group, rows in cell.groups.items():
            if group in named:
                terms.update(row.entity for row in rows)
    return {piece.key for term in terms for piece in pieces(term)}


@dataclass(frozen=True, slots=True)
class _WordPool:
    """Words that may be matched, by ascending documents."""

    documents: NDArray[np.float64]  #: (words,)
    means: NDArray[np.float64]  #: (words,) relevance per mention

    @classmethod
    def of(cls, words: Iterable[WordTotal], listed: Collection[str]) -> "_WordPool":
        """Those of `words` that have a letter and are not listed."""
        kept = sorted(
            (word.documents, word.relevance / word.mentions)
            for word in words
            if any(map(str.isalpha, word.word)) and word.word.casefold() not in listed
        )
        table = np.array(kept, dtype=np.float64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def matched(self, entities: Sequence[EntityRow]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each entity the first of its words, and the one after the last."""
        documents = np.array([entity.documents for entity in entities], dtype=np.float64)
        first = np.searchsorted(self.documents, documents / _FACTOR, side="left")
        last = np.searchsorted(self.documents, documents * _FACTOR, side="right")
        return first, last


def background(entities: Sequence[EntityRow], pool: _WordPool) -> Background | None:
    """The background of one group's entities; None where fewer than five have five words.

    The mean is a weighted one of words, and its squared error the sum over words of weight^2 times
    the squared deviation from what the word was matched for, by the effective number of words n
    (Kish) times n / (n - 1). The difference adds the variance between entities; both take the
    freedom of Welch and Satterthwaite.
    """
    first, last = pool.matched(entities)
    able = last - first >= MIN_WORDS
    if np.count_nonzero(able) < MIN_ENTITIES:
        return None
    first, last = first[able], last[able]
    means = np.array([entity.mean for entity in entities])[able]
    sums = np.concatenate([[0.0], np.cumsum(pool.means)])
    expected = (sums[last] - sums[first]) / (last - first)
    mean, gaps = float(expected.mean()), means - expected
    weights = _spread(1.0 / (last - first), first, last, len(pool.means)) / len(means)
    used = weights > 0.0
    centres = _spread(expected / (last - first), first, last, len(pool.means)) / len(means)
    deviations = pool.means[used] - centres[used] / weights[used]
    number = 1.0 / float(np.square(weights[used]).sum())
    of_words = float(np.square(weights[used] * deviations).sum()) * number / (number - 1.0)
    of_entities = float(gaps.var(ddof=1)) / len(means)
    return Background(
        words=int(used.sum()),
        entities=len(means),
        mean=mean,
        interval=_interval(mean, (of_words, number - 1.0)),
        difference=float(gaps.mean()),
        difference_interval=_interval(
            float(gaps.mean()), (of_words, number - 1.0), (of_entities, len(means) - 1.0)
        ),
    )


def _spread(
    values: NDArray[np.float64], first: NDArray[np.intp], last: NDArray[np.intp], size: int
) -> NDArray[np.float64]:
    """(size,): at each place the sum of the `values` whose range first..last covers it."""
    steps = np.zeros(size + 1)
    np.add.at(steps, first, values)
    np.subtract.at(steps, last, values)
    covered = np.zeros(size + 1, dtype=np.int64)
    np.add.at(covered, first, 1)
    np.subtract.at(covered, last, 1)
    # what is left of the steps where nothing covers is rounding
    return np.where(covered.cumsum() > 0, steps.cumsum(), 0.0)[:size]


def _interval(value: float, *parts: tuple[float, float]) -> Interval:
    """95 % interval of a value whose squared error has these parts, each with its freedom."""
    error = sum(squared for squared, _ in parts)
    if error <= 0.0:
        return value, value
    freedom = 1.0 / sum((squared / error) ** 2 / free for squared, free in parts)
    return Estimate(difference=value, error=error**0.5, freedom=freedom).interval()
