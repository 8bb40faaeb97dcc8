"""Sums of relevance by place in the text, which merge exactly."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from transexplain.bias.exact_totals import UNITS, ExactTable

PARTS = 20  #: equal stretches of every text

PositionKey = tuple[str, str]  #: target of the plan, class name
_WIDTH = 4  # numbers of a part: texts, positions, exact sum, exact sum of sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class PartTotal:
    """One of the `PARTS` stretches over all texts of a target and class."""

    texts: int  #: with a position here
    positions: int
    relevance: float  #: sum over positions, in the method's unit
    magnitude: float  #: sum of |relevance|


@dataclass(slots=True)
class PositionTotals:
    """The sums of every target and class, part by part."""

    #: key -> the numbers of all parts, one part after the other
    _sums: ExactTable[PositionKey] = field(default_factory=ExactTable)

    def add(self, key: PositionKey, amounts: Sequence[int]) -> None:
        """Count one text by the exact relevance of its positions, special ones left out.

        Position i of n belongs to the part that its middle lies in, floor(PARTS (i + 1/2) / n);
        a text of fewer positions than parts leaves some parts empty.
        """
        row = [0] * (_WIDTH * PARTS)
        for place, amount in enumerate(amounts):
            first = _WIDTH * (PARTS * (2 * place + 1) // (2 * len(amounts)))
            row[first] = 1
            row[first + 1] += 1
            row[first + 2] += amount
            row[first + 3] += abs(amount)
        self._sums.add(key, row)

    def merge(self, other: "PositionTotals") -> None:
        """Add the sums of `other` to these."""
        self._sums.merge(other._sums)

    def parts(self, target: str, class_name: str) -> tuple[PartTotal, ...]:
        """From the beginning of a text to its end; empty where no text was counted."""
        return tuple(
            PartTotal(
                texts=texts,
                positions=positions,
                relevance=relevance / UNITS,
                magnitude=magnitude / UNITS,
            )
            for texts, positions, relevance, magnitude in _parts(
                self._sums.get((target, class_name), [])
            )
        )

    def to_json(self) -> list[dict[str, Any]]:
        """The sums as JSON values; equal sums give equal JSON."""
        return [
            {"target": target, "class_name": class_name, "parts": _parts(row)}
            for (target, class_name), row in sorted(self._sums.items())
        ]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "PositionTotals":
        """Read what `to_json` wrote."""
        return cls(
            ExactTable(
                {
                    (one["target"], one["class_name"]): list(chain.from_iterable(one["parts"]))
                    for one in content
                }
            )
        )


def _parts(row: Sequence[int]) -> list[Sequence[int]]:
    return [row[first : first + _WIDTH] for first in range(0, len(row), _WIDTH)]
