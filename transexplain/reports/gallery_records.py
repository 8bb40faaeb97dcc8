"""Items to look at: frozen records of plain values."""

from dataclasses import dataclass
from typing import Literal

from transexplain.spans import Span

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
