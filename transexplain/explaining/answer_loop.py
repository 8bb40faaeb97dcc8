"""Explains the answers of language models: the tokens of one prompt share a forward pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.data.picture_places import picture_at
from transexplain.errors import ConfigurationError, ItemError
from transexplain.explaining.answer_records import ExplainedTokens, record, summed
from transexplain.explaining.answer_tokens import Asked, Reading, read_prompt, reading_of
from transexplain.explaining.explain_request import model_failure
from transexplain.methods import bound
from transexplain.methods.batch_explanation import BatchExplanation
from transexplain.models.answer_reading import DECODER, POSITIONS, TOKENS, Value
from transexplain.models.language_model import LanguageModel
from transexplain.models.loaded_model import Encoded
from transexplain.models.prompt_encoder import PICTURE
from transexplain.text.error_frames import traceback_of
from transexplain.types.answer_targets import AnswerTarget
from transexplain.types.items import Item, ItemFailure, PatchGrid, ResolvedTarget
from transexplain.types.prompts import AnswerAttribution, Prompt
from transexplain.types.scores import MethodSpec
from transexplain.types.tokens import NO_WORD, Tokens

#: one attribution for each token of an answer, or one for the sum of their log-probabilities
Per = Literal["token", "answer"]
#: Copies of a prompt in one batch, each with its own token, cost a pass each; sharing one forward
#: costs a backward each, and what a backward takes however little it computes. Up to this many
#: positions times parameters in all, copies were faster; see benchmarks/language_models.py
_COPIED = 4e9
_RUN_ERRORS = (ValueError, RuntimeError, IndexError, TypeError, ArithmeticError, AssertionError)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRequest:
    """What to explain of language models and how, whatever the prompts."""

    method: MethodSpec
    targets: tuple[AnswerTarget, ...]
    value: Value = "logit"
    per: Per = "token"
    window: int = 64  #: tokens of an answer that share a forward pass

    def __post_init__(self) -> None:
        """Refuse a wrong request before anything is computed."""
        if self.value not in ("logit", "log-probability"):
            raise ConfigurationError(f"value is 'logit' or 'log-probability', not {self.value!r}")
        if self.per not in ("token", "answer"):
            raise ConfigurationError(f"per is 'token' or 'answer', not {self.per!r}")
        if type(self.window) is not int or self.window < 1:
            raise ConfigurationError(f"window is a number above 0, not {self.window!r}")


def explain_answers(
    model: LanguageModel, items: Iterable[Item], request: AnswerRequest
) -> Iterator[list[AnswerAttribution] | ItemFailure]:
    """The attributions of each prompt, in order of its targets and of their tokens, or its failure.

    An item's content is a text, a `Prompt`, or token numbers (`{"input_ids": ...}`). Raises
    EngineError for an operator without a rule, ConfigurationError for a method that does not fit.
    """
    for item in items:
        try:
            by_target = (_explained(model, item, target, request) for target in request.targets)
            yield [answer for of_target in by_target for answer in of_target]
        except ItemError as error:
            yield ItemFailure(
                item_id=item.id,
                index=item.index,
                kind=error.kind,
                message=str(error),
                traceback=traceback_of(error),
            )
        except _RUN_ERRORS as error:
            failed = model_failure(item, error, traceback_of(error)).failure
            assert failed is not None
            yield failed


def _explained(
    model: LanguageModel, item: Item, target: AnswerTarget, request: AnswerRequest
) -> list[AnswerAttribution]:
    encoded_before = isinstance(item.content, Mapping) and "input_ids" in item.content
    prompt = None if encoded_before else Prompt.of(item.content)
    seen, prompt = _picture(model, item, prompt)
    plain = item if prompt is None else _with_text(item, prompt.text)
    encoded = read_prompt(model, plain)
    if seen is not None:
        encoded = replace(encoded, inputs={**encoded.inputs, PICTURE: seen.inputs[PICTURE]})
    own = None if prompt is None else prompt.continuation
    reading = reading_of(model, encoded, target, own)
    value: Value = "log-probability" if request.per == "answer" else request.value
    done: list[ExplainedTokens] = []
    for begin in range(0, len(reading.asked), request.window):
        some = reading.asked[begin : begin + request.window]
        done += _window(model, reading, some, begin, target, request, value, seen)
    if request.per == "answer":
        # the decoder's positions come first, and the encoder's stay behind them
        behind = 0 if seen is None else seen.length
        done = [summed(done, encoded.length if model.kind == "encoder-decoder" else behind)]
    parts = () if prompt is None else tuple(prompt.spans())
    given = None if seen is None or prompt is None else (seen, prompt.picture)
    return [record(token, model.kind, reading, parts, value, given) for token in done]


def _picture(
    model: LanguageModel, item: Item, prompt: Prompt | None
) -> tuple[Encoded | None, Prompt | None]:
    """A prompt's picture as the model takes it, and the prompt with room for it; ItemError."""
    given = None if prompt is None else prompt.picture
    if model.pictures is None:
        if given is not None:
            raise ItemError("no-pictures", f"{model!r} reads no pictures")
        return None, prompt
    if prompt is None or given is None:
        raise ItemError(
            "no-picture",
            "this model reads a picture in every prompt: give it a text and its picture, "
            "Prompt.of(text, picture=...)",
        )
    opened = picture_at(given) if isinstance(given, str | Path) else given
    return model.pictures.read(item, opened), model.pictures.placed(prompt)


