"""Sums of relevance by place in the text, in a form that merges exactly."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transexplain.bias.exact import UNITS, total

PARTS = 20  #: equal stretches of every text

PositionKey = tuple[str, str]  #: target as asked, class name
_Part = list[int]  #: texts, positions, exact sum, exact sum of sizes


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

    _sums: dict[PositionKey, list[_Part]] = field(default_factory=dict)

    def add(self, key: PositionKey, amounts: Sequence[int]) -> None:
        """Count one text by the exact relevance of its positions, special ones left out.

        Position i of n belongs to the part that its middle lies in, floor(PARTS (i + 1/2) / n);
        a text of fewer positions than parts leaves some parts empty.
        """
        mine = self._sums.setdefault(key, [[0, 0, 0, 0] for _ in range(PARTS)])
        seen: set[int] = set()
        for place, amount in enumerate(amounts):
            part = PARTS * (2 * place + 1) // (2 * len(amounts))
            mine[part] = total(mine[part], [int(part not in seen), 1, amount, abs(amount)])
            seen.add(part)

    def merge(self, other: "PositionTotals") -> None:
        """Add the sums of `other` to these."""
        for key, parts in other._sums.items():
            mine = self._sums.get(key, [[0, 0, 0, 0] for _ in parts])
            self._sums[key] = [total(one, more) for one, more in zip(mine, parts, strict=True)]

    def parts(self, target: str, class_name: str) -> tuple[PartTotal, ...]:
        """From the beginning of a text to its end; empty where no text was counted."""
        return tuple(
            PartTotal(
                texts=texts,
                positions=positions,
                relevance=relevance / UNITS,
                magnitude=magnitude / UNITS,
            )
            for texts, positions, relevance, magnitude in self._sums.get((target, class_name), ())
        )

    def to_json(self) -> list[dict[str, Any]]:
        """The sums as JSON values; equal sums give equal JSON."""
        return [
            {"target": key[0], "class_name": key[1], "parts": self._sums[key]}
            for key in sorted(self._sums)
        ]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> "PositionTotals":
        """Read what `to_json` wrote."""
        return cls(
            {
                (one["target"], one["class_name"]): [list(part) for part in one["parts"]]
                for one in content
            }
        )
