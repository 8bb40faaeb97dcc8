"""The public functions for language models: explain a token of the answer, or the context of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, ItemError
from transexplain.extras.language.answer_loop import (
    AnswerRequest,
    Per,
    asking,
    read_prompt,
    read_until,
    reading_of,
)
from transexplain.extras.language.answer_loop import explain_answers as _explain
from transexplain.extras.language.language_model import LanguageModel
from transexplain.extras.language.load_language import load_language_model
from transexplain.extras.language.prompt_encoder import Value
from transexplain.methods import facts_of
from transexplain.methods.method_table import GRADIENT, RELEVANCE
from transexplain.models.loaded_model import checked_model, failure
from transexplain.types.items import Item, ItemFailure
from transexplain.types.prompts import ContextAttribution, Prompt
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import AnswerTarget, parse_answer_target

OnError = Literal["raise", "record"]
#: methods that need no more of a position than its vector at the input layer
_OF_PICTURES = {*RELEVANCE, *GRADIENT}

__all__ = ["attribute_context", "explain_answers", "load_language_model"]


@torch.inference_mode(False)
def explain_answers(
    model: LanguageModel,
    prompts: Any,
    method: str | MethodSpec = "lrp",
    target: Any = "next",
    *,
    value: Value = "logit",
    per: Per = "token",
    window: int = 64,
    on_error: OnError = "raise",
    **params: Any,
) -> list[Any]:
    """Explain tokens that a language model predicts, is given, or generates.

    Args:
        model: what `load_language_model` gave.
        prompts: a text, a mapping of the names of its parts to their texts, a `Prompt` (of a
            model that reads pictures with one), token numbers (`{"input_ids": [...]}`), an `Item`
            with one of these, or a list of these.
        method: name in the method registry, or a MethodSpec with its parameters.
        target: `next` (the predicted token), `next:<token>`, `contrast:<a>-<b>`,
            `continuation:<text>`, `continuation` (the prompt's own), `generate:<n>` (what the
            model goes on with, the likeliest token each time), a mapping form, or several.
        value: what of a token is explained: its `logit` or its `log-probability`.
        per: one attribution for each `token`, or one for the log-probability of the `answer`.
        window: tokens of an answer that share a forward pass; a smaller one needs less memory.
        on_error: `raise` ItemError at the first prompt that fails, or `record` an ItemFailure in
            its place.
        params: parameters of the method.

    Returns:
        One `AnswerAttribution` for each prompt, target and token, in this order.

    Raises:
        ItemError: a prompt cannot be explained and `on_error` is `raise`.
        TargetError: what is no target.
        EngineError: an operator without a rule.
        ConfigurationError: what the method does not take.
    """
    results: list[Any] = []
    request = _request(model, method, target, value, per, window, params)
    if on_error not in get_args(OnError):
        raise ConfigurationError(f"on_error cannot be {on_error!r}; it is raise or record")
    for answer in _explain(model, _items(prompts), request):
        if isinstance(answer, ItemFailure) and on_error == "raise":
            raise ItemError(answer.kind, answer.message)
        results += [answer] if isinstance(answer, ItemFailure) else answer
    return results


@torch.inference_mode(False)
def attribute_context(  # noqa: PLR0913 - options of a public function
    model: LanguageModel,
    prompts: Any,
    method: str | MethodSpec = "lrp",
    target: Any = "generate",
    *,
    parts: Sequence[str] | None = None,
    samples: int = 64,
    seed: int = 0,
    drops: Sequence[int] = (),
    on_error: OnError = "raise",
    **params: Any,
) -> list[Any]:
    """Score the parts of prompts (documents, sentences) by what an answer owes to them.

    Args:
        model: what `load_language_model` gave.
        prompts: mappings of the names of parts to their texts, or `Prompt`s; one or a list.
        method: name in the method registry (relevance, summed over each part's tokens),
            `leave-one-out` (the fall of the log-probability without each part), or `context-cite`
            (Cohen-Wang et al. 2024: Lasso on random subsets of the parts).
        target: the answer; see `explain_answers`.
        parts: names of the parts to score; default: all but the last.
        samples: subsets that `context-cite` draws for each prompt.
        seed: of these draws.
        drops: numbers k; measured is how far the answer's log-probability falls without the k parts
            of the largest scores.
        on_error: as of `explain_answers`.
        params: parameters of the method.

    Returns:
        One `ContextAttribution` for each prompt.

    Raises:
        ItemError: a prompt cannot be explained and `on_error` is `raise`.
        ConfigurationError: a part that a prompt does not have, and numbers that are none.
    """

    spec = method if isinstance(method, MethodSpec) else MethodSpec(name=method)
    plain = MethodSpec() if spec.name in REMOVING else spec
    request = _request(model, plain, target, "logit", "answer", 64, params)
    if len(request.targets) != 1 or on_error not in get_args(OnError):
        raise ConfigurationError(
            "context is attributed for one target; on_error is raise or record"
        )
    for number in (samples, *drops):
        if type(number) is not int or number < 1:
            raise ConfigurationError(f"samples and drops are numbers above 0, not {number!r}")
    results: list[Any] = []
    spec = spec if spec.name in REMOVING else request.method
    scored = partial(attribute, model, parts=parts, samples=samples, seed=seed, drops=tuple(drops))
    for item in _items(prompts):
        try:
            results.append(scored(item, request.targets[0], spec))
        except ItemError as error:
            if on_error == "raise":
                raise
            results.append(failure(item, error))
    return results


def _request(
    model: Any,
    method: str | MethodSpec,
    target: Any,
    value: Value,
    per: Per,
    window: int,
    params: Mapping[str, Any],
) -> AnswerRequest:
    checked_model(LanguageModel, model)
    spec = method if isinstance(method, MethodSpec) else MethodSpec(name=method)
    if "text" not in facts_of(spec.name).modalities:
        raise ConfigurationError(f"method {spec.name!r} is not for texts")
    if model.pictures is not None and spec.name not in _OF_PICTURES:
        raise ConfigurationError(
            f"method {spec.name!r} is not for prompts with pictures, which are explained by rules "
            "or gradients: choose another, such as lrp"
        )
    targets = target if isinstance(target, list | tuple) else [target]
    return AnswerRequest(
        method=replace(spec, params={**spec.params, **params}),
        targets=tuple(parse_answer_target(text) for text in targets),
        value=value,
        per=per,
        window=window,
    )


def _items(prompts: Any) -> list[Item]:
    """Each prompt as an item; one prompt as a list of one."""
    single = isinstance(prompts, str | Mapping | Prompt | Item) or not isinstance(prompts, Sequence)
    items = []
    for index, prompt in enumerate([prompts] if single else prompts):
        if isinstance(prompt, Item):
            items.append(prompt)
            continue
        encoded = isinstance(prompt, Mapping) and "input_ids" in prompt
        content = prompt if encoded else Prompt.of(prompt)
        items.append(Item(id=str(index), index=index, content=content))
    return items


#: without one part at a time, and a regression over random subsets of the parts
REMOVING = ("leave-one-out", "context-cite")
_LASSO = 0.01  #: weight of the penalty, as Cohen-Wang et al. 2024 have it


def _of_prompt(item: Item, prompt: Prompt) -> Item:
    return Item(id=item.id, index=item.index, content=prompt.text)


@torch.no_grad()
def _log_probability(
    model: LanguageModel,
    item: Item,
    prompt: Prompt,
    answer: tuple[int, ...],
    without: Sequence[str] = (),
) -> float:
    """Of the whole answer in nats, behind the prompt without some of its parts."""
    encoded = read_prompt(model, _of_prompt(item, prompt.without(without)))
    fixed = AnswerTarget(spec="continuation", kind="continuation", ids=answer)
    reading = reading_of(model, encoded, fixed, None)
    asked = reading.asked
    read = read_until(model, reading, len(asked))
    row = asking(read, asked, [(target.token,) for target in asked])
    view = model.answering(len(asked), "log-probability")
    logits = view.logits(view.collate([row]))
    return float(logits[0, : len(asked)].double().sum())


#: parts that are left out -> the log-probability of an answer
Without = Callable[[Sequence[str]], float]


def context_cite(
    log_probability: Without, parts: Sequence[str], samples: int, seed: int
) -> NDArray[np.float64]:
    """(N,) weights of a sparse linear model of the answer's logit-scaled probability.

    Each of `samples` passes leaves every part out with probability one half; the Lasso regresses
    log p - log(1 - p) on what was left in (Cohen-Wang et al. 2024, ContextCite, section 3).
    """
    from sklearn.linear_model import Lasso

    rng = np.random.default_rng(seed)
    kept = rng.random((samples, len(parts))) < 0.5
    left_out = [[part for part, stays in zip(parts, row, strict=True) if not stays] for row in kept]
    logs = np.array([log_probability(some) for some in left_out])
    scaled = logs - np.log(-np.expm1(np.minimum(logs, -1e-12)))
    fitted = Lasso(alpha=_LASSO).fit(kept.astype(float), scaled)
    return np.asarray(fitted.coef_, dtype=np.float64)


def by_relevance(
    model: LanguageModel, item: Item, answer: tuple[int, ...], method: MethodSpec
) -> dict[str, float]:
    """The relevance of each part of a prompt for the log-probability of the answer.

    LRP needs one forward and one backward pass. Raises ItemError.
    """
    target = AnswerTarget(spec="continuation", kind="continuation", ids=answer)
    request = AnswerRequest(method=method, targets=(target,), per="answer")
    (explained,) = _explain(model, [item], request)
    if isinstance(explained, ItemFailure):
        raise ItemError(explained.kind, explained.message)
    return {segment.name: segment.relevance for segment in explained[0].segments()}


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
    encoded = read_prompt(model, _of_prompt(item, prompt))
    reading = reading_of(model, encoded, target, prompt.continuation)
    if any(token.against is not None for token in reading.asked):
        raise ItemError("bad-target", "a contrast of two tokens is no answer")
    log_probability = partial(_log_probability, model, item, prompt, reading.answer)
    whole = log_probability()
    if method.name == "leave-one-out":
        falls = [whole - log_probability([part]) for part in wanted]
        scores, passes = np.array(falls), len(wanted) + 1
    elif method.name == "context-cite":
        scores, passes = context_cite(log_probability, wanted, samples, seed), samples
    else:
        plain = Item(id=item.id, index=item.index, content=prompt)
        sums = by_relevance(model, plain, reading.answer, method)
        scores, passes = np.array([sums[part] for part in wanted]), 2
    best = [wanted[place] for place in np.argsort(-scores, kind="stable")]
    return ContextAttribution(
        item_id=item.id,
        method=method.name,
        answer=reading.answer_text,
        answer_ids=reading.answer,
        log_probability=whole,
        scores=dict(zip(wanted, scores.tolist(), strict=True)),
        passes=passes,
        drops={k: whole - log_probability(best[:k]) for k in drops},
    )
