"""What an audit says of its own method's faithfulness: frozen records of plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FaithfulnessRow:
    """What one metric says of the audit's method on a sample, beside random relevance."""

    target: str
    metric: str
    title: str
    unit: str
    better: str  #: higher | lower | neither
    of_content: bool  #: says something of where the relevance lies
    items: int  #: measured on
    missing: int  #: of the sample, could not be measured
    mean: float | None
    interval: tuple[float, float] | None  #: 95 %
    random: float | None  #: mean of random relevance
    difference: float | None  #: the method's minus random's, on common items
    difference_interval: tuple[float, float] | None  #: 95 %
    common: int  #: items of the difference
    p: float | None  #: of the difference, adjusted over the rows
    beats: bool | None  #: random, beyond chance; None: it cannot be said, or is no question


@dataclass(frozen=True, kw_only=True, slots=True)
class Faithfulness:
    """Whether the audit's method tells what this model goes by, measured on a sample."""

    method: str  #: label in the evaluation
    items: int  #: of the sample that were measured
    rows: tuple[FaithfulnessRow, ...]
