"""Encodes texts as model inputs, and collects them in batches."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.hub import panics_as_errors
from transexplain.models.loaded_model import (
    Batch,
    Encoded,
    InputsOfText,
    LongText,
    Padded,
    Windows,
    failure,
    on_device,
)
from transexplain.models.text_length import check_length, growth_of, in_windows
from transexplain.types.items import Item, ItemFailure
from transexplain.types.pairs import check_pair
from transexplain.types.tokens import NO_WORD, FewSpellings, Token, Tokens


def tokens_of(
    texts: Sequence[str], encodings: Sequence[Any], seconds: Sequence[int] = ()
) -> list[Tokens]:
    """The positions of every text by its `tokenizers.Encoding`, (T,) each.

    Of pairs `seconds` are the characters that the second texts begin with.

    Offsets count characters (code points) of the original text, white space at either end of a
    token left out. A word ends where the tokenizer says so and at white space, so that
    tokenizers which never cut a text into words still give words.
    """
    if not texts:
        return []
    rows = np.concatenate([[0], np.cumsum([len(encoding) for encoding in encodings])])
    first = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    special = flat(encoding.special_tokens_mask for encoding in encodings).astype(bool)
    spans = flat(chain.from_iterable(encoding.offsets) for encoding in encodings).reshape(-1, 2)
    named = flat(
        [NO_WORD if word is None else word for word in encoding.word_ids] for encoding in encodings
    )
    row = np.repeat(np.arange(len(texts)), np.diff(rows))
    if len(seconds):
        second = flat([number == 1 for number in encoding.sequence_ids] for encoding in encodings)
        spans += (second * np.asarray(seconds)[row])[:, None]
    # (N,) of all characters, one text behind the other
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.uint32)
    known = _white_space()
    blank = known[np.minimum(codes, len(known) - 1)]
    starts, ends = _trimmed(blank, spans + first[row, None])
    starts[special] = ends[special] = first[row[special]]
    words = _words(blank, starts, ends, named, np.flatnonzero(~special), row, first)
    starts, ends = ((places - first[row]).astype(np.int32) for places in (starts, ends))
    numbers = words.astype(np.int32)
    apart = _spelled_apart(encodings, special, ends <= starts, rows)  # special ones are empty
    bounds = pairwise(rows.tolist())
    return [
        Tokens(
            starts=starts[begin:end],
            ends=ends[begin:end],
            words=numbers[begin:end],
            special=special[begin:end],
            pieces=FewSpellings(end - begin, given),
            text=text,
        )
        for text, given, (begin, end) in zip(texts, apart, bounds, strict=True)
    ]


def _spelled_apart(
    encodings: Sequence[Any],
    special: NDArray[np.bool_],
    apart: NDArray[np.bool_],
    rows: NDArray[np.int64],
) -> list[dict[int, str]]:
    """For each text: position -> how the tokenizer spells it, where it is `apart` (P,) of the text.

    The spellings of a text are made only where they are needed: those of special positions are
    known by their ids once they were seen.
    """
    words: list[dict[int, str]] = [{} for _ in encodings]
    places = np.flatnonzero(apart)
    of = np.searchsorted(rows, places, side="right") - 1
    columns = (of.tolist(), (places - rows[of]).tolist(), special[places].tolist())
    known: dict[int, str] = {}
    latest, ids = -1, []
    for text, place, framing in zip(*columns, strict=True):
        if text != latest:
            latest, ids = text, encodings[text].ids
        spelling = known.get(ids[place]) if framing else None
        if spelling is None:
            spelling = encodings[text].tokens[place]
            if framing:
                known[ids[place]] = spelling
        words[text][place] = spelling
    return words


def flat(rows: Iterable[Iterable[int]]) -> NDArray[np.int64]:
    """The numbers of all rows, one row after the other."""
    return np.fromiter(chain.from_iterable(rows), dtype=np.int64)


@cache
def _white_space() -> NDArray[np.bool_]:
    """Whether each code point is white space, up to the last that is, and one for all others."""
    return np.array([chr(code).isspace() for code in range(0x3002)])


def _trimmed(
    blank: NDArray[np.bool_], spans: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Spans (N, 2) without white space at their ends; those of nothing else stay as they are."""
    places = np.arange(len(blank) + 1)
    seen = np.append(~blank, True)
    after = np.minimum.accumulate(np.where(seen, places, len(blank))[::-1])[::-1]
    before = np.maximum.accumulate(np.where(seen, places, -1))
    starts, ends = spans.T
    begin, last = after[starts], before[np.maximum(ends - 1, 0)]
    visible = (begin < ends) & (starts < ends)
    return np.where(visible, begin, starts), np.where(visible, last + 1, ends)


