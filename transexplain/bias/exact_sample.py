"""The exact sample of a mixed audit: items that a cheap and an exact method both explained.

Rows are kept and no sums, because a mention's weight (one over all mentions of its entity) is only
known when the run is over. Rows are sorted, so that shards merge in any order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How far the two methods agree on one item, for one explained class."""

    item_id: str
    target: str
    class_name: str
    correlation: float | None  #: Spearman's over its own positions; None: too few values differ
    error: float | None  #: L2 norm of cheap - exact over that of exact; None: exact is 0
    cheap: float  #: sum over its own positions, in logits
    exact: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedMentions:
    """The mentions of one entity of a group in one item, by both methods."""

    item_id: str
    target: str
    class_name: str  #: explained
    predicted: str
    label: str  #: "": it has none
    slice: str
    group: str
    entity: str
    mentions: int
    cheap: float  #: sum over these mentions, in logits
    exact: float


def _by_item(one: Agreement) -> tuple[object, ...]:
    last = str(one.correlation), str(one.error)  # either may be None, which has no order
    return one.target, one.class_name, one.item_id, one.cheap, one.exact, *last


_BY_MENTION = attrgetter("target", "class_name", "item_id", "group", "entity", "cheap", "exact")


@dataclass(slots=True)
class ExactSample:
    """The exact sample of one shard, or of shards merged into it; lists are in any order."""

    items: int = 0  #: explained by both
    failed: int = 0  #: sampled and explained by the cheap method, but not by the exact one
    agreements: list[Agreement] = field(default_factory=list)
    mentions: list[PairedMentions] = field(default_factory=list)

    def merge(self, other: "ExactSample") -> "ExactSample":
        """Add what `other` holds to this, and return this."""
        self.items += other.items
        self.failed += other.failed
        self.agreements += other.agreements
        self.mentions += other.mentions
        return self

    def by_class(self) -> dict[tuple[str, str], list[PairedMentions]]:
        """The mentions of each (target, class), sorted by these and by item."""
        found: dict[tuple[str, str], list[PairedMentions]] = {}
        for one in sorted(self.mentions, key=_BY_MENTION):
            found.setdefault((one.target, one.class_name), []).append(one)
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal samples give equal JSON."""
        return {
            "items": self.items,
            "failed": self.failed,
            "agreements": _rows(self.agreements, _by_item),
            "mentions": _rows(self.mentions, _BY_MENTION),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ExactSample":
        """Read what `to_json` wrote."""
        return cls(
            items=content["items"],
            failed=content["failed"],
            agreements=[Agreement(**one) for one in content["agreements"]],
            mentions=[PairedMentions(**one) for one in content["mentions"]],
        )


def _rows(rows: Iterable[Any], key: Callable[[Any], Any]) -> list[dict[str, Any]]:
    return [asdict(one) for one in sorted(rows, key=key)]
