"""The records of explained answers: in reading order, cut to what a token can depend on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np

from transexplain.explaining.answer_tokens import Asked, Reading
from transexplain.methods.batch_explanation import split
from transexplain.models.answer_reading import Value
from transexplain.models.configs import LanguageKind
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import Attribution, Ledger
from transexplain.types.prompts import AnswerAttribution

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
        ledger = _sum_of(first.ledger, last.ledger)
    return ExplainedTokens(
        replace(last, relevance=relevance, logit=first.logit + last.logit, ledger=ledger),
        (*explained_tokens.asked, *other.asked),
        None,
        explained_tokens.log_probability + other.log_probability,
    )


def _sum_of(ledger: Ledger, other: Ledger) -> Ledger:
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(Ledger)):
        a, b = getattr(ledger, name), getattr(other, name)
        if isinstance(a, Mapping):
            found[name] = {kind: a.get(kind, 0.0) + b.get(kind, 0.0) for kind in {**a, **b}}
        else:
            found[name] = a + b
    return Ledger(**found)


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


def _read_text(reading: Reading, read: int) -> Any:
    """The text of the first `read` positions; None where the prompt was given as numbers."""
    if reading.text is None or read <= reading.prompt.length:
        return reading.text and reading.prompt.item.content
    return reading.text[: int(reading.features.ends[read - 1])]


def record(
    explained_tokens: ExplainedTokens,
    kind: LanguageKind,
    reading: Reading,
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
