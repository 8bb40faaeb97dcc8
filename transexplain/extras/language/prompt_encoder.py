"""Calls a language model and reads the logits of single tokens at single positions.

A classifier has a logit per class. A language model has a logit per token of its vocabulary at
every position; what is asked about are a few of them. `AnswerCaller` gives just these, so methods
take a language model for a classifier whose classes are the answers asked about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.calling import Caller
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

#: what is explained of a token: its logit, or its log-probability
Value = Literal["logit", "log-probability"]
#: (K,) of an encoded item: the output position and the number of every token asked about
POSITIONS, TOKENS = "answer_positions", "answer_tokens"
DECODER = "decoder_input_ids"


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCaller(Caller):
    """The logits of the tokens that the inputs ask about; else of `answers`, where a text ends."""

    kind: LanguageKind
    answers: tuple[int, ...]  #: tokens that are read where the inputs name none
    mask: int | None = None  #: the token that a masked model fills in
    start: int = 0  #: the token that a decoder begins with
    value: Value = "logit"
    #: the log of the sum of exp over the vocabulary follows the K values, once for each, without
    #: a gradient: with it a logit becomes a log-probability
    totals: bool = False

    def __call__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        """(B, K) values, or (B, 2K) with `totals`, of one forward pass."""
        own: dict[str, Any] = {k: v for k, v in inputs.items() if k not in (POSITIONS, TOKENS)}
        places, tokens = self._asked(inputs)
        if self.kind == "encoder-decoder" and DECODER not in own:
            own[DECODER] = torch.full_like(own[self.main][:, :1], self.start)
        if self.takes("logits_to_keep"):
            # all rows of logits are many times the memory of the rest
            kept = places[0] if len(places) == 1 else torch.unique(places)
            own["logits_to_keep"] = kept
            places = (
                torch.arange(len(kept), device=kept.device)[None]
                if len(places) == 1
                else torch.searchsorted(kept, places.contiguous())
            )
        logits = Caller.__call__(self, module, own)
        return self._read(logits, places, tokens)

    def next_logits(self, module: nn.Module, inputs: Mapping[str, Tensor], position: int) -> Tensor:
        """(B, V) the logits of the whole vocabulary at one output position."""
        own: dict[str, Any] = dict(inputs)
        if self.kind == "encoder-decoder" and DECODER not in own:
            own[DECODER] = torch.full_like(own[self.main][:, :1], self.start)
        if self.takes("logits_to_keep"):
            own["logits_to_keep"] = torch.tensor([position], device=own[self.main].device)
            position = 0
        return Caller.__call__(self, module, own)[:, position]

    def _asked(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Positions and tokens (B, K) asked about."""
        if POSITIONS in inputs:
            return inputs[POSITIONS], inputs[TOKENS]
        ids = inputs[self.main]
        tokens = torch.tensor(self.answers, device=ids.device).expand(len(ids), -1)
        if self.kind == "encoder-decoder":
            last = torch.zeros_like(ids[:, :1])
        elif self.kind == "masked":
            last = ids.eq(self.mask or 0).long().argmax(dim=1, keepdim=True)
        elif "attention_mask" in inputs:
            last = inputs["attention_mask"].sum(dim=1, keepdim=True) - 1
        else:
            last = torch.full_like(ids[:, :1], ids.shape[1] - 1)
        return last.expand(-1, tokens.shape[1]), tokens

    def _read(self, logits: Tensor, places: Tensor, tokens: Tensor) -> Tensor:
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        places, tokens, rows = (tensor.to(logits.device) for tensor in (places, tokens, rows))
        if self.value == "log-probability":
            values = torch.log_softmax(logits, dim=-1)[rows, places, tokens]
        else:
            values = logits[rows, places, tokens]
        if not self.totals:
            return values
        with torch.no_grad():
            totals = torch.logsumexp(logits.detach(), dim=-1)[rows, places]
        return torch.cat([values, totals], dim=1)


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

    def behind(self, prompt: Encoded, text: str) -> tuple[list[int], Tokens]:
        """As `read` of a prompt and a text behind it; ItemError where that changes its tokens."""
        before = prompt.inputs["input_ids"].tolist()
        ids, tokens = self.read(f"{prompt.item.content}{text}")
        if ids[: len(before)] != before:
            raise ItemError(
                "joined-token",
                f"behind this prompt the tokenizer makes one token of the prompt's end and of the "
                f"beginning of {text!r:.40}: end the prompt where a token ends, most often before "
                "a space",
            )
        return ids, tokens

    def _length(self, tokens: Tokens) -> int:
        """Positions of a prompt: a causal model goes on before the special tokens at the end."""
        length = len(tokens)
        while self.kind == "causal" and length > 1 and tokens.special[length - 1]:
            length -= 1
        return length
