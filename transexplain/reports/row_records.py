"""What a report says about classes, groups and single items: frozen records of plain values."""

from dataclasses import dataclass
from typing import Literal

from transexplain.types.words import Span

Grid = tuple[tuple[float, ...], ...]
Reason = Literal["wrong", "strong", "first"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One attribution of a gallery item: words of a text, or a picture's grid."""

    target: str
    class_name: str
    logit: float
    largest: float  #: largest |relevance| of a word or patch
    words: tuple[Span, ...]
    grid: Grid | None
    box: tuple[float, float, float, float] | None = None  #: part of the picture under the grid


@dataclass(frozen=True, kw_only=True, slots=True)
class GalleryItem:
    """One item to look at."""

    item_id: str
    reason: Reason  #: wrong with the widest margin | strongest relevance | first of the dataset
    label: str | None
    predicted: str
    truncated: bool
    text: str | None  #: beginning, where it is long
    hidden: int  #: characters after `text`
    unread_from: int | None  #: character from which the model read nothing
    source: str | None  #: picture, relative to `Audited.root`
    explanations: tuple[Explanation, ...]
    more: int  #: explanations of this item that are not shown
    groups: tuple[str, ...] = ()  #: mentioned in it, by name; empty, too, where no audit looked


@dataclass(frozen=True, kw_only=True, slots=True)
class Gallery:
    """Examples, and the colour scale that all of them share."""

    scale: float  #: 90th percentile over all attributions of the largest |relevance|
    items: tuple[GalleryItem, ...]


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
