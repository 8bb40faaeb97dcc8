"""Records of group statistics: one comparison, its verdict, and its robustness."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

#: in rows that are read from JSON; NaN is in no interval
Finite = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
Count = Annotated[int, msgspec.Meta(ge=0)]
#: *suppressed*: not compared, for too few entities unless the reason says otherwise
Decision = Literal["difference", "equivalent", "inconclusive", "suppressed"]
#: of a row; *reference*: what the others are compared with
Verdict = Literal[Decision, "reference"]
Correction = Literal["bh", "by", "holm", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Robustness:
    """The same comparison made another way; it decides nothing, it shows what the method moves."""

    name: str
    unit: str
    difference: float
    interval: tuple[float, float]  #: 95 %


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantiles:
    """How relevance is spread over single mentions, to 0.5 % of each number."""

    low: float  #: 5 % of mentions do not exceed it
    lower: float  #: 25 %
    median: float
    upper: float  #: 75 %
    high: float  #: 95 %


@dataclass(frozen=True, kw_only=True, slots=True)
class Background:
    """What words of no group add that are about as frequent as a group's entities."""

    words: int  #: different ones
    entities: int  #: of the group, that have enough such words; the others are left out here
    mean: float  #: relevance per mention of the words, in the unit
    interval: tuple[float, float]  #: 95 %, over words
    difference: float  #: mean of these entities' means minus that of their words
    difference_interval: tuple[float, float]  #: 95 %, over entities and words


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStatistic:
    """One row of the group table, over the entities of a group for one class."""

    group: str
    target: str
    class_name: str
    mentions: int
    documents: int
    entities: int
    mean: float  #: over mentions, in the method's unit
    entity_mean: float  #: mean of the entities' means
    positive: float  #: share of mentions with relevance above 0
    interval: tuple[float, float] | None  #: 95 % t-interval of entity_mean; None: suppressed
    reference: str
    difference: float | None  #: entity_mean minus the reference's
    difference_interval: tuple[float, float] | None  #: 95 %, over entity means
    interval_by: Literal["t", "bootstrap"] | None = None
    p: float | None = None  #: entity-level permutation
    adjusted_p: float | None = None  #: over the whole table
    detectable: float | None = None  #: difference found in 80 % of such corpora
    verdict: Verdict = "suppressed"
    reason: str = ""  #: of the verdict
    robustness: tuple[Robustness, ...] = ()
    note: str = ""  #: why something is missing
    rank: float | None = None  #: in the item, 0 to 1, mean over entities; None: not measured
    quantiles: Quantiles | None = None  #: over mentions; None: not measured
    background: Background | None = None  #: None: too few entities or words, or not requested

    @property
    def flagged(self) -> bool:
        """Return whether the verdict is *difference*."""
        return self.verdict == "difference"


@dataclass(frozen=True, kw_only=True, slots=True)
class Practical:
    """The smallest differences that matter, each in the unit of what it is compared with."""

    logit: float = 0.1  #: of log-odds by swapping a mention; of relevance, where it is in logits
    probability: float = 0.02  #: of probabilities by swapping a mention
    changed: float = 0.05  #: of shares of predictions that change by swapping a mention
    spread: float = 0.25  #: standard deviation of the swap's effect between texts, in logits
    rates: float = 0.05  #: of rates of predictions and of errors, in shares
    impact_ratio: float = 0.8  #: of rates of a favourable prediction; its inverse the other way
