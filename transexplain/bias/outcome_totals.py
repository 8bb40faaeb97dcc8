"""Totals of the model's answers by the groups that items mention; they merge exactly.

Items are counted by the *set* of groups that they mention, so that any comparison (a group against
one other, against all others of its family, two groups in one item) comes out of one
table. Sums of probabilities are integers in units of 2**-50, see `exact_totals`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transexplain.bias.answers import Answer, probability
from transexplain.bias.exact_totals import UNITS, Counts, ExactTable, exact
from transexplain.types import ItemOutcome


class Situation(NamedTuple):
    """What the counted items have in common; parts that do not apply are empty."""

    groups: tuple[str, ...]  #: mentioned, sorted
    label: str
    slice: str
    cluster: str  #: "": every item is a cluster of its own
    predicted: str


class Tally(NamedTuple):
    """The items of one situation."""

    items: int
    measured: int  #: of these, items whose probabilities are known
    probabilities: tuple[float, ...]  #: sum over these, by answer
    squares: tuple[float, ...]  #: sum of squares, by answer


@dataclass(slots=True)
class OutcomeTotals:
    """Of one shard, or of shards merged into it."""

    #: situation -> [items, measured, sum and sum of squares of every answer's probability in turn]
    _rows: ExactTable[Situation] = field(default_factory=ExactTable)

    def add(
        self,
        outcome: ItemOutcome,
        groups: Collection[str],
        *,
        answers: Sequence[Answer],
        slice_: str = "",
        cluster: str = "",
    ) -> None:
        """Count one explained item, whoever it mentions."""
        key = Situation(
            tuple(sorted(groups)), outcome.label or "", slice_, cluster, outcome.predicted
        )
        entry = [1, 0, *[0, 0] * len(answers)]
        if answers and len(outcome.logits) > max(max(one.plus) for one in answers):
            chances = [float(probability(one.log_odds(outcome.logits))) for one in answers]
            entry[1:] = [1, *(part for one in chances for part in (exact(one), exact(one * one)))]
        self._rows.add(key, entry)

    def merge(self, other: "OutcomeTotals") -> "OutcomeTotals":
        """Add the totals of `other` to these, and return these."""
        self._rows.merge(other._rows)
        return self

    def __iter__(self) -> Iterator[tuple[Situation, Tally]]:
        """Every situation with its items, sorted."""
        for key, entry in sorted(self._rows.items()):
            items, measured, *rest = entry
            sums = tuple(one / UNITS for one in rest[::2])
            squares = tuple(one / UNITS for one in rest[1::2])
            yield key, Tally(items, measured, sums, squares)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def to_json(self) -> list[list[Any]]:
        """As JSON values; equal totals give equal JSON."""
        return [[list(key.groups), *key[1:], entry] for key, entry in sorted(self._rows.items())]

    @classmethod
    def from_json(cls, content: Iterable[Sequence[Any]]) -> "OutcomeTotals":
        """Read what `to_json` wrote."""
        return cls(
            ExactTable(
                {
                    Situation(tuple(groups), *map(str, rest)): list(entry)
                    for groups, *rest, entry in content
                }
            )
        )

    @classmethod
    def of_groups(
        cls,
        counts: Mapping[str, Mapping[tuple[str | None, str], int]],
        everything: Mapping[Any, int],
    ) -> "OutcomeTotals":
        """From counts by group and (label, prediction), as versions before 5 kept them.

        An item that mentions two groups counts once in each; `everything` are all items, and
        those that no group accounts for count as mentioning nobody.
        """
        found = cls()
        left: Counts[Any] = Counts(everything)
        for group, answers in counts.items():
            for (label, predicted), count in answers.items():
                key = Situation((group,), label or "", "", "", predicted)
                found._rows[key] = [count, 0]
                left.add((label, predicted), -count)
        for (label, predicted), count in left.items():
            if count > 0:
                found._rows[Situation((), label or "", "", "", predicted)] = [count, 0]
        return found
