"""What is particular to a class: frozen records of plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RareWord:
    """One word of a class, weighted by how rare it is."""

    word: str  #: lower case
    score: float  #: mean x rarity
    mean: float  #: relevance per mention, in the unit
    rarity: float  #: inverse document frequency over all classes: ln(N / documents)
    mentions: int  #: in explanations of this class
    documents: int  #: of this class
    also: tuple[str, ...] = ()  #: other classes that have it among their top words


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """What a class shares with one other."""

    target: str
    class_name: str
    share: float  #: of the class's top words that are top words of this one


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionPart:
    """One of the equal stretches that every text of a class is cut into, over all texts."""

    mean: float | None  #: relevance per position, in the unit; None: no text has one here
    mean_size: float | None  #: |relevance| per position
    positions: int  #: averaged over
    texts: int  #: that have a position here
