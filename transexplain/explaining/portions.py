"""Cuts a stream of items into those that are read, and sorted by length, together."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import Caution
from transexplain.types.plans import Modality

Entry = Item | ItemFailure | Encoded
Some = TypeVar("Some", bound=Entry)


def screened(entries: Iterable[Some], caution: Caution) -> Iterator[Some | ItemFailure]:
    """The stream with a failure in the place of each item in quarantine."""
    if not caution.quarantined:
        return iter(entries)
    return (_screened(entry, caution) for entry in entries)


def _screened(entry: Some, caution: Caution) -> Some | ItemFailure:
    item = _item_of(entry)
    if item is None or item.id not in caution.quarantined:
        return entry
    return ItemFailure(
        item_id=item.id,
        index=item.index,
        kind="quarantined",
        message=f"item {item.id!r} ran alone when attempts ended, the last one: "
        f"{caution.quarantined[item.id]}",
        traceback=caution.tracebacks.get(item.id, ""),
    )


def portions(entries: Iterable[Some], size: int, alone: Collection[str]) -> Iterator[list[Some]]:
    """The stream in lists of at most `size`, in order; the items `alone` are lists of their own.

    So these are encoded and computed by themselves, whatever is done with a list.
    """
    stream = iter(entries)
    while not alone and (some := list(islice(stream, size))):
        yield some
    portion: list[Some] = []
    for entry in stream:
        item = _item_of(entry)
        by_itself = item is not None and item.id in alone
        if portion and by_itself:
            yield portion
            portion = []
        portion.append(entry)
        if by_itself or len(portion) == size:  # at once: the next entry may be long in coming
            yield portion
            portion = []
    if portion:
        yield portion


def _item_of(entry: Entry) -> Item | None:
    if isinstance(entry, Encoded):
        return entry.item
    return entry if isinstance(entry, Item) else None


#: items that are read and sorted by length together; pictures are large and all of one length
READ_TOGETHER: Mapping[Modality, int] = {"text": 256, "image": 32, "nodes": 32}
#: the same on a card, whose batches are larger
READ_FOR_A_CARD: Mapping[Modality, int] = {"text": 4096, "image": 256, "nodes": 32}


def read_together(model: LoadedModel) -> int:
    """How many items are read and sorted by length before the first of them is explained."""
    on_a_card = model.ref.device.startswith("cuda")
    return (READ_FOR_A_CARD if on_a_card else READ_TOGETHER)[model.modality]