def _words(
    blank: NDArray[np.bool_],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    named: NDArray[np.int64],
    plain: NDArray[np.int64],
    row: NDArray[np.int64],
    first: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(N,) the number, within its text, of every position's word; `plain` are those with one."""
    words = np.full(len(starts), NO_WORD)
    if not len(plain):
        return words
    of = row[plain]
    opens = np.append(True, of[1:] != of[:-1])
    blanks = np.append(0, np.cumsum(blank))
    last_end = np.append(0, ends[plain][:-1])
    # what stands between this position and the one before; positions may overlap
    between = blanks[starts[plain]] - blanks[np.minimum(last_end, starts[plain])]
    begins = opens | np.append(True, named[plain][1:] != named[plain][:-1]) | (between > 0)
    count = np.cumsum(begins)
    words[plain] = count - np.maximum.accumulate(np.where(opens, count, 0))
    return words


MASK = "attention_mask"


def encode_given(
    item: Item, tokenizer: Any | None, room: int | None, vocabulary: int | None
) -> Encoded:
    """The item whose content is `{"input_ids": (T,), "attention_mask": (T,), ...}`.

    A leading batch dimension of 1 is taken off and padding on the right is cut. Raises ItemError
    `bad-input` or `too-long`.
    """
    inputs = {str(name): _row(str(name), values) for name, values in item.content.items()}
    if "input_ids" not in inputs:
        raise ItemError(
            "bad-input", f"encoded inputs need 'input_ids'; given: {', '.join(inputs) or 'nothing'}"
        )
    inputs = _unpadded(inputs)
    length = inputs["input_ids"].shape[0]
    ids = inputs["input_ids"]
    if room is not None and ids.shape[0] > room:
        raise ItemError(
            "too-long",
            f"{ids.shape[0]} encoded positions where at most {room} are taken; cut them, or use "
            'long_text="window" with a model that has a tokenizer',
        )
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or (vocabulary is not None and high >= vocabulary):
        raise ItemError(
            "bad-input",
            f"input_ids hold {low if low < 0 else high}; the model knows 0 to "
            f"{'...' if vocabulary is None else vocabulary - 1}",
        )
    return Encoded(
        item=item,
        inputs=inputs,
        features=_tokens(inputs["input_ids"], tokenizer),
        length=length,
        truncated=False,
    )


def _row(name: str, values: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ItemError("bad-input", f"{name} is not an array of numbers: {error}") from error
    if tensor.ndim == 2 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.ndim != 1 or tensor.is_floating_point() or tensor.is_complex():
        raise ItemError(
            "bad-input",
            f"{name} must hold integers of shape (T,), not {tensor.dtype} of {tuple(tensor.shape)}",
        )
    return tensor.long()


def _unpadded(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ids = inputs["input_ids"]
    for name, values in inputs.items():
        if values.shape != ids.shape:
            raise ItemError(
                "bad-input", f"{name} has {values.shape[0]} positions, input_ids {ids.shape[0]}"
            )
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    length = int(mask.ne(0).sum())
    if length == 0:
        raise ItemError("empty-text", "no position is attended to")
    if not bool(mask[:length].ne(0).all()):
        raise ItemError(
            "bad-input", "attention_mask hides positions before the last; pad on the right only"
        )
    return {name: values[:length] for name, values in {**inputs, "attention_mask": mask}.items()}


def _tokens(ids: Tensor, tokenizer: Any | None) -> Sequence[Token]:
    numbers: list[int] = ids.tolist()
    if tokenizer is None:
        return tuple(Token(text=str(number), start=0, end=0) for number in numbers)
    # [UNK] and [MASK] stand for words of the text, they do not frame it
    framing = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id, tokenizer.mask_token_id}
    pieces = tokenizer.convert_ids_to_tokens(numbers)
    return tuple(
        Token(text=piece or str(number), start=0, end=0, special=number in framing)
        for number, piece in zip(numbers, pieces, strict=True)
    )


def _rows_of(several: Sequence[Encoded], name: str) -> list[NDArray[Any]]:
    """(T,) an input of each item; models read types that are not given as all of type 0."""
    missing = [entry for entry in several if name not in entry.inputs]
    if missing and name != "token_type_ids":
        raise ConfigurationError(f"item {missing[0].item.id} has no {name!r}, others do")
    nothing = np.zeros(max(entry.length for entry in several), dtype=np.int64)
    return [
        _array(entry.inputs, name) if name in entry.inputs else nothing[: entry.length]
        for entry in several
    ]


def _array(inputs: Mapping[str, Tensor], name: str) -> NDArray[Any]:
    return inputs.array(name) if isinstance(inputs, InputsOfText) else inputs[name].numpy()


class TextEncoder:
    """Encodes strings with a fast tokenizer, and inputs that are encoded already."""

    def __init__(
        self,
        tokenizer: Any | None,
        *,
        limit: int | None,
        usual: int | None,
        padding: Mapping[str, int],
        vocabulary: int | None,
        device: torch.device,
        takes: Callable[[str], bool],
    ) -> None:
        self.tokenizer = tokenizer
        self._growth = growth_of(tokenizer)
        self.limit = limit  #: positions the model takes; None: any number
        self.usual = usual  #: positions that texts are cut at unless `max_length` is given
        self.padding = padding  #: input name -> value on padded positions; others get 0
        self.vocabulary = vocabulary  #: ids below this exist; None: unknown
        self.device = device
        self.takes = takes  #: whether the model has a place for an input of this name
        self._lock = threading.Lock()  # a fast tokenizer keeps its truncation between calls

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock: an encoder in another process has its own."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As `__init__`."""
        vars(self).update(state, _lock=threading.Lock())

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Token ids and tokens of each item, in order; see `LoadedModel.encode`."""
        room = self._room(max_length)
        text_room = self._room(self.usual if max_length is None else max_length)
        if isinstance(long_text, Windows):
            self._check_windows(long_text, text_room, max_length)
        results: dict[int, Encoded | ItemFailure] = {}
        strings: list[tuple[int, Item]] = []
        for place, item in enumerate(items):
            try:
                if isinstance(item.content, Mapping):
                    results[place] = self._given(item, room, long_text)
                else:
                    self._check_string(item)
                    strings.append((place, item))
            except ItemError as error:
                results[place] = failure(item, error)
        results.update(self._encode_strings(strings, text_room, long_text))
        return [results[place] for place in range(len(items))]

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """Pad every input on the right to the longest of the batch: (B, T)."""
        if not encoded:
            raise ConfigurationError("a batch needs at least one encoded item")
        lengths = np.array([entry.length for entry in encoded])
        inside = np.arange(lengths.max()) < lengths[:, None]
        names = list(dict.fromkeys(chain.from_iterable(entry.inputs for entry in encoded)))
        rows = list(chain.from_iterable(_rows_of(encoded, name) for name in names))
        values = [self.padding.get(name, 0) for name in names]
        # (N, B, T) all inputs at once: each call that lets other threads run has to wait for them
        joined = np.concatenate(rows)
        padded = np.empty((len(values), *inside.shape), dtype=joined.dtype)
        padded[:] = np.array(values)[:, None, None]
        padded[np.broadcast_to(inside, padded.shape)] = joined
        stacked, counts = torch.from_numpy(padded), torch.from_numpy(lengths)
        several = tuple(encoded)

        def moved() -> Batch:
            inputs = dict(zip(names, on_device(stacked, self.device), strict=True))
            return Batch(encoded=several, inputs=inputs, lengths=on_device(counts, self.device))

        if self.device.type == "cpu":  # here and now: each call of torch waits for other threads
            batch = moved()
            return lambda: batch
        return moved

    def widened(self, batch: Batch, width: int) -> Batch:
        """The same batch padded on the right to `width` positions."""
        inputs = {
            name: torch.nn.functional.pad(
                values, (0, width - values.shape[1]), value=self.padding.get(name, 0)
            )
            for name, values in batch.inputs.items()
        }
        return replace(batch, inputs=inputs)

    def _room(self, max_length: int | None) -> int | None:
        bounds = [bound for bound in (self.limit, max_length) if bound is not None]
        room = min(bounds, default=None)
        special = self.tokenizer.num_special_tokens_to_add() if self.tokenizer is not None else 0
        if room is not None and room <= special:
            raise ConfigurationError(
                f"max_length={room} leaves no room for a word beside the {special} special "
                f"tokens; use at least {special + 1}"
            )
        return room

    def _check_windows(self, windows: Windows, room: int | None, max_length: int | None) -> None:
        if max_length is not None and self.limit is not None and max_length > self.limit:
            raise ConfigurationError(
                f"a window of {max_length} positions does not fit: the model takes {self.limit}"
            )
        special = self.tokenizer.num_special_tokens_to_add() if self.tokenizer is not None else 0
        if windows.stride is not None and room is not None and windows.stride > room - special:
            raise ConfigurationError(
                f"stride={windows.stride} leaves out text: a window of {room} positions has "
                f"{special} special ones; use at most {room - special}"
            )

    def _given(self, item: Item, room: int | None, long_text: LongText) -> Encoded:
        unknown = [name for name in item.content if not self.takes(str(name))]
        if unknown and "attention_mask" not in unknown:
            raise ItemError("bad-input", f"the model takes no input {unknown[0]!r}")
        # without a tokenizer nobody knows which positions frame a window
        windows = isinstance(long_text, Windows) and self.tokenizer is not None
        encoded = encode_given(item, self.tokenizer, None if windows else room, self.vocabulary)
        inputs = {name: row for name, row in encoded.inputs.items() if self.takes(name)}
        encoded = replace(encoded, inputs=inputs)
        return in_windows(encoded, room, long_text)

    def _check_string(self, item: Item) -> None:
        content = item.content
        if content is None:
            raise ItemError("null", "the text is null")
        if not isinstance(content, str):
            raise ItemError(
                "wrong-type",
                f"a text model takes strings or encoded inputs, not {type(content).__name__}",
            )
        if self.tokenizer is None:
            raise ItemError(
                "no-tokenizer",
                "this model was wrapped without a tokenizer: pass tokenizer= to wrap, or give "
                "encoded inputs {'input_ids': ...}",
            )
        if not content.strip():
            raise ItemError("empty-text", "the text is empty or blank")
        check_length(content, self._growth)
        try:
            content.encode()
        except UnicodeEncodeError as error:
            raise ItemError("invalid-utf8", f"the text is not valid Unicode: {error}") from error
        if item.second_at is not None:
            check_pair(item.texts)

    def _encode_strings(
        self, strings: list[tuple[int, Item]], room: int | None, long_text: LongText
    ) -> dict[int, Encoded | ItemFailure]:
        results: dict[int, Encoded | ItemFailure] = {}
        for paired in (False, True):
            some = [string for string in strings if (string[1].second_at is not None) == paired]
            if some:  # never without a tokenizer, which `_check_string` refuses
                results |= self._encode_alike(some, room, long_text, paired=paired)
        return results

    def _encode_alike(
        self,
        strings: list[tuple[int, Item]],
        room: int | None,
        long_text: LongText,
        *,
        paired: bool,
    ) -> dict[int, Encoded | ItemFailure]:
        """Texts, or pairs of texts. Of a pair that is too long the longer text is cut."""
        items = [item for _, item in strings]
        rows = self._tokenized(items, None if isinstance(long_text, Windows) else room)
        encodings = rows.encodings
        lengths = [len(encoding) for encoding in encodings]
        seconds = [item.second_at or 0 for item in items] if paired else ()
        tokens = tokens_of([item.content for item in items], encodings, seconds)
        inputs, empty = self._inputs_of(rows, lengths), _without_tokens(tokens, lengths)
        results: dict[int, Encoded | ItemFailure] = {}
        for row, (place, item) in enumerate(strings):
            cut = bool(encodings[row].overflowing)
            try:
                if cut and long_text == "error":
                    raise _too_long(item, room)
                if empty[row] or (paired and len({*encodings[row].sequence_ids} - {None}) < 2):
                    where = "one text of the pair" if paired and not empty[row] else "this text"
                    raise ItemError("empty-text", f"the tokenizer found no token in {where}")
                encoded = Encoded(
                    item=item,
                    inputs=inputs[row],
                    features=tokens[row],
                    length=lengths[row],
                    truncated=cut,
                )
                results[place] = in_windows(encoded, room, long_text)
            except ItemError as error:
                results[place] = failure(item, error)
        return results

    def _inputs_of(self, rows: Any, lengths: list[int]) -> list[InputsOfText]:
        """The inputs of every text, of those that the model takes."""
        arrays = {name: flat(values) for name, values in rows.items() if self.takes(name)}
        if self.takes(MASK):  # nothing is padded
            arrays[MASK] = np.ones(sum(lengths), dtype=np.int64)
        bounds = pairwise(accumulate(lengths, initial=0))
        return [InputsOfText(arrays, begin, stop) for begin, stop in bounds]

    def _tokenized(self, items: Sequence[Item], room: int | None) -> Any:
        """The tokenizer's encodings of texts or of pairs, cut to `room` positions."""
        assert self.tokenizer is not None
        sides = zip(*(item.texts for item in items), strict=True)
        with self._lock, panics_as_errors():
            return self.tokenizer(
                *map(list, sides),
                truncation=room is not None,
                max_length=room,
                padding=False,
                return_attention_mask=False,
                verbose=False,
            )


def _too_long(item: Item, room: int | None) -> ItemError:
    return ItemError(
        "too-long",
        f"the text of {len(item.content)} characters needs more than {room} positions; "
        'shorten it or use long_text="window" or "truncate"',
    )


def _without_tokens(tokens: Sequence[Tokens], lengths: Sequence[int]) -> list[bool]:
    """Of each text whether all of its positions are special."""
    if not tokens:
        return []
    plain = ~np.concatenate([token.special for token in tokens])
    of = np.repeat(np.arange(len(tokens)), lengths)
    empty: list[bool] = (np.bincount(of[plain], minlength=len(tokens)) == 0).tolist()
    return empty
