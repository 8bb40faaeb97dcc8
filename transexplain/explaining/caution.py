"""How items are taken from a stream when earlier attempts at some of them ended badly."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from transexplain.models.base import Encoded
from transexplain.types import Item, ItemFailure

Entry = Item | ItemFailure | Encoded
Some = TypeVar("Some", bound=Entry)


def screened(
    entries: Iterable[Some], quarantined: Mapping[str, str]
) -> Iterator[Some | ItemFailure]:
    """The stream with a failure in the place of each item in quarantine (id -> cause)."""
    for entry in entries:
        item = _item_of(entry)
        if item is not None and item.id in quarantined:
            yield ItemFailure(
                item_id=item.id,
                index=item.index,
                kind="quarantined",
                message=f"item {item.id!r} was alone in hand when attempts ended, the last so: "
                f"{quarantined[item.id]}",
            )
        else:
            yield entry


def portions(entries: Iterable[Some], size: int, alone: Collection[str]) -> Iterator[list[Some]]:
    """The stream in lists of at most `size`, in order; the items `alone` are lists of their own.

    So these are encoded and computed by themselves, whatever is done with a list.
    """
    portion: list[Some] = []
    for entry in entries:
        item = _item_of(entry)
        by_itself = item is not None and item.id in alone
        if portion and (by_itself or len(portion) == size):
            yield portion
            portion = []
        portion.append(entry)
        if by_itself:
            yield portion
            portion = []
    if portion:
        yield portion


def _item_of(entry: Entry) -> Item | None:
    if isinstance(entry, Encoded):
        return entry.item
    return entry if isinstance(entry, Item) else None
