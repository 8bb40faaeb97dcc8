"""Totals of the model's answers by the groups that items mention; they merge exactly.

Items are counted by the *set* of groups that they mention, so that any comparison (a group against
one other, against all others of its family, two groups in one item) comes out of one table. Where
names are a sample, items are also counted by name, so that items of one name are
known. Sums are exact, see `store.exact_sums`.
"""

import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.store.exact_sums import UNITS, Key, Sums, add_row, exact, exact_sums, numbered
from transexplain.types.items import ItemOutcome


class Situation(NamedTuple):
    """The properties that the counted items share; those that do not apply are empty."""

    groups: tuple[str, ...]  #: mentioned, sorted
    label: str
    slice: str
    cluster: str  #: "": every item is a cluster of its own
    predicted: str
    named: str = ""  #: group whose names the items are counted by; "": they are counted once
    name: str = ""  #: number of one of these names


class Tally(NamedTuple):
    """The items of one situation."""

    items: int
    measured: int  #: of these, items whose probabilities are known
    probabilities: tuple[float, ...]  #: sum over these, by answer
    squares: tuple[float, ...]  #: sum of squares, by answer


_Waiting = tuple[Situation, Sequence[float]]  #: an item's situation and logits
_COUNTED_TOGETHER = 1024  #: items
_TEXTS = 4096  #: clusters of the texts that entities are in; more texts share them
_NAMES = 4096  #: numbers of names; more names share them


class OutcomeTotals:
    """Items by their situations.

    Totals of `sums`: outcomes, situation -> [items, measured, sum and sum of squares of every
    answer's probability in turn]; names, situation of a name -> [items]. A key holds the groups of
    a situation last.
    """

    def __init__(self, sums: Sums | None = None) -> None:
        self.sums = Sums() if sums is None else sums
        #: items that are not counted yet, by the answers that they are counted for
        self._waiting: dict[tuple[Answer, ...], list[_Waiting]] = {}

    def add(
        self,
        outcome: ItemOutcome,
        groups: Collection[str],
        *,
        answers: Sequence[Answer],
        slice_: str = "",
        cluster: str = "",
        chances: Sequence[float] | None = None,
        names: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Count one explained item, with or without a mention.

        `chances` are the values of its answers, 0 to 1, where they are no probabilities of logits.
        Entities of one text are one cluster. `names` are (group, name) of those that it mentions
        where there are others like them; the item counts with each.
        """
        if not cluster and answers and answers[0].is_type:
            cluster = f"text {outcome.index % _TEXTS}"
        key = Situation(
            tuple(sorted(groups)), outcome.label or "", slice_, cluster, outcome.predicted
        )
        for group, number in {(group, zlib.crc32(name.encode()) % _NAMES) for group, name in names}:
            named = key._replace(named=group, name=str(number))
            add_row(self.sums.table("names"), _key_of(named), [1])
        if chances is not None:
            parts = (part for chance in chances for part in (exact(chance), exact(chance * chance)))
            add_row(self.sums.table("outcomes"), _key_of(key), [1, 1, *parts])
            return
        waiting = self._waiting.setdefault(tuple(answers), [])
        waiting.append((key, outcome.logits))
        if len(waiting) >= _COUNTED_TOGETHER:
            self.count_waiting()

    def _rows(self, total: str) -> list[tuple[Situation, list[int]]]:
        """The rows of a total, sorted."""
        self.count_waiting()
        rows = self.sums.table(total).items()
        return sorted((Situation(key[6:], *key[:6]), row) for key, row in rows)

    def count_waiting(self) -> None:
        """Count the items that wait: many at once are counted faster."""
        outcomes = self.sums.table("outcomes")
        for answers, items in self._waiting.items():
            # of a class that the logits lack nothing is known, nor of any without logits
            classes = max((place for answer in answers for place in answer.plus), default=-1)
            needed = max(classes, 0) if answers else math.inf
            known = [(key, logits) for key, logits in items if len(logits) > needed]
            for key, logits in items:
                if len(logits) <= needed:
                    add_row(outcomes, _key_of(key), [1, 0, *[0, 0] * len(answers)])
            self._count_known(answers, known)
        self._waiting.clear()

    def _count_known(self, answers: Sequence[Answer], items: Sequence[_Waiting]) -> None:
        keys, kinds = numbered([key for key, _ in items])
        counts = np.bincount(kinds, minlength=len(keys)).tolist()
        columns = [counts, counts]
        for answer in answers:
            chances = probability([answer.odds_of(logits) for _, logits in items])
            columns += [exact_sums(part, kinds, len(keys)) for part in (chances, chances * chances)]
        for key, *row in zip(keys, *columns, strict=True):
            add_row(self.sums.table("outcomes"), _key_of(key), row)

    def __iter__(self) -> Iterator[tuple[Situation, Tally]]:
        """Every situation with its items, sorted."""
        for key, (items, measured, *rest) in self._rows("outcomes"):
            sums = tuple(total / UNITS for total in rest[::2])
            squares = tuple(total / UNITS for total in rest[1::2])
            yield key, Tally(items, measured, sums, squares)

    def by_name(self) -> list[tuple[Situation, int]]:
        """Every situation of a name with how many items it is in, sorted."""
        return [(key, items) for key, (items,) in self._rows("names")]

    def __bool__(self) -> bool:
        return bool(self._rows("outcomes"))

    @property
    def answers(self) -> set[int]:
        """Return how many answers were measured; more than one number where shards differ."""
        return {(len(row) - 1) // 2 for _, row in self._rows("outcomes") if row[1]}


def _key_of(situation: Situation) -> Key:
    groups, *rest = situation
    return (*rest, *groups)
