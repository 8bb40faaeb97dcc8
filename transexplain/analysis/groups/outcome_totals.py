"""Totals of the model's answers by the groups that items mention; they merge exactly.

Items are counted by the *set* of groups that they mention, so that any comparison (a group against
one other, against all others of its family, two groups in one item) comes out of one table. Where
names are a sample, items are also counted by name, so that items of one name are
known. Sums of probabilities are integers in units of 2**-50, see `exact_totals`.
"""

import json
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.exact_totals import (
    UNITS,
    ExactTable,
    Tables,
    Totals,
    exact,
    exact_sums,
    numbered,
)
from transexplain.types.items import ItemOutcome

_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Situation(NamedTuple):
    """The properties that the counted items share; those that do not apply are empty."""

    groups: tuple[str, ...]  #: mentioned, sorted
    label: str
    slice: str
    cluster: str  #: "": every item is a cluster of its own
    predicted: str
    named: str = ""  #: group whose names the items are counted by; "": they are counted once
    name: str = ""  #: number of one of these names

    def to_name(self) -> str:
        """As one string."""
        return _ENCODER.encode(self if self.named else self[:5])

    @classmethod
    def from_name(cls, name: str) -> "Situation":
        """Return what `to_name` wrote; raises ValueError for anything else."""
        groups, *rest = json.loads(name)
        return cls(tuple(groups), *map(str, rest))


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


@dataclass(slots=True, eq=False)
class OutcomeTotals(Totals):
    """Of one shard, or of shards merged into it."""

    #: situation -> [items, measured, sum and sum of squares of every answer's probability in turn],
    #: of a name -> [items]
    _counted: ExactTable[Situation] = field(default_factory=ExactTable)
    #: by the answers that they are counted for
    _waiting: dict[tuple[Answer, ...], list[_Waiting]] = field(default_factory=dict)
    _saved: Tables = field(default_factory=Tables)  #: by the names of situations

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
            self._counted.add(key._replace(named=group, name=str(number)), [1])
        if chances is not None:
            parts = (part for chance in chances for part in (exact(chance), exact(chance * chance)))
            self._counted.add(key, [1, 1, *parts])
            return
        waiting = self._waiting.setdefault(tuple(answers), [])
        waiting.append((key, outcome.logits))
        if len(waiting) >= _COUNTED_TOGETHER:
            self._count()

    @property
    def _rows(self) -> ExactTable[Situation]:
        if self._waiting:
            self._count()
        if self._saved.tables:
            for name, row in self._saved.tables.pop(()).items():
                self._counted.add(Situation.from_name(name), row)
        return self._counted

    def _count(self) -> None:
        """Count the items that wait: many at once are counted faster."""
        for answers, items in self._waiting.items():
            # of a class that the logits lack nothing is known, nor of any without logits
            classes = max((place for answer in answers for place in answer.plus), default=-1)
            needed = max(classes, 0) if answers else math.inf
            known = [(key, logits) for key, logits in items if len(logits) > needed]
            for key, logits in items:
                if len(logits) <= needed:
                    self._counted.add(key, [1, 0, *[0, 0] * len(answers)])
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
            self._counted.add(key, row)

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, OutcomeTotals) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __iter__(self) -> Iterator[tuple[Situation, Tally]]:
        """Every situation with its items, sorted."""
        for key, entry in sorted(self._rows.items()):
            if not key.named:
                items, measured, *rest = entry
                sums = tuple(total / UNITS for total in rest[::2])
                squares = tuple(total / UNITS for total in rest[1::2])
                yield key, Tally(items, measured, sums, squares)

    def by_name(self) -> list[tuple[Situation, int]]:
        """Every situation of a name with how many items it is in, sorted."""
        return [(key, entry[0]) for key, entry in sorted(self._rows.items()) if key.named]

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def answers(self) -> set[int]:
        """Return how many answers were measured; more than one number where shards differ."""
        return {
            (len(entry) - 1) // 2 for key, entry in self._rows.items() if not key.named and entry[1]
        }

    def to_json(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """As JSON values, see `Tables`, by the names of situations."""
        tables = Tables()
        tables.of(()).update({key.to_name(): row for key, row in self._rows.items()})
        return tables.to_json()

    def add_json(self, content: Any) -> None:
        """Add what `to_json` wrote."""
        self._saved.add_json(content)
