"""What a target of a language model means for one prompt: tokens, and where they are read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.data.picture_places import picture_at
from transexplain.errors import ConfigurationError, ItemError
from transexplain.explaining.explain_request import model_failure
from transexplain.explaining.long_texts import joined_ledger
from transexplain.extras.language.language_model import LanguageModel
from transexplain.extras.language.prompt_encoder import DECODER, PICTURE, POSITIONS, TOKENS, Value
from transexplain.methods import bound
from transexplain.methods.batch_explanation import BatchExplanation, split
from transexplain.models.configs import LanguageKind
from transexplain.models.loaded_model import Encoded, failure
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import (
    Attribution,
    Item,
    ItemFailure,
    PatchGrid,
    ResolvedTarget,
)
from transexplain.types.pairs import joined
from transexplain.types.prompts import AnswerAttribution, Prompt
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import AnswerTarget
from transexplain.types.tokens import NO_WORD, Tokens


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Asked:
    """One token that is asked about: where the model predicts it, and what it is."""

    position: int  #: of the output that predicts it
    token: int
    against: int | None = None  #: the other token of a contrast
    name: str  #: as text


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PromptReading:
    """One prompt with its answer, as a language model reads them."""

    prompt: Encoded
    answer: tuple[int, ...]  #: tokens; those that the model reads are all but the last
    asked: tuple[Asked, ...]
    features: Tokens  #: (T,) prompt and answer
    text: str | None  #: of both; None: the prompt was given as token numbers
    second_at: int | None = None  #: see `pairs`; of an encoder-decoder, whose answer is a text
    answer_text: str


def read_prompt(model: LanguageModel, item: Item) -> Encoded:
    """The prompt as the model takes it.

    Raises ItemError: an empty or too long prompt, or one without its mask.
    """
    (made,) = model.encoder.encode([item], long_text="error", max_length=None)
    if isinstance(made, ItemFailure):
        what = " (language models read a prompt whole)" if made.kind == "too-long" else ""
        raise ItemError(made.kind, made.message + what)
    return made


def reading_of(
    model: LanguageModel, prompt: Encoded, target: AnswerTarget, own: str | None
) -> PromptReading:
    """The tokens that a target means after a prompt, whose own continuation may be `own`.

    Raises ItemError where a token is none of the vocabulary, a continuation begins inside the
    prompt's last token, or prompt and answer are too long together.
    """
    if target.kind in ("token", "contrast"):
        tokens = [_one_token(model, prompt, text, exact=target.exact) for text in target.tokens]
        pieces = [_spelled(model, token) for token in tokens]
        names = pieces if len(pieces) == 1 else [piece.strip() for piece in pieces]
        asked = Asked(
            position=_first(model, prompt),
            token=tokens[0],
            against=tokens[1] if len(tokens) > 1 else None,
            name="-".join(names),
        )
        return _reading(model, prompt, tokens[:1], pieces[:1], [asked])
    if model.kind == "masked" and target.kind != "next":
        raise ItemError(
            "bad-target", f"a masked model fills in one token; it has no target {target.spec!r}"
        )
    answer = _answer(model, prompt, target, own)
    _check_length(model, prompt, answer)
    pieces = _pieces(model, prompt, answer)
    first = _first(model, prompt)
    asked_about = [
        Asked(position=first + step, token=token, name=pieces[step])
        for step, token in enumerate(answer)
    ]
    return _reading(model, prompt, answer, pieces, asked_about)


def _first(model: LanguageModel, prompt: Encoded) -> int:
    """The output position that predicts the first token of an answer."""
    if model.kind == "causal":
        return prompt.length - 1
    if model.kind == "encoder-decoder":
        return 0
    return int(prompt.inputs["input_ids"].eq(model.encoder.mask or 0).nonzero()[0])


def _answer(
    model: LanguageModel, prompt: Encoded, target: AnswerTarget, own: str | None
) -> list[int]:
    ids: list[int] = prompt.inputs["input_ids"].tolist()
    if target.kind == "next":
        return [model.predicted(prompt, _first(model, prompt))]
    if target.kind == "generate":
        room, count = model.encoder.limit, target.count
        if room is not None and model.kind == "causal":
            # the last token of an answer is predicted and never read
            count = min(count, room - len(ids) + 1)
        tokens = model.generate(ids, count, prompt.inputs.get(PICTURE))
        if not tokens:
            raise ItemError("empty-answer", "the model ends its answer before the first token")
        return tokens
    if target.ids:
        return _known(model, target.ids)
    text = target.text if target.text is not None else own
    if text is None:
        raise ItemError(
            "no-continuation",
            "the target `continuation` needs a text: continuation:<text>, or a Prompt with one",
        )
    exact = target.exact or target.text is None
    plain = exact or model.kind == "encoder-decoder"  # its answer begins a text of its own
    return _continuation(model, prompt, text if plain else _spaced(prompt, text))


def _known(model: LanguageModel, tokens: Sequence[int]) -> list[int]:
    wrong = [token for token in tokens if not 0 <= token < model.vocabulary]
    if wrong:
        raise ItemError("bad-target", f"token {wrong[0]} is none of the model's {model.vocabulary}")
    return list(tokens)


def _spaced(prompt: Encoded, word: str) -> str:
    """A word of a short form behind a prompt: with a space, where there is none yet."""
    text = prompt.item.content
    spaced = isinstance(text, str) and bool(text) and not text[-1].isspace() and word[:1].isalnum()
    return f" {word}" if spaced else word


def _continuation(model: LanguageModel, prompt: Encoded, text: str) -> list[int]:
    """The tokens of a text behind the prompt; ItemError where it changes those of the prompt."""
    if model.tokenizer is None or not isinstance(prompt.item.content, str):
        raise ItemError(
            "no-tokenizer",
            "token numbers cannot be followed by a text: give the numbers of the tokens, as in "
            '{"continuation": [5, 7]} or next:#5',
        )
    if model.kind == "encoder-decoder":
        ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens = [int(key) for key in ids]
    else:
        tokens = model.encoder.behind(prompt, text)[0][prompt.length :]
    if not tokens:
        raise ItemError("empty-answer", f"the tokenizer finds no token in {text!r:.40}")
    return tokens


def _one_token(model: LanguageModel, prompt: Encoded, word: str, *, exact: bool) -> int:
    """The token that a word is behind the prompt; ItemError where it is split in several."""
    number = word.removeprefix("#")
    if number != word and number.isdecimal() and len(number) < 10:
        return _known(model, [int(number)])[0]
    if model.kind == "masked":
        tokens = _filled(model, word)
    else:
        plain = exact or model.kind == "encoder-decoder"
        tokens = _continuation(model, prompt, word if plain else _spaced(prompt, word))
    if len(tokens) != 1:
        pieces = ", ".join(repr(_spelled(model, token)) for token in tokens)
        raise ItemError(
            "split-token",
            f"{word!r:.40} is no single token behind this prompt but {len(tokens)}: {pieces}. "
            "Choose a word that is one token, or explain a continuation of several",
        )
    return tokens[0]


def _filled(model: LanguageModel, word: str) -> list[int]:
    """The tokens of a word inside a text, as in the place of a mask."""
    if model.tokenizer is None:
        raise ItemError("no-tokenizer", "without a tokenizer a token is named by number: next:#5")
    plain = model.tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = model.tokenizer(f"a {word.strip()}", add_special_tokens=False)["input_ids"]
    tokens: list[int] = [int(token) for token in whole[len(plain) :]]
    if tokens == [model.tokenizer.unk_token_id]:
        raise ItemError("split-token", f"{word!r:.40} is no token of the model's vocabulary")
    return tokens


def _spelled(model: LanguageModel, token: int) -> str:
    if model.tokenizer is None:
        return f"#{token}"
    text: Any = model.tokenizer.decode([token])
    return str(text) or f"#{token}"


def _check_length(model: LanguageModel, prompt: Encoded, answer: Sequence[int]) -> None:
    """ItemError where prompt and answer, or the answer of a decoder, do not fit into the model."""
    room = model.encoder.limit
    if room is None:
        return
    before = prompt.length if model.kind == "causal" else 1
    read = before + len(answer) - 1  # the last token of an answer is predicted, never read
    if read > room:
        raise ItemError(
            "too-long",
            f"{before} tokens and an answer of {len(answer)} need {read} positions; the model "
            f"takes {room}",
        )


def _pieces(model: LanguageModel, prompt: Encoded, answer: Sequence[int]) -> list[str]:
    """The text of each token of an answer; together they are the text behind the prompt."""
    if model.tokenizer is None or model.kind == "masked":
        return [_spelled(model, token) for token in answer]
    # decoded behind the prompt, because many tokenizers leave out a space at the beginning
    begun = prompt.inputs["input_ids"].tolist()[-8:] if model.kind == "causal" else []
    texts = [
        str(model.tokenizer.decode([*begun, *answer[:count]], clean_up_tokenization_spaces=False))
        for count in range(len(answer) + 1)
    ]
    # half a character is spelled as a replacement until its other half is there
    whole = [text.rstrip("\ufffd") for text in texts]
    return [
        after[len(before) :] if after.startswith(before) else after
        for before, after in pairwise(whole)
    ]


def _reading(
    model: LanguageModel,
    prompt: Encoded,
    answer: Sequence[int],
    pieces: Sequence[str],
    asked: Sequence[Asked],
) -> PromptReading:
    content = prompt.item.content
    front = content if isinstance(content, str) else ""
    features = Tokens.of(prompt.features)  # type: ignore[arg-type]
    text, at, own = front, 0, model.kind == "encoder-decoder"
    if model.kind != "masked":
        read = list(pieces[:-1])
        text, at = joined(front, "".join(read)) if own else (front + "".join(read), len(front))
        word = int(features.words.max(initial=NO_WORD)) + 1
        behind = _behind(read, at, word, begin=_spelled(model, model.start or 0), own=own)
        features = one_behind_the_other(features, behind)
    return PromptReading(
        prompt=prompt,
        answer=tuple(answer),
        asked=tuple(asked),
        features=features,
        text=text if front else None,
        second_at=at if own and front else None,
        answer_text="".join(pieces),
    )


def _behind(pieces: Sequence[str], at: int, word: int, *, begin: str, own: bool) -> Tokens:
    """The answer's tokens from character `at`; a decoder's begin with a special one (`own`)."""
    starts, ends, words = [at] * own, [at] * own, [NO_WORD] * own
    blank = True
    for piece in pieces:
        blank = blank or piece[:1].isspace()
        word += blank and bool(words) and words[-1] != NO_WORD
        lead = len(piece) - len(piece.lstrip())
        starts.append(at + (lead if piece.strip() else 0))
        ends.append(at + len(piece.rstrip() if piece.strip() else piece))
        words.append(word)
        at += len(piece)
        blank = piece[-1:].isspace()
    return Tokens(
        starts=np.array(starts, dtype=np.int32),
        ends=np.array(ends, dtype=np.int32),
        words=np.array(words, dtype=np.int32),
        special=np.array([True] * own + [False] * len(pieces), dtype=bool),
        pieces=[begin] * own + [piece.strip() or piece for piece in pieces],
    )


def one_behind_the_other(first: Tokens, second: Tokens) -> Tokens:
    """The tokens of two parts of a sequence."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("starts", "ends", "words", "special")
    }
    return Tokens(**columns, pieces=[*first.texts, *second.texts])


