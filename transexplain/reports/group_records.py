"""What a report says about groups besides their table: frozen records of plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """How often terms of a group were left out because they are ordinary words, too."""

    group: str
    count: int
    entities: tuple[tuple[str, int], ...]  #: the most frequent ones, with their counts


@dataclass(frozen=True, kw_only=True, slots=True)
class RareGroup:
    """A meeting of groups that is mentioned too seldom to be compared."""

    group: str
    mentions: int
    items: int
    share: float  #: of the mentions of its family


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityScore:
    """One metric of faithfulness over the sampled items that mention a group."""

    target: str
    metric: str
    title: str
    items: int  #: measured on
    mean: float | None  #: None: too few items


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupQuality:
    """How good the explanations are of the items that mention a group, or of all items."""

    group: str
    items: int  #: with a ledger
    gap: float | None  #: mean |gap| / sum of |terms|; None: no ledgers, or too few items
    scores: tuple[QualityScore, ...]  #: of the metrics that the audit's sample was measured by
