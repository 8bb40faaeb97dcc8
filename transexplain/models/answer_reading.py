"""Calls a language model and reads the logits of single tokens at single positions.

A classifier has a logit per class. A language model has a logit per token of its vocabulary at
every position; what is asked about are a few of them. `AnswerCaller` gives just these, so methods
take a language model for a classifier whose classes are the answers asked about.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transexplain.models.calling import Caller
from transexplain.models.configs import LanguageKind

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
