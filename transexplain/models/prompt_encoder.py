"""Encodes prompts: texts that a language model goes on with, or whose mask it fills in."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.answer_reading import DECODER, POSITIONS, TOKENS
from transexplain.models.configs import LanguageKind
from transexplain.models.loaded_model import (
    Batch,
    Encoded,
    LongText,
    Padded,
    Windows,
    failure,
    on_device,
)
from transexplain.models.text_encoder import TextEncoder, tokens_of
from transexplain.types.items import Item, ItemFailure
from transexplain.types.tokens import Tokens

#: (3, H, W) the picture of a prompt
PICTURE = "pixel_values"
#: inputs that no padding belongs to
_ASKED = (POSITIONS, TOKENS, DECODER, PICTURE)


class PromptEncoder(TextEncoder):
    """As `TextEncoder`; a causal model's prompt has no special tokens at its end.

    A prompt is never cut: what stands at its end decides what comes next.
    """

    kind: LanguageKind = "causal"
    mask: int | None = None  #: the token that a masked model fills in

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Each prompt; a masked model's has one mask. A long one is its failure `too-long`."""
        if isinstance(long_text, Windows):
            raise ConfigurationError(
                "a language model reads a prompt at once: long_text='window' is for classifiers"
            )
        entries = super().encode(items, long_text="error", max_length=max_length)
        prompts: list[Encoded | ItemFailure] = []
        for entry in entries:
            if isinstance(entry, ItemFailure):
                prompts.append(entry)
                continue
            try:
                prompts.append(self._prompt(entry))
            except ItemError as error:
                prompts.append(failure(entry.item, error))
        return prompts

    def _prompt(self, encoded: Encoded) -> Encoded:
        if self.kind == "masked":
            masks = int(encoded.inputs["input_ids"].eq(self.mask or 0).sum())
            if masks != 1:
                token = getattr(self.tokenizer, "mask_token", None) or f"token {self.mask}"
                raise ItemError(
                    "no-mask", f"the text needs {token} once, where a token is asked for: {masks}"
                )
        length = self._length(Tokens.of(encoded.features))  # type: ignore[arg-type]
        inputs = {name: row[:length] for name, row in encoded.inputs.items()}
        return replace(encoded, inputs=inputs, features=encoded.features[:length], length=length)  # type: ignore[index]

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """As of texts; items that ask about tokens are copies of one prompt, without padding."""
        if not encoded or not {POSITIONS, PICTURE} & {*encoded[0].inputs}:
            return super().padded(encoded)
        inputs = {
            name: on_device(torch.stack([entry.inputs[name] for entry in encoded]), self.device)
            for name in encoded[0].inputs
        }
        lengths = on_device(torch.tensor([entry.length for entry in encoded]), self.device)
        batch = Batch(encoded=tuple(encoded), inputs=inputs, lengths=lengths)
        return lambda: batch

    def widened(self, batch: Batch, width: int) -> Batch:
        """The prompts padded on the right; what is asked about them stays as it is."""
        asked = {name: row for name, row in batch.inputs.items() if name in _ASKED}
        rest = {name: row for name, row in batch.inputs.items() if name not in _ASKED}
        wide = super().widened(replace(batch, inputs=rest), width)
        return replace(wide, inputs={**wide.inputs, **asked})

    def read(self, text: str) -> tuple[list[int], Tokens]:
        """The token ids of a text of any length, and what they are; raises ItemError.

        Of a causal model without the special tokens at the end.
        """
        item = Item(id="", index=0, content=text)
        self._check_string(item)
        rows = self._tokenized([item], None)
        (tokens,) = tokens_of([text], rows.encodings)
        ids = [int(token) for token in rows["input_ids"][0]]
        length = self._length(tokens)
        return ids[:length], tokens[:length]

    def _length(self, tokens: Tokens) -> int:
        """Positions of a prompt: a causal model goes on before the special tokens at the end."""
        length = len(tokens)
        while self.kind == "causal" and length > 1 and tokens.special[length - 1]:
            length -= 1
        return length
