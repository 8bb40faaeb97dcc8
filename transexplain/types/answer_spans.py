"""Answers of models for question answering: where in the context one begins and ends.

Such a model reads a pair, question and context, and gives every token two logits: that the answer
begins there, and that it ends there. The answer is the span with the largest sum of both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.parsing import UnreadableError, read_json
from transexplain.types.pairs import second_from
from transexplain.types.token_labels import ANSWER, TaggedEntity, TaggedSpan
from transexplain.types.tokens import Tokens

#: the logits of a token
CLASSES = ("start", "end")
#: tokens of the longest answer that is looked for, as in transformers' pipeline and BERT's code
LONGEST = 30


@dataclass(frozen=True, slots=True)
class AnswerScheme:
    """The only thing that is found in a pair: its answer."""

    labels: tuple[str, ...] = CLASSES

    @property
    def types(self) -> tuple[str, ...]:
        """What is found."""
        return (ANSWER,)

    def entities(self, logits: NDArray[np.floating[Any]], tokens: Tokens) -> list[TaggedEntity]:
        """The answer that logits (T, 2) give, in the tokens of the context."""
        places = _context(tokens)
        start, end = logits[places, 0][:, None], logits[places, 1][None, :]
        apart = places[None, :] - places[:, None]
        sums = np.where((apart >= 0) & (apart < LONGEST), start + end, -np.inf)
        first, last = np.unravel_index(int(np.argmax(sums)), sums.shape)
        return [_answer(tokens, int(places[first]), int(places[last]))]

    def spelled(self, span: TaggedSpan, tokens: Tokens) -> TaggedEntity | None:
        """Characters of the pair as an answer; None where the model reads none of them."""
        own = ~tokens.special & (tokens.starts < span.end) & (tokens.ends > span.start)
        inside = np.flatnonzero(own)
        if not len(inside):
            return None
        return TaggedEntity(span=span, labels=(0, 1), positions=(int(inside[0]), int(inside[-1])))

    def written(self, cell: str, text: str) -> list[TaggedSpan]:
        """The answer that a cell names: its text, or SQuAD's `{text: [...], answer_start: [...]}`.

        Raises ItemError bad-label where the context does not have it.
        """
        begins = second_from(text) or 0
        answer, at = _named(cell)
        found = text.find(answer, begins + at) if answer else -1
        if found < 0:
            raise ItemError("bad-label", f"the context does not hold the answer {answer[:80]!r}")
        return [TaggedSpan(start=found, end=found + len(answer), type=ANSWER)]

    def check(self, content: object) -> None:
        """Raise ItemError no-context for what is no pair."""
        if second_from(content) is None:
            raise ItemError(
                "no-context",
                "question answering reads a question and its context: give a pair, (question, "
                "context) in Python and --second in the terminal",
            )


def _named(cell: str) -> tuple[str, int]:
    """The first answer of a cell, and the character of the context that it is looked for from."""
    try:
        read = read_json(cell) if cell.lstrip().startswith("{") else None
    except UnreadableError:
        read = None
    if not isinstance(read, dict):
        return cell, 0
    texts, starts = (read.get(key) or [""] for key in ("text", "answer_start"))
    text, start = (one[0] if isinstance(one, list) else one for one in (texts, starts))
    return str(text), start if type(start) is int else 0


def _context(tokens: Tokens) -> NDArray[np.intp]:
    begins = second_from(tokens.text) or 0
    found = np.flatnonzero(~tokens.special & (tokens.starts >= begins))
    if not len(found):
        raise ItemError("no-context", "no token of the context is left")
    return found


def _answer(tokens: Tokens, first: int, last: int) -> TaggedEntity:
    span = TaggedSpan(start=int(tokens.starts[first]), end=int(tokens.ends[last]), type=ANSWER)
    return TaggedEntity(span=span, labels=(0, 1), positions=(first, last))
