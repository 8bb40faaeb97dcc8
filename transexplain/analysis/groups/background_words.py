"""Compares a group with words of no group that are as frequent as its entities.

How much relevance a word carries depends on how frequent it is, whatever it names. Each entity is
compared with the mean of the words that are in half to twice as many documents; a group's
background is the mean over its entities, so that its own frequencies weigh the words.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.entity_totals import EntityRow
from transexplain.analysis.groups.group_cells import Cell
from transexplain.analysis.groups.intervals import MIN_ENTITIES, Estimate, Interval
from transexplain.analysis.groups.shard_aggregate import WordTotal
from transexplain.analysis.groups.word_pieces import pieces
from transexplain.types.findings import Background, GroupStatistic
from transexplain.types.items import EntityGroup

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
