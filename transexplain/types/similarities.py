"""Explanations of how alike a picture and a text are."""

from dataclasses import dataclass

from transexplain.types.drawing import Drawable
from transexplain.types.items import Attribution, Ledger


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class SimilarityAttribution(Drawable):
    """The relevance of every patch of a picture and every token of a text for their similarity.

    `picture` and `text` are attributions of one side each, to be drawn like any other; their
    `logit` is what is explained of the pair. Where there is a ledger, both sides and its other
    entries sum to that logit.
    """

    item_id: str
    method: str
    target: str  #: `similarity`, or `cosine`
    logit: float  #: what is explained: the similarity, or the cosine
    similarity: float  #: scale * cosine + bias, as the model itself computes it
    cosine: float  #: of the two vectors, -1 to 1
    picture: Attribution
    text: Attribution
    ledger: Ledger | None  #: of both sides together; None for methods without conservation

    @property
    def unit(self) -> str:
        """The unit of the relevance of both sides; see `Attribution.unit`."""
        return self.picture.unit

    @property
    def at(self) -> str:
        """The input layers at which relevance was measured, of the picture and of the text."""
        return " and ".join(dict.fromkeys((self.picture.at, self.text.at)))

    @property
    def class_name(self) -> str:
        """Return what is explained, where attributions of classifiers name a class."""
        return self.target

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of either side has to know besides its numbers."""
        return tuple(dict.fromkeys((*self.picture.notes, *self.text.notes)))

    def __repr__(self) -> str:
        return (
            f"<SimilarityAttribution item={self.item_id!r} method={self.method} of "
            f"{self.target}={self.logit:.4g}, {self.picture.relevance.size} patches and "
            f"{len(self.text.features)} tokens>"  # type: ignore[arg-type]
        )