def without_text(special: NDArray[np.bool_], piece: str = "") -> Tokens:
    """Positions of no text (T,), such as patches and padding, each shown as `piece`."""
    nothing = np.zeros(len(special), np.int32)
    return Tokens(
        starts=nothing,
        ends=nothing,
        words=np.full_like(nothing, NO_WORD),
        special=special,
        pieces=[piece] * len(special),
    )


_GIVEN = tuple(field.name for field in fields(Attribution))
_LOGARITHM = (
    "the log-probability is explained: what the rest of the vocabulary takes from the logit is "
    "booked under rules"
)


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedTokens:
    """One token of an answer, or several in sum, with what the method gave."""

    attribution: Attribution  #: of an encoder-decoder with the decoder's positions first
    asked: tuple[Asked, ...]
    step: int | None  #: which token of the answer; None: several
    log_probability: float  #: in nats, summed


def summed(windows: Sequence[ExplainedTokens], behind: int) -> ExplainedTokens:
    """The sum over windows of an answer; each read what the one before read, and more.

    What it reads more stands before the last `behind` positions.
    """
    return reduce(lambda left, other: _added(left, other, behind), windows)


def _added(
    explained_tokens: ExplainedTokens, other: ExplainedTokens, behind: int
) -> ExplainedTokens:
    first, last = explained_tokens.attribution, other.attribution
    relevance = last.relevance.copy()
    place, more = len(first.relevance) - behind, len(last.relevance) - len(first.relevance)
    relevance[:place] += first.relevance[:place]
    relevance[place + more :] += first.relevance[place:]
    ledger = None
    if first.ledger is not None and last.ledger is not None:
        ledger = joined_ledger([first.ledger, last.ledger], np.ones(2))
    return ExplainedTokens(
        replace(last, relevance=relevance, logit=first.logit + last.logit, ledger=ledger),
        (*explained_tokens.asked, *other.asked),
        None,
        explained_tokens.log_probability + other.log_probability,
    )


