"""Texts to token ids, with every position traced to characters of the original text."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.base import Batch, Encoded, LongText, Windows, failure
from transexplain.models.encoded_text import encode_given
from transexplain.models.quiet import panics_as_errors
from transexplain.models.tokens import tokens_of
from transexplain.models.windows import in_windows
from transexplain.types import Item, ItemFailure, own_positions


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
        self.limit = limit  #: positions the model takes; None: any number
        self.usual = usual  #: positions that texts are cut at unless `max_length` is given
        self.padding = padding  #: input name -> value on padded positions; others get 0
        self.vocabulary = vocabulary  #: ids below this exist; None: unknown
        self.device = device
        self.takes = takes  #: whether the model has a place for an input of this name
        self._lock = threading.Lock()  # a fast tokenizer keeps its truncation between calls

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
                    self._check_string(item.content)
                    strings.append((place, item))
            except ItemError as error:
                results[place] = failure(item, error)
        results.update(self._encode_strings(strings, text_room, long_text))
        return [results[place] for place in range(len(items))]

    def collate(self, encoded: Sequence[Encoded]) -> Batch:
        """Pad every input on the right to the longest of the batch: (B, T)."""
        if not encoded:
            raise ConfigurationError("a batch needs at least one encoded item")
        longest = max(one.length for one in encoded)
        inputs = {
            name: torch.stack([self._padded(one, name, longest) for one in encoded]).to(self.device)
            for name in {name: None for one in encoded for name in one.inputs}
        }
        lengths = torch.tensor([one.length for one in encoded], device=self.device)
        return Batch(encoded=tuple(encoded), inputs=inputs, lengths=lengths)

    def widened(self, batch: Batch, width: int) -> Batch:
        """The same batch padded on the right to `width` positions."""
        inputs = {
            name: torch.nn.functional.pad(
                values, (0, width - values.shape[1]), value=self.padding.get(name, 0)
            )
            for name, values in batch.inputs.items()
        }
        return replace(batch, inputs=inputs)

    def _padded(self, one: Encoded, name: str, longest: int) -> Tensor:
        values = one.inputs.get(name)
        if values is None:
            if name != "token_type_ids":  # models read none as all of type 0
                raise ConfigurationError(f"item {one.item.id} has no {name!r}, others do")
            values = torch.zeros(one.length, dtype=torch.long)
        missing = longest - values.shape[0]
        return torch.nn.functional.pad(values, (0, missing), value=self.padding.get(name, 0))

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

    def _check_string(self, content: Any) -> None:
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
        try:
            content.encode()
        except UnicodeEncodeError as error:
            raise ItemError("invalid-utf8", f"the text is not valid Unicode: {error}") from error

    def _encode_strings(
        self, strings: list[tuple[int, Item]], room: int | None, long_text: LongText
    ) -> dict[int, Encoded | ItemFailure]:
        if not strings or self.tokenizer is None:
            return {}
        with self._lock, panics_as_errors():
            rows = self.tokenizer(
                [item.content for _, item in strings],
                truncation=room is not None and not isinstance(long_text, Windows),
                max_length=room,
                padding=False,
                return_attention_mask=True,
                return_special_tokens_mask=True,
                verbose=False,
            )
        results: dict[int, Encoded | ItemFailure] = {}
        for row, (place, item) in enumerate(strings):
            try:
                results[place] = self._one(item, rows, row, room, long_text)
            except ItemError as error:
                results[place] = failure(item, error)
        return results

    def _one(
        self, item: Item, rows: Any, row: int, room: int | None, long_text: LongText
    ) -> Encoded:
        encoding = rows.encodings[row]
        truncated = bool(encoding.overflowing)
        if truncated and long_text == "error":
            raise ItemError(
                "too-long",
                f"the text of {len(item.content)} characters needs more than {room} positions; "
                'shorten it or use long_text="window" or "truncate"',
            )
        tokens = tokens_of(item.content, encoding)
        if not own_positions(tokens).any():
            raise ItemError("empty-text", "the tokenizer found no token in this text")
        inputs = {
            name: torch.tensor(values[row], dtype=torch.long)
            for name, values in rows.items()
            if name != "special_tokens_mask" and self.takes(name)
        }
        encoded = Encoded(
            item=item, inputs=inputs, features=tokens, length=len(tokens), truncated=truncated
        )
        return in_windows(encoded, room, long_text)
