"""What a report says about classes: frozen records of plain values."""

from dataclasses import dataclass

from transexplain.reports.gallery_records import Grid


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


@dataclass(frozen=True, kw_only=True, slots=True)
class WordRow:
    """One word over all items of a class."""

    word: str  #: lower case
    mean: float  #: relevance per mention
    total: float
    mentions: int
    documents: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassView:
    """What the model looks at when one class is explained."""

    target: str
    class_name: str
    items: int
    mean_logit: float
    minimum: int  #: documents that a word must be in to be listed
    raising_by_mean: tuple[WordRow, ...]
    raising_by_total: tuple[WordRow, ...]
    lowering_by_mean: tuple[WordRow, ...]
    lowering_by_total: tuple[WordRow, ...]
    heatmap: Grid | None  #: mean relevance, rows x cols; images only
    rare: tuple[RareWord, ...] = ()  #: top words by mean relevance x rarity; texts only
    rare_overlap: tuple[Overlap, ...] = ()  #: with other classes, the largest first; none of 0
    rare_shared: float | None = None  #: share of `rare` that any other has; None: none to compare
    #: words of the largest |mean x rarity|, raising and lowering ones; texts only
    weighted: tuple[RareWord, ...] = ()
    #: from the beginning of a text to its end; empty: a picture, or not measured (an older run)
    positions: tuple[PositionPart, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Confusion:
    """Items by label and predicted class; only explained ones."""

    labels: tuple[str, ...]  #: rows; "" stands for items without a label
    predicted: tuple[str, ...]  #: columns
    counts: tuple[tuple[int | None, ...], ...]  #: None: fewer than `Summary.fewest`, but not 0
    omitted: int  #: items in rows or columns left out because there are too many classes