def picture_of(
    attribution: Attribution, seen: Encoded, behind: int, picture: Any, name: str
) -> Attribution:
    """The last `behind` positions of an attribution as that of the prompt's picture."""
    relevance, grid = split(attribution.relevance[-behind:], seen.features)
    made = replace(
        attribution,
        relevance=relevance.copy(),
        prefix_relevance=grid,
        features=seen.features,
        class_name=name,
        text=None,
    )
    return made.over(picture) if picture is not None else made


def _read_text(reading: PromptReading, read: int) -> Any:
    """The text of the first `read` positions; None where the prompt was given as numbers."""
    if reading.text is None or read <= reading.prompt.length:
        return reading.text and reading.prompt.item.content
    return reading.text[: int(reading.features.ends[read - 1])]


def record(
    explained_tokens: ExplainedTokens,
    kind: LanguageKind,
    reading: PromptReading,
    parts: tuple[tuple[str, int, int], ...],
    value: Value,
    seen: tuple[Encoded, Any] | None = None,
) -> AnswerAttribution:
    """The attribution of the prompt's positions and of the answer's before the explained token.

    `seen` is the prompt's picture, as the model takes it and as it was given.
    """
    given = {name: getattr(explained_tokens.attribution, name) for name in _GIVEN}
    relevance, prompt = explained_tokens.attribution.relevance, reading.prompt.length
    last = max(asked.position for asked in explained_tokens.asked)
    if kind == "encoder-decoder":
        decoder = len(relevance) - prompt
        relevance = np.concatenate([relevance[decoder:], relevance[: last + 1]])
    elif kind == "causal":
        relevance = relevance[: last + 1]
    read = len(relevance)
    notes = explained_tokens.attribution.notes + (
        (_LOGARITHM,) if value == "log-probability" else ()
    )
    given |= {
        "relevance": relevance,
        "features": reading.features[:read],
        "text": reading.text if kind == "masked" else _read_text(reading, read),
        "second_at": reading.second_at if read > prompt else None,
        "rank": explained_tokens.step or 0,
        "notes": notes,
    }
    token = reading.answer_text if explained_tokens.step is None else explained_tokens.asked[0].name
    if seen is not None:
        given["patches"] = picture_of(
            explained_tokens.attribution, seen[0], seen[0].length, seen[1], token
        )
    return AnswerAttribution(
        **given,
        step=explained_tokens.step,
        token=token,
        log_probability=explained_tokens.log_probability,
        answer=reading.answer_text,
        answer_ids=reading.answer,
        answer_from=read if kind == "masked" else prompt,
        parts=parts,
    )


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
            yield failure(item, error)
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
    encoded = read_prompt(model, item if prompt is None else replace(item, content=prompt.text))
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


