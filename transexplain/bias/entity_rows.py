"""One entity's totals in plain numbers, as the statistics read them."""

from collections.abc import Sequence
from dataclasses import dataclass

from transexplain.bias.exact_totals import UNITS


@dataclass(frozen=True, kw_only=True, slots=True)
class EntityRow:
    """The mentions of one entity of a group, over some strata."""

    group: str
    entity: str
    documents: int
    mentions: int
    mean: float  #: relevance per mention, in the unit
    squares: float  #: sum over mentions of squared relevance
    share: float  #: mean over mentions of relevance / sum of |R| of the item
    positive: int  #: mentions with relevance above 0
    by_document: "DocumentSums"  #: of the entity with itself
    rank: float | None = None  #: mean over mentions, see `ranks_in_item`; None: it was not measured


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSums:
    """Sums over documents that the two-way interval needs, of two groups or one with itself.

    With S the relevance and n the mentions in a document, and S', n' those of the other: sums of
    S S', S n', n S' and n n' over documents.
    """

    relevance: float
    left: float  #: S n'
    right: float  #: n S'
    mentions: int


def entity_row(key: tuple[str, str], entry: Sequence[int]) -> EntityRow:
    """The row of exact totals, in the order of `entity_totals`."""
    documents, mentions, amount, squares, share, positive, ss, sn, nn, rank, ranked = entry
    return EntityRow(
        group=key[0],
        entity=key[1],
        documents=documents,
        mentions=mentions,
        mean=amount / (UNITS * mentions),
        squares=squares / UNITS,
        share=share / (UNITS * mentions),
        positive=positive,
        by_document=document_sums(ss, sn, sn, nn),
        rank=rank / (UNITS * ranked) if ranked else None,
    )


def document_sums(relevance: int, left: int, right: int, mentions: int) -> DocumentSums:
    """Exact totals as plain numbers."""
    return DocumentSums(
        relevance=relevance / UNITS / UNITS,
        left=left / UNITS,
        right=right / UNITS,
        mentions=mentions,
    )
