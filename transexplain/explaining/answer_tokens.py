"""What a target of a language model means for one prompt: tokens, and where they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.models.language_model import LanguageModel
from transexplain.models.loaded_model import Encoded
from transexplain.models.prompt_encoder import PICTURE
from transexplain.types.answer_targets import AnswerTarget
from transexplain.types.items import Item, ItemFailure
from transexplain.types.pairs import joined
from transexplain.types.tokens import NO_WORD, Tokens


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Asked:
    """One token that is asked about: where the model predicts it, and what it is."""

    position: int  #: of the output that predicts it
    token: int
    against: int | None = None  #: the other token of a contrast
    name: str  #: as text


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Reading:
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
) -> Reading:
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
    return _continued(model, prompt, text if plain else _spaced(prompt, text))


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


def _continued(model: LanguageModel, prompt: Encoded, text: str) -> list[int]:
    """The tokens of a text behind the prompt; ItemError where it changes those of the prompt."""
    before = prompt.inputs["input_ids"].tolist()
    content = prompt.item.content
    if model.tokenizer is None or not isinstance(content, str):
        raise ItemError(
            "no-tokenizer",
            "token numbers cannot be followed by a text: give the numbers of the tokens, as in "
            '{"continuation": [5, 7]} or next:#5',
        )
    if model.kind == "encoder-decoder":
        ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens = [int(key) for key in ids]
    else:
        whole, _ = model.encoder.read(content + text)
        if whole[: len(before)] != before:
            raise ItemError(
                "joined-token",
                f"behind this prompt the tokenizer makes one token of the prompt's end and of the "
                f"beginning of {text!r:.40}: end the prompt where a token ends, most often before "
                "a space",
            )
        tokens = whole[len(before) :]
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
        tokens = _continued(model, prompt, word if plain else _spaced(prompt, word))
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
) -> Reading:
    content = prompt.item.content
    front = content if isinstance(content, str) else ""
    tokens = Tokens.of(prompt.features)  # type: ignore[arg-type]
    read = list(pieces[:-1])
    if model.kind == "masked":
        return Reading(
            prompt=prompt,
            answer=tuple(answer),
            asked=tuple(asked),
            features=tokens,
            text=front or None,
            answer_text="".join(pieces),
        )
    own = model.kind == "encoder-decoder"
    text, at = joined(front, "".join(read)) if own else (front + "".join(read), len(front))
    behind = _behind(read, at, _words(tokens), begin=_spelled(model, model.start or 0), own=own)
    return Reading(
        prompt=prompt,
        answer=tuple(answer),
        asked=tuple(asked),
        features=_one_behind_the_other(tokens, behind),
        text=text if front else None,
        second_at=at if own and front else None,
        answer_text="".join(pieces),
    )


def _words(tokens: Tokens) -> int:
    return int(tokens.words.max(initial=NO_WORD)) + 1


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


def _one_behind_the_other(first: Tokens, second: Tokens) -> Tokens:
    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    return Tokens(
        starts=column("starts"),
        ends=column("ends"),
        words=column("words"),
        special=column("special"),
        pieces=[*first.texts, *second.texts],
    )