def _window(
    model: LanguageModel,
    reading: PromptReading,
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
    # the first column of each token that is asked about, and the one behind its last
    ends = [np.cumsum([0, *(len(pairs[k]) for k in some)]).tolist() for some in groups]
    local = [list(pairwise(of_group)) for of_group in ends]

    def resolve(_logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
        if request.per == "answer":
            return [[_target(target, 0, asked, local[0])]]
        return [
            [_target(target, rank, [asked[k]], [spans[rank]]) for rank, k in enumerate(some)]
            for some, spans in zip(groups, local, strict=True)
        ]

    view = model.answering(sum(len(pairs[k]) for k in groups[0]), value)
    explanation: BatchExplanation = bound(request.method)(view, view.collate(rows), resolve)
    if not np.isfinite(explanation.logits).all():
        raise ArithmeticError("logits are not finite")
    half = explanation.logits.shape[1] // 2
    values: NDArray[np.float64] = explanation.logits[:, :half]
    logs = values - explanation.logits[:, half:] if value == "logit" else values
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


def read_until(model: LanguageModel, reading: PromptReading, tokens: int) -> Encoded:
    """The prompt and the answer before its token number `tokens`, as the model reads them."""
    prompt, answer = reading.prompt, list(reading.answer[: tokens - 1])
    if model.kind == "masked":
        return prompt
    if model.kind == "encoder-decoder":
        assert model.start is not None
        more = torch.tensor([model.start, *answer])
        # the decoder's positions before the encoder's, as the input layer has them
        features = reading.features.at(
            np.r_[prompt.length : prompt.length + len(more), : prompt.length]
        )
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
    patches = without_text(np.arange(seen.length) < grid.prefix)
    features = one_behind_the_other(tokens, patches)
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
