"""Answers of models for question answering: where in the context one begins and ends.

Such a model reads a pair, question and context, and gives every token two logits: that the answer
begins there, and that it ends there. The answer is the span with the largest sum of both.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.text.parsing import UnreadableError, read_json
from transexplain.types.items import Item
from transexplain.types.token_labels import ANSWER, TaggedEntity, TaggedSpan
from transexplain.types.tokens import Tokens

#: the logits of a token
CLASSES = ("start", "end")
#: tokens of the longest answer that is looked for, as in transformers' pipeline and BERT's code
LONGEST = 30
#: how an answer agrees with a given one: the same, words in common, or none
EXACT, PARTLY, OTHER = "exact", "partly", "other"
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerAgreement:
    """How an answer agrees with the given ones, by the best of them."""

    exact: bool
    f1: float  #: of words, 0 to 1

    @property
    def name(self) -> str:
        """`EXACT`, `PARTLY` or `OTHER`."""
        return EXACT if self.exact else PARTLY if self.f1 else OTHER


def agreement(answer: str, given: Sequence[str]) -> AnswerAgreement:
    """Exact match and F1 of an answer, as SQuAD measures them (Rajpurkar et al. 2016, section 6.1).

    Case, punctuation, articles and white space do not count. F1 is the harmonic mean of the shares
    of words that both have. Of several given answers the best one counts.
    """
    own = _plain(answer)
    scores = [_f1(own, _plain(answer)) for answer in given]
    return AnswerAgreement(
        exact=any(own == _plain(answer) for answer in given), f1=max(scores, default=0.0)
    )


def _plain(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_MARKS)).split()


def _f1(own: Sequence[str], other: Sequence[str]) -> float:
    if not own or not other:
        return float(own == other)
    common = (Counter(own) & Counter(other)).total()
    return 2 * common / (len(own) + len(other))


@dataclass(frozen=True, slots=True)
class AnswerScheme:
    """The only thing that is found in a pair: its answer."""

    labels: tuple[str, ...] = CLASSES

    @property
    def types(self) -> tuple[str, ...]:
        """Return what is found."""
        return (ANSWER,)

    def entities(
        self, logits: NDArray[np.floating[Any]], tokens: Tokens, second_at: int | None = None
    ) -> list[TaggedEntity]:
        """The answer that logits (T, 2) give, in the tokens of the context, the second text."""
        places = np.flatnonzero(~tokens.special & (tokens.starts >= (second_at or 0)))
        if not len(places):
            raise ItemError("no-context", "no token of the context is left")
        start, end = logits[places, 0][:, None], logits[places, 1][None, :]
        apart = places[None, :] - places[:, None]
        sums = np.where((apart >= 0) & (apart < LONGEST), start + end, -np.inf)
        cell = np.unravel_index(int(np.argmax(sums)), sums.shape)
        first, last = (int(places[place]) for place in cell)
        span = TaggedSpan(start=int(tokens.starts[first]), end=int(tokens.ends[last]), type=ANSWER)
        return [TaggedEntity(span=span, labels=(0, 1), positions=(first, last))]

    def spelled(self, span: TaggedSpan, tokens: Tokens) -> TaggedEntity | None:
        """Characters of the pair as an answer; None where the model reads none of them."""
        own = ~tokens.special & (tokens.starts < span.end) & (tokens.ends > span.start)
        inside = np.flatnonzero(own)
        if not len(inside):
            return None
        return TaggedEntity(span=span, labels=(0, 1), positions=(int(inside[0]), int(inside[-1])))

    def written(self, cell: str, text: str, second_at: int | None = None) -> list[TaggedSpan]:
        """The first answer of a cell: a text, a list of texts, or SQuAD's `{text, answer_start}`.

        Raises ItemError bad-label where the context does not have it.
        """
        answers, at = _named(cell)
        answer = answers[0] if answers else ""
        start = text.find(answer, (second_at or 0) + at) if answer else -1
        if start < 0:
            raise ItemError("bad-label", f"the context does not hold the answer {answer[:80]!r}")
        return [TaggedSpan(start=start, end=start + len(answer), type=ANSWER)]

    def accepted(self, cell: str) -> tuple[str, ...]:
        """The answers that a cell gives, whether or not the context holds them; none: unknown."""
        return tuple(answer for answer in _named(cell)[0] if answer.strip())

    def check(self, item: Item) -> None:
        """Raise ItemError no-context for what is no pair."""
        if item.second_at is None:
            raise ItemError(
                "no-context",
                "question answering reads a question and its context: give a pair, (question, "
                "context) in Python and --second in the terminal",
            )


def _named(cell: str) -> tuple[list[str], int]:
    """The answers of a cell, and the character of the context that the first is looked for from."""
    try:
        read = read_json(cell) if cell.lstrip().startswith(("{", "[")) else None
    except UnreadableError:
        read = None
    if isinstance(read, list):
        return [str(answer) for answer in read], 0
    if not isinstance(read, dict):
        return [cell], 0
    texts, starts = (read.get(key, []) for key in ("text", "answer_start"))
    start = starts[0] if isinstance(starts, list) and starts else starts
    texts = texts if isinstance(texts, list) else [texts]
    return [str(text) for text in texts if text is not None], start if type(start) is int else 0
