"""Reads and encodes a part of a shard, in whatever process: the first stage of the path."""

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from transexplain.data.shard_reader import StoredPicture, read_shard
from transexplain.explaining.explain_request import Entry, Request, portions
from transexplain.models.loaded_model import Encoded, Encoder, InputsOfText, LoadedModel
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import NO_CAUTION, Caution
from transexplain.types.plans import AuditPlan, Modality, Shard
from transexplain.types.tokens import Tokens

#: items that are read by one call; the memory of what is read ahead is bounded by so many
PART: dict[Modality, int] = {"text": 256, "image": 16, "nodes": 32}
#: receives the row that is worked on; None: no single one is
InHand = Callable[[int | None], None]


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """What all parts of a run have in common; it travels without the model's weights."""

    plan: AuditPlan
    encoder: Encoder | None  #: None: items are not encoded, as measures encode their own
    by_reference: bool = False  #: pictures are left where they are once they are encoded

    @classmethod
    def of(cls, plan: AuditPlan, model: LoadedModel, *, by_reference: bool = False) -> "ReadingJob":
        """The job of a plan by its model."""
        encoder = None if plan.task == "evaluation" else model.encoder
        return cls(plan, encoder, by_reference)


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Consecutive rows of a shard."""

    shard: Shard  #: its `start` and `stop` are those of the part
    caution: Caution = NO_CAUTION


def parts_of(plan: AuditPlan, shard: Shard, caution: Caution = NO_CAUTION) -> Iterator[ReadPart]:
    """A shard in parts, in order."""
    size = PART[plan.dataset.modality]
    for start in range(shard.start, shard.stop, size):
        yield ReadPart(replace(shard, start=start, stop=min(start + size, shard.stop)), caution)


def read_part(job: ReadingJob, part: ReadPart, in_hand: InHand = lambda row: None) -> list[Entry]:
    """The entries of a part, encoded where the job has an encoder: one per row, in order.

    An item in quarantine is neither opened nor encoded; items that work alone are encoded alone.
    Raises as `read_shard`, and ConfigurationError as `LoadedModel.encode`.
    """
    plan, caution = job.plan, part.caution
    read = list(_read(plan, part, in_hand))
    if job.encoder is None:
        return [*read]
    request = Request.from_plan(plan)
    entries: list[Entry] = []
    # pictures are encoded one by one anyway, and each may be the one that ends the process
    size = 1 if plan.dataset.modality == "image" else len(read)
    for some in portions(read, max(1, size), caution.alone):
        single = some[0] if len(some) == 1 and isinstance(some[0], Item) else None
        in_hand(single.index if single is not None else None)
        entries += _encoded(job, job.encoder, request, some, caution)
    return entries


def _read(plan: AuditPlan, part: ReadPart, in_hand: InHand) -> Iterator[Item | ItemFailure]:
    entries = read_shard(plan.dataset, part.shard, part.caution.quarantined)
    for row in range(part.shard.start, part.shard.stop):
        in_hand(row)
        yield from (next(entries),)


def _encoded(
    job: ReadingJob,
    encoder: Encoder,
    request: Request,
    some: Sequence[Item | ItemFailure],
    caution: Caution,
) -> Iterator[Entry]:
    items = [item for item in some if isinstance(item, Item) and item.id not in caution.quarantined]
    encodings = iter(request.encode(encoder, items))
    accepted = {id(item) for item in items}
    for entry in some:
        yield _referring(job, next(encodings)) if id(entry) in accepted else entry


def _referring(job: ReadingJob, entry: Encoded | ItemFailure) -> Encoded | ItemFailure:
    """The same with a reference in the place of its picture, where those are left behind."""
    if not job.by_reference or not isinstance(entry, Encoded) or entry.item.source is None:
        return entry
    size = getattr(entry.item.content, "size", None)
    stored = StoredPicture(ref=job.plan.dataset, row=entry.item.index, size=size)
    return replace(entry, item=replace(entry.item, content=stored))


#: arrays of at least so many bytes leave the pickle
LARGE = 1 << 16
_COLUMNS = ("starts", "ends", "words", "special")
_ITEM = tuple(field.name for field in fields(Item))


def packed(entries: Sequence[Entry]) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A pickle of the entries, and the large arrays that it leaves out, in order."""
    texts = {place: entry for place, entry in enumerate(entries) if _is_plain(entry)}
    names = {frozenset(text.inputs) for text in texts.values()}
    if len(names) > 1:
        first = next(iter(names))
        texts = {place: text for place, text in texts.items() if first == frozenset(text.inputs)}
    rest = [(place, entry) for place, entry in enumerate(entries) if place not in texts]
    buffers: list[pickle.PickleBuffer] = []

    def left_out(buffer: pickle.PickleBuffer) -> bool:
        large = buffer.raw().nbytes >= LARGE
        if large:
            buffers.append(buffer)
        return not large  # true: it stays in the pickle

    file = io.BytesIO()
    _Pickler(file, buffer_callback=left_out).dump((_columns(texts), rest))
    return file.getvalue(), buffers


