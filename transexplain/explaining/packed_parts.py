"""Packs what was read and encoded for the way to another process: columns instead of objects.

Texts become flat arrays over the positions of all of them, cut up again by views. Large arrays
(pixels) leave the pickle, so that they need not be copied on their way. Everything else is pickled
as it is, tensors as the arrays they hold.
"""

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.explaining.reading import Entry
from transexplain.models.loaded_model import Encoded, InputsOfText
from transexplain.types.items import Item
from transexplain.types.tokens import Tokens

#: arrays of at least so many bytes leave the pickle
LARGE = 1 << 16
_COLUMNS = ("starts", "ends", "words", "special")
_ITEM = tuple(one.name for one in fields(Item))


@dataclass(frozen=True, slots=True)
class _Texts:
    """Encoded texts as columns; arrays are flat over all positions."""

    places: list[int]  #: among the entries of the part
    items: list[list[Any]]  #: by `_ITEM`
    truncated: list[bool]
    lengths: list[int]
    inputs: dict[str, NDArray[np.int64]]
    positions: dict[str, NDArray[Any]]  #: by `_COLUMNS`
    pieces: list[Sequence[str]]
    own: list[bool]  #: whether positions are spelled as the item's text spells them


def packed(entries: Sequence[Entry]) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A pickle of the entries, and the large arrays that it leaves out, in order."""
    texts = {place: one for place, one in enumerate(entries) if _is_plain(one)}
    names = {frozenset(one.inputs) for one in texts.values()}
    if len(names) > 1:
        first = next(iter(names))
        texts = {place: one for place, one in texts.items() if first == frozenset(one.inputs)}
    rest = [(place, one) for place, one in enumerate(entries) if place not in texts]
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
    found: dict[int, Entry] = dict(rest)
    if texts is not None:
        found.update(zip(texts.places, _rows(texts), strict=True))
    return [found[place] for place in range(len(found))]


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays: torch's own way is slow for small ones."""

    def __init__(self, file: io.BytesIO, buffer_callback: Callable[[Any], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def _is_plain(one: Entry) -> TypeGuard[Encoded]:
    """Whether an entry is a text that was encoded with others, in one pass."""
    return (
        isinstance(one, Encoded)
        and isinstance(one.features, Tokens)
        and not one.windows
        and isinstance(one.inputs, InputsOfText)
    )


def _columns(texts: dict[int, Encoded]) -> _Texts | None:
    """The columns of plain texts that have the same inputs; None: there is no text."""
    if not texts:
        return None
    several = list(texts.values())
    features = [one.features for one in several if isinstance(one.features, Tokens)]
    return _Texts(
        places=list(texts),
        items=[[getattr(one.item, name) for one in several] for name in _ITEM],
        truncated=[one.truncated for one in several],
        lengths=[one.length for one in several],
        inputs=InputsOfText.joined(
            [one.inputs for one in several if isinstance(one.inputs, InputsOfText)]
        ),
        positions={
            name: np.concatenate([getattr(one, name) for one in features]) for name in _COLUMNS
        },
        pieces=[one.pieces for one in features],
        own=[one.text is not None for one in features],
    )


def _rows(texts: _Texts) -> Iterable[Encoded]:
    starts, ends, words, special = (texts.positions[name] for name in _COLUMNS)
    spans = pairwise(accumulate(texts.lengths, initial=0))
    items = (Item(**dict(zip(_ITEM, row, strict=True))) for row in zip(*texts.items, strict=True))
    rows = zip(items, spans, texts.pieces, texts.own, texts.truncated, strict=True)
    for item, (begin, stop), pieces, own, truncated in rows:
        features = Tokens(
            starts=starts[begin:stop],
            ends=ends[begin:stop],
            words=words[begin:stop],
            special=special[begin:stop],
            pieces=pieces,
            text=item.content if own else None,
        )
        yield Encoded(
            item=item,
            inputs=InputsOfText(texts.inputs, begin, stop),
            features=features,
            length=stop - begin,
            truncated=truncated,
        )
