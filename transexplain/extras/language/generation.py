"""What a language model goes on with, the likeliest token each time: of one prompt, or of many.

Prompts of one batch are padded on the left, and a model that reads positions from the mask gives
each what it gives it alone, but for rounding. Whether a model is so is measured; and a prompt
behind which two tokens are as likely is read again by itself, so that a batch changes no answer.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.models.calling import eval_mode

#: what makes of the ids so far (B, T) and the logits behind them (B, V) other logits
Chosen = Callable[[Tensor, Tensor], Tensor]
_ROWS = 16  #: prompts of a batch
_POSITIONS = 2048  #: of a batch, padding and answers with them
_STEPS = 3  #: tokens that a batch is tried on: one behind the prompts, others behind it
_LONGEST = 24  #: tokens of a prompt that a batch is tried on
_FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError, AttributeError)


def generated(
    module: Any,
    ids: Tensor,
    count: int,
    *,
    mask: Tensor | None = None,
    more: Mapping[str, Tensor] | None = None,
    chosen: Chosen | None = None,
) -> Tensor:
    """(B, T + at most `count`) ids (B, T), or a decoder's own, with the likeliest tokens behind.

    Args:
        module: of transformers, one that generates.
        ids: of the prompts, padded on the left.
        count: tokens at most.
        mask: (B, T) 0 at padding; None: there is none.
        more: further inputs.
        chosen: changes logits before the likeliest token is taken.
    """
    with torch.no_grad(), eval_mode(module):
        tokens: Tensor = module.generate(
            ids,
            attention_mask=torch.ones_like(ids) if mask is None else mask,
            **(more or {}),
            logits_processor=[] if chosen is None else [chosen],
            generation_config=_greedy(module, count),
        )
    return tokens


def until_end(module: Any, answer: Sequence[int]) -> list[int]:
    """An answer without the token that ends it and what stands behind that."""
    ends = ends_of(module)
    stop = next((place for place, token in enumerate(answer) if token in ends), len(answer))
    return list(answer[:stop])


def ends_of(module: Any) -> set[int]:
    """The tokens that end a text."""
    own = getattr(module, "generation_config", None)
    end = getattr(own, "eos_token_id", None)
    end = getattr(module.config, "eos_token_id", None) if end is None else end
    return {end} if isinstance(end, int) else set(end or ())


def _greedy(module: Any, count: int) -> Any:
    """Of the model's own settings only what begins and ends a text: the likeliest token follows."""
    from transformers import GenerationConfig

    names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    own = getattr(module, "generation_config", None)
    kept: dict[str, Any] = {}
    for name in names:
        setting = getattr(own, name, None)
        kept[name] = getattr(module.config, name, None) if setting is None else setting
    if kept["pad_token_id"] is None:
        kept["pad_token_id"] = next(iter(ends_of(module)), 0)
    return GenerationConfig(do_sample=False, num_beams=1, max_new_tokens=count, **kept)


@dataclass(slots=True)
class TogetherGeneration:
    """Generates from the prompts of a causal model in batches, where that changes no answer."""

    module: nn.Module
    device: torch.device
    tolerance: float  #: how far a batch may move a logit, as a share of the largest
    _able: bool | None = None  #: None: not measured yet
    _read: int = 0  #: prompts that were read in batches
    _again: int = 0  #: of these, read again by themselves
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answers(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """At most `count` tokens behind each prompt, as each alone has them; ends left out."""
        answers: dict[int, list[int]] = {}
        for some in _batches([len(prompt) + count for prompt in prompts]):
            if len(some) > 1 and self._takes(prompts[some[0]]):
                answers |= self._together({place: prompts[place] for place in some}, count)
            for place in some:
                if place not in answers:
                    answers[place] = self._alone(prompts[place], count)
        return [answers[place] for place in range(len(prompts))]

    def _alone(self, prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)], device=self.device)
        made = generated(self.module, ids, count)
        return until_end(self.module, made[0, len(prompt) :].tolist())

    def _together(self, prompts: Mapping[int, Sequence[int]], count: int) -> dict[int, list[int]]:
        """The answers of those prompts behind which no two tokens are as likely."""
        ids, mask = self._padded([*prompts.values()])
        near = _NearTokens(ids.shape[1], sorted(ends_of(self.module)), 2 * self.tolerance)
        try:
            made = generated(self.module, ids, count, mask=mask, chosen=near).tolist()
        except RuntimeError:  # such as memory that is too small for a batch
            return {}
        answers = dict(zip(prompts, made, strict=True))
        kept = {
            place: until_end(self.module, answers[place][ids.shape[1] :])
            for row, place in enumerate(prompts)
            if not near.rows[row]
        }
        self._read += len(prompts)
        self._again += len(prompts) - len(kept)
        return kept

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """The ids and the mask (B, T) of prompts that end together; padding repeats a token."""
        width = max(map(len, prompts))
        ids = [[prompt[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def _takes(self, prompt: Sequence[int]) -> bool:
        """Whether batches change no logits, as measured, and save more than is read again."""
        with self._lock:
            if self._able is None:
                self._able = self._difference(list(prompt)[-_LONGEST:]) <= self.tolerance
        return self._able and (self._read < 2 * _ROWS or 3 * self._again <= self._read)

    def _difference(self, prompt: list[int]) -> float:
        """How far a longer prompt beside it moves the logits of a shorter one, as a share."""
        whole = (prompt * 4)[: max(4, len(prompt))]
        short = whole[: len(whole) // 2]
        try:
            alone, beside = (self._logits(rows, whole) for rows in ([short], [short, whole]))
        except _FORWARD_ERRORS:
            return float("inf")
        largest = float(torch.stack([alone, beside]).abs().max())
        return float((alone - beside).abs().max()) / largest if largest else 0.0

    def _logits(self, rows: list[list[int]], said: Sequence[int]) -> Tensor:
        """(steps, V) logits behind the first of some prompts that go on with what is `said`."""
        ids, mask = self._padded(rows)
        forced = _Forced(ids.shape[1], said)
        generated(self.module, ids, _STEPS, mask=mask, chosen=forced)
        return torch.stack(forced.seen)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of prompts with their answers in batches, the longest first, of similar lengths."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place_: -lengths[place_]):
        positions = (len(batch) + 1) * (lengths[batch[0]] if batch else 0)
        if len(batch) == _ROWS or positions > _POSITIONS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class _NearTokens:
    """Notes the rows behind which two tokens are as likely before the row has ended."""

    def __init__(self, begun: int, ends: Sequence[int], share: float) -> None:
        self.rows: list[bool] = []
        self._begun, self._ends, self._share = begun, list(ends), share

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """The logits as they are."""
        best = logits.topk(2).values
        scale = logits.masked_fill(~logits.isfinite(), 0.0).abs().amax(dim=1).clamp(min=1.0)
        near = best[:, 0] - best[:, 1] <= self._share * scale
        said = ids[:, self._begun :]
        for end in self._ends:
            near = near & ~(said == end).any(dim=1)
        ties = near.tolist()
        before = self.rows or [False] * len(ties)
        self.rows = [tied or other for tied, other in zip(before, ties, strict=True)]
        return logits


class _Forced:
    """Keeps the logits of the first row, and has every row go on with the same tokens."""

    def __init__(self, begun: int, said: Sequence[int]) -> None:
        self.seen: list[Tensor] = []
        self._begun, self._said = begun, list(said)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Logits with one token far above the others."""
        self.seen.append(logits[0].double().cpu())
        forced = torch.zeros_like(logits)
        forced[:, self._said[ids.shape[1] - self._begun]] = 1.0
        return forced
