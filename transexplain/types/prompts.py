"""Prompts of language models in named parts, and what explains a token of the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.tokens import Tokens

ANSWER = "answer"  #: the segment of the answer's own tokens
SPECIAL = "special tokens"  #: the segment of what frames a prompt
PICTURE = "picture"  #: the segment of a prompt's picture
WHOLE = "prompt"  #: the segment of a prompt without named parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A prompt whose parts have names: system, examples, documents, question.

    The model reads the texts one behind the other, with nothing between them: white space and
    line ends belong to the parts.
    """

    parts: tuple[tuple[str, str], ...]  #: name and text of each, in order
    continuation: str | None = None  #: what the target `continuation` explains
    picture: Any = field(default=None, compare=False)  #: of a model that reads pictures in prompts

    @classmethod
    def of(cls, given: Any, continuation: str | None = None, picture: Any = None) -> "Prompt":
        """A text, or a mapping of names to texts; raises ConfigurationError for anything else."""
        if isinstance(given, Prompt):
            more = {"continuation": continuation, "picture": picture}
            return replace(given, **{k: v for k, v in more.items() if v is not None})
        if isinstance(given, str):
            return cls(parts=((WHOLE, given),), continuation=continuation, picture=picture)
        if not isinstance(given, Mapping) or not given:
            raise ConfigurationError(
                f"a prompt cannot be {given!r:.80}; it is a text, or a mapping of the names of its "
                "parts to their texts"
            )
        for name, text in given.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise ConfigurationError(f"part {name!r} of the prompt is no text: {text!r:.80}")
            if name in (ANSWER, SPECIAL, PICTURE):
                raise ConfigurationError(f"a part of a prompt cannot be called {name!r}")
        return cls(parts=tuple(given.items()), continuation=continuation, picture=picture)

    @property
    def text(self) -> str:
        """The whole prompt, as the model reads it."""
        return "".join(text for _, text in self.parts)

    def spans(self) -> list[tuple[str, int, int]]:
        """Name, first character and the one behind the last of each part."""
        parts, at = [], 0
        for name, text in self.parts:
            parts.append((name, at, at + len(text)))
            at += len(text)
        return parts

    def without(self, names: Sequence[str]) -> "Prompt":
        """The prompt without the parts of these names."""
        return replace(self, parts=tuple(part for part in self.parts if part[0] not in names))


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A part of what a language model read, with the sum of its relevance."""

    name: str
    tokens: int  #: how many
    relevance: float  #: the sum over them, never the mean


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class AnswerAttribution(Attribution):
    """The relevance of the prompt and of earlier answer tokens for one token, or for all of them.

    `text` is the prompt and behind it the answer up to the last token that relevance can lie on;
    of an encoder-decoder the two are a pair.
    """

    step: int | None  #: which token of the answer is explained, from 0; None: all, summed
    token: str  #: the explained token as text; of a contrast `a-b`
    log_probability: float  #: of the explained token, or of all, in nats; of a contrast of `a`
    answer: str  #: the whole answer: given, predicted, or generated
    answer_ids: tuple[int, ...]  #: its tokens
    answer_from: int  #: the first position that belongs to the answer
    parts: tuple[tuple[str, int, int], ...]  #: name, first and last + 1 character of prompt parts
    #: the relevance of a prompt's picture, to be drawn like that of any picture; None: it has none
    patches: Attribution | None = None

    def segments(self) -> list[Segment]:
        """Every part of the prompt, the answer so far, and special tokens, with their sums.

        They add up to the relevance of all positions. A token that begins in one part and ends in
        the next belongs to the first.
        """
        if isinstance(self.features, PatchGrid):
            raise TypeError("segments() is for texts")
        tokens = Tokens.of(self.features)
        names: dict[str, list[float]] = {name: [] for name, _, _ in self.parts}
        rows = zip(
            tokens.starts.tolist(), tokens.special.tolist(), self.relevance.tolist(), strict=True
        )
        for place, (start, special, value) in enumerate(rows):
            name = SPECIAL if special else ANSWER if place >= self.answer_from else None
            if name is None:
                name = next(
                    (part for part, first, end in self.parts if first <= start < end),
                    self.parts[-1][0],
                )
            names.setdefault(name, []).append(value)
        if self.patches is not None:
            seen = self.patches
            names[PICTURE] = [*seen.relevance.flatten().tolist(), *seen.prefix_relevance]
        return [
            Segment(name=name, tokens=len(values), relevance=float(sum(values)))
            for name, values in names.items()
        ]

    def __repr__(self) -> str:
        which = "the whole answer" if self.step is None else f"token {self.step} {self.token!r}"
        return (
            f"<AnswerAttribution item={self.item_id!r} method={self.method} of {which}, "
            f"logit={self.logit:.4g}, {len(self.features)} positions>"  # type: ignore[arg-type]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextAttribution:
    """What the log-probability of an answer owes to each part of its prompt."""

    item_id: str
    method: str
    answer: str
    answer_ids: tuple[int, ...]  #: its tokens
    log_probability: float  #: of the whole answer behind the whole prompt, in nats
    #: part -> score: relevance or a fall of the log-probability in nats, or a weight of the
    #: logit-scaled probability (`context-cite`)
    scores: Mapping[str, float]
    passes: int  #: through the model, to find the scores; a backward counts as one
    #: k -> fall of the log-probability without the k parts of the largest scores
    drops: Mapping[int, float]