def _with_text(item: Item, text: str) -> Item:
    return Item(id=item.id, index=item.index, content=text, label=item.label, meta=item.meta)


def _window(
    model: LanguageModel,
    reading: Reading,
    asked: Sequence[Asked],
    begin: int,
    target: AnswerTarget,
    request: AnswerRequest,
    value: Value,
    seen: Encoded | None,
) -> list[ExplainedTokens]:
    """The tokens of a window of an answer, from its token `begin` on."""
    read = read_until(model, reading, begin + len(asked))
    if seen is not None:
        read = _with_patches(read, seen)
    pairs = [
        (target.token,) if target.against is None else (target.token, target.against)
        for target in asked
    ]
    work = read.length * len(asked) * model.parameters
    copied = request.per == "token" and len(asked) > 1 and work <= _COPIED and seen is None
    every = list(range(len(asked)))
    groups = [[place] for place in every] if copied else [every]
    rows = [asking(read, [asked[k] for k in some], [pairs[k] for k in some]) for some in groups]
    local = [_spans([pairs[k] for k in some]) for some in groups]

    def resolve(_logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
        if request.per == "answer":
            return [[_target(target, 0, asked, local[0])]]
        return [
            [_target(target, rank, [asked[k]], [spans[rank]]) for rank, k in enumerate(some)]
            for some, spans in zip(groups, local, strict=True)
        ]

    view = model.answering(sum(len(pairs[k]) for k in groups[0]), value)
    explanation: BatchExplanation = bound(request.method)(view, view.collate(rows), resolve)
    logs = _log_probabilities(explanation.logits, value)
    if request.per == "answer":
        return [
            ExplainedTokens(explanation.attributions[0][0], tuple(asked), None, float(logs.sum()))
        ]
    single = [attribution_ for row in explanation.attributions for attribution_ in row]
    firsts = [logs[row, first] for row, spans in enumerate(local) for first, _ in spans]
    return [
        ExplainedTokens(attribution, (target,), begin + place, float(log))
        for place, (attribution, target, log) in enumerate(zip(single, asked, firsts, strict=True))
    ]


def _log_probabilities(logits: NDArray[np.float64], value: Value) -> NDArray[np.float64]:
    """(B, K) of what was read of a batch (B, 2K); raises ArithmeticError."""
    if not np.isfinite(logits).all():
        raise ArithmeticError("logits are not finite")
    half = logits.shape[1] // 2
    values: NDArray[np.float64] = logits[:, :half]
    return values - logits[:, half:] if value == "logit" else values


def _spans(pairs: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The first column of each token that is asked about, and the one behind its last."""
    ends = np.cumsum([0, *map(len, pairs)]).tolist()
    return list(pairwise(ends))


def _target(
    target: AnswerTarget,
    rank: int,
    asked: Sequence[Asked],
    spans: Sequence[tuple[int, int]],
) -> ResolvedTarget:
    """The sum of these tokens' columns; the second column of one is what it is contrasted with."""
    coefficients = [
        (place, 1.0 if place == first else -1.0)
        for first, end in spans
        for place in range(first, end)
    ]
    single = len(asked) == 1 and asked[0].against is None
    return ResolvedTarget(
        spec=target.spec,
        rank=rank,
        class_index=asked[0].token if single else None,
        class_name="".join(token.name for token in asked),
        coefficients=tuple(coefficients),
    )


def read_until(model: LanguageModel, reading: Reading, tokens: int) -> Encoded:
    """The prompt and the answer before its token number `tokens`, as the model reads them."""
    prompt, answer = reading.prompt, list(reading.answer[: tokens - 1])
    if model.kind == "masked":
        return prompt
    if model.kind == "encoder-decoder":
        assert model.start is not None
        more = torch.tensor([model.start, *answer])
        features = _turned(reading.features, prompt.length, len(more))
        inputs = {**prompt.inputs, DECODER: more}
    else:
        more = torch.tensor(answer, dtype=torch.long)
        features = reading.features[: prompt.length + len(answer)]
        inputs = {
            name: torch.cat([row, _continued(name, row, more)])
            for name, row in prompt.inputs.items()
        }
    return Encoded(
        item=prompt.item,
        inputs=inputs,
        features=features,
        length=prompt.length + len(more),
        truncated=False,
    )


def _with_patches(read: Encoded, seen: Encoded) -> Encoded:
    """A prompt whose words are followed by the positions of its picture, as its input layer has."""
    tokens, grid = Tokens.of(read.features), seen.features  # type: ignore[arg-type]
    assert isinstance(grid, PatchGrid)
    nothing = np.zeros(seen.length, np.int32)
    features = Tokens(
        starts=np.concatenate([tokens.starts, nothing]),
        ends=np.concatenate([tokens.ends, nothing]),
        words=np.concatenate([tokens.words, nothing + NO_WORD]).astype(np.int32),
        special=np.concatenate([tokens.special, np.arange(seen.length) < grid.prefix]),
        pieces=[*tokens.texts, *[""] * seen.length],
    )
    return replace(read, features=features, length=read.length + seen.length)


def _continued(name: str, row: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    """What an input holds on the answer's positions: the tokens, a mask of ones, the last type."""
    if name == PICTURE:
        return row[:0]
    if name == "input_ids":
        return answer
    if name == "attention_mask":
        return torch.ones_like(answer)
    if name == "position_ids":
        return row[-1:] + 1 + torch.arange(len(answer))
    return row[-1:].expand(len(answer))


def _turned(features: Tokens, prompt: int, answer: int) -> Tokens:
    """The decoder's positions before the encoder's, as the input layer has them."""
    return features.at(np.r_[prompt : prompt + answer, :prompt])


def asking(read: Encoded, asked: Sequence[Asked], tokens: Sequence[tuple[int, ...]]) -> Encoded:
    """What the model reads, with the `tokens` whose logits are asked for at each position."""
    places = [token.position for token, pair in zip(asked, tokens, strict=True) for _ in pair]
    more = {
        POSITIONS: torch.tensor(places),
        TOKENS: torch.tensor([token for pair in tokens for token in pair]),
    }
    return Encoded(
        item=read.item,
        inputs={**read.inputs, **more},
        features=read.features,
        length=read.length,
        truncated=False,
    )