def unpacked(document: bytes | bytearray, buffers: Iterable[Any]) -> list[Entry]:
    """The entries again; `buffers` hold the large arrays, which they go on using."""
    texts, rest = pickle.loads(document, buffers=buffers)
    entries: dict[int, Entry] = dict(rest)
    if texts is not None:
        entries.update(_rows(texts))
    return [entries[place] for place in range(len(entries))]


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays: torch's own way is slow for small ones."""

    def __init__(self, file: io.BytesIO, buffer_callback: Callable[[Any], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def _is_plain(entry: Entry) -> TypeGuard[Encoded]:
    """Return whether an entry is a text that was encoded with others, in one pass."""
    return (
        isinstance(entry, Encoded)
        and isinstance(entry.features, Tokens)
        and not entry.windows
        and isinstance(entry.inputs, InputsOfText)
    )


def _columns(texts: dict[int, Encoded]) -> tuple[Any, ...] | None:
    """Plain texts that have the same inputs as columns, arrays flat over all positions.

    Places among the entries, items by `_ITEM`, whether each is cut, lengths, inputs, positions by
    `_COLUMNS`, pieces, and whether positions are spelled as the item's text spells them. None:
    there is no text.
    """
    if not texts:
        return None
    several = list(texts.values())
    features = [entry.features for entry in several if isinstance(entry.features, Tokens)]
    inputs = [entry.inputs for entry in several if isinstance(entry.inputs, InputsOfText)]
    return (
        list(texts),
        [[getattr(entry.item, name) for entry in several] for name in _ITEM],
        [entry.truncated for entry in several],
        [entry.length for entry in several],
        InputsOfText.joined(inputs),
        [np.concatenate([getattr(feature, name) for feature in features]) for name in _COLUMNS],
        [feature.pieces for feature in features],
        [feature.text is not None for feature in features],
    )


def _rows(columns: tuple[Any, ...]) -> Iterator[tuple[int, Encoded]]:
    """The place of each text, and the text."""
    places, items, truncated, lengths, inputs, positions, pieces, spelled = columns
    spans = pairwise(accumulate(lengths, initial=0))
    rows = zip(places, zip(*items, strict=True), spans, pieces, spelled, truncated, strict=True)
    for place, fields_of_item, (begin, stop), pieces_of_text, own, cut in rows:
        item = Item(**dict(zip(_ITEM, fields_of_item, strict=True)))
        columns_of_text = {
            name: column[begin:stop] for name, column in zip(_COLUMNS, positions, strict=True)
        }
        text = item.content if own else None
        yield (
            place,
            Encoded(
                item=item,
                inputs=InputsOfText(inputs, begin, stop),
                features=Tokens(**columns_of_text, pieces=pieces_of_text, text=text),
                length=stop - begin,
                truncated=cut,
            ),
        )
