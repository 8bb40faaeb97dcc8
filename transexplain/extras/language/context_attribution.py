"""What an answer owes to each part of its prompt: by relevance, or by leaving parts out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, ItemError
from transexplain.extras.language.answer_loop import (
    AnswerRequest,
    asking,
    explain_answers,
    read_prompt,
    read_until,
    reading_of,
)
from transexplain.extras.language.language_model import LanguageModel
from transexplain.types.items import Item, ItemFailure
from transexplain.types.prompts import ContextAttribution, Prompt
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import AnswerTarget

#: without one part at a time, and a regression over random subsets of the parts
REMOVING = ("leave-one-out", "context-cite")
_LASSO = 0.01  #: weight of the penalty, as Cohen-Wang et al. 2024 have it


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """An answer to a prompt, whose probability is measured for other prompts."""

    model: LanguageModel
    item: Item
    prompt: Prompt
    answer: tuple[int, ...]
    text: str

    @classmethod
    def of(
        cls, model: LanguageModel, item: Item, prompt: Prompt, target: AnswerTarget
    ) -> "Answered":
        """The answer that a target means; raises ItemError."""
        encoded = read_prompt(model, _item(item, prompt))
        reading = reading_of(model, encoded, target, prompt.continuation)
        if any(target.against is not None for target in reading.asked):
            raise ItemError("bad-target", "a contrast of two tokens is no answer")
        return cls(model, item, prompt, reading.answer, reading.answer_text)

    @torch.no_grad()
    def log_probability(self, without: Sequence[str] = ()) -> float:
        """Of the whole answer in nats, behind the prompt without some of its parts."""
        left = self.prompt.without(without)
        encoded = read_prompt(self.model, _item(self.item, left))
        fixed = AnswerTarget(spec="continuation", kind="continuation", ids=self.answer)
        reading = reading_of(self.model, encoded, fixed, None)
        asked = reading.asked
        read = read_until(self.model, reading, len(asked))
        row = asking(read, asked, [(target.token,) for target in asked])
        view = self.model.answering(len(asked), "log-probability")
        logits = view.logits(view.collate([row]))
        return float(logits[0, : len(asked)].double().sum())


def _item(item: Item, prompt: Prompt) -> Item:
    return Item(id=item.id, index=item.index, content=prompt.text)


def leave_one_out(answered: Answered, parts: Sequence[str]) -> NDArray[np.float64]:
    """(N,) how much the answer's log-probability falls without each part, alone: N + 1 passes."""
    whole = answered.log_probability()
    return np.array([whole - answered.log_probability([part]) for part in parts])


def context_cite(
    answered: Answered, parts: Sequence[str], samples: int, seed: int
) -> NDArray[np.float64]:
    """(N,) weights of a sparse linear model of the answer's logit-scaled probability.

    Each of `samples` passes leaves every part out with probability one half; the Lasso regresses
    log p - log(1 - p) on what was left in (Cohen-Wang et al. 2024, ContextCite, section 3).
    """
    from sklearn.linear_model import Lasso

    rng = np.random.default_rng(seed)
    kept = rng.random((samples, len(parts))) < 0.5
    logs = np.array([answered.log_probability(_left_out(parts, row)) for row in kept])
    scaled = logs - np.log(-np.expm1(np.minimum(logs, -1e-12)))
    fitted = Lasso(alpha=_LASSO).fit(kept.astype(float), scaled)
    return np.asarray(fitted.coef_, dtype=np.float64)


def _left_out(parts: Sequence[str], kept: NDArray[np.bool_]) -> list[str]:
    return [part for part, stays in zip(parts, kept, strict=True) if not stays]


def by_relevance(
    answered: Answered, parts: Sequence[str], method: MethodSpec
) -> NDArray[np.float64]:
    """(N,) the relevance of each part for the log-probability of the answer; raises ItemError.

    LRP needs one forward and one backward pass.
    """
    target = AnswerTarget(spec="continuation", kind="continuation", ids=answered.answer)
    request = AnswerRequest(method=method, targets=(target,), per="answer")
    item = Item(id=answered.item.id, index=answered.item.index, content=answered.prompt)
    (answer,) = explain_answers(answered.model, [item], request)
    if isinstance(answer, ItemFailure):
        raise ItemError(answer.kind, answer.message)
    sums = {segment.name: segment.relevance for segment in answer[0].segments()}
    return np.array([sums[part] for part in parts])


def attribute(
    model: LanguageModel,
    item: Item,
    target: AnswerTarget,
    method: MethodSpec,
    *,
    parts: Sequence[str] | None,
    samples: int,
    seed: int,
    drops: Sequence[int],
) -> ContextAttribution:
    """The scores of the parts of one prompt; see `explain_language.attribute_context`."""
    prompt = Prompt.of(item.content)
    names = [name for name, _ in prompt.parts]
    wanted = names[:-1] if parts is None else list(parts)
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise ConfigurationError(
            f"the prompt has no part {unknown[0]!r}; it has: {', '.join(names)}"
            if unknown
            else "the prompt needs named parts: a mapping of their names to their texts"
        )
    answered = Answered.of(model, item, prompt, target)
    whole = answered.log_probability()
    scores, passes = _scores(answered, wanted, method, samples, seed)
    return ContextAttribution(
        item_id=item.id,
        method=method.name,
        answer=answered.text,
        answer_ids=answered.answer,
        log_probability=whole,
        scores=dict(zip(wanted, scores.tolist(), strict=True)),
        passes=passes,
        drops={k: whole - answered.log_probability(_best(wanted, scores, k)) for k in drops},
    )


def _best(parts: Sequence[str], scores: NDArray[np.float64], count: int) -> list[str]:
    """The `count` parts with the largest scores; of equals the first."""
    return [parts[place] for place in np.argsort(-scores, kind="stable")[:count]]


def _scores(
    answered: Answered, parts: Sequence[str], method: MethodSpec, samples: int, seed: int
) -> tuple[NDArray[np.float64], int]:
    if method.name == "leave-one-out":
        return leave_one_out(answered, parts), len(parts) + 1
    if method.name == "context-cite":
        return context_cite(answered, parts, samples, seed), samples
    return by_relevance(answered, parts, method), 2
