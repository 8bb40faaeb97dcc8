"""Inseq's and Captum's explanations of a causal model's answers beside those of this package.

    python -m benchmarks.language_peers FOLDER --shared DIR [--prompts 10] [--answer 8]

FOLDER is the model of `benchmarks.topic_prompts`. Of each prompt the model generates an answer,
the likeliest token each time; every contender scores the prompt's tokens by the log-probability of
that answer. Printed are, for each contender: forward passes of the model and the sequences that
they read, both counted by a hook; processor time in forward passes of prompt and answer, of the
same round; and Spearman's rank correlation of its scores with those of `lrp` and of this package's
gradient x input, and with the fall of the log-probability without each token, the mean over the
prompts. What is not installed is named with the remedy, and the others are measured.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import transexplain as te
from benchmarks.topic_prompts import prompts, texts_by_topic
from transexplain.extras.language.language_model import LanguageModel
from transexplain.rank_correlation import rank_similarity

Scores = NDArray[np.float64]  #: (T,) of the prompt's tokens
_STEPS = 50  #: of integrated gradients
LRP, GRADIENT, ABLATION = "lrp, the whole answer", "gradient-x-input, the whole answer", "without"


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and what a model generates behind it."""

    text: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    answer_text: str


@dataclass(frozen=True, slots=True)
class Contender:
    """One explanation of an answer by the tokens of its prompt."""

    name: str
    run: Callable[[Case], Scores]


@dataclass(slots=True)
class Row:
    """What was measured of a contender, an entry for each prompt."""

    name: str
    forwards: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)  #: that those read, as rows of their batches
    ratios: list[float] = field(default_factory=list)  #: time, in forward passes
    scores: list[Scores] = field(default_factory=list)


def cases(model: LanguageModel, texts: Iterator[str], count: int, answer: int) -> list[Case]:
    """Prompts whose generated answers are read as the same tokens behind them, all of one length.

    A text whose tokens the tokenizer would cut otherwise is left out: not every contender takes
    token numbers.
    """
    found: list[Case] = []
    for text in texts:
        prompt = model.tokenizer(text)["input_ids"]
        made = model.generate(prompt, answer)
        whole = text + model.tokenizer.decode(made)
        if len(made) == answer and model.tokenizer(whole)["input_ids"] == [*prompt, *made]:
            found.append(Case(text, tuple(prompt), tuple(made), whole[len(text) :]))
        if len(found) == count:
            break
    return found


def own(model: LanguageModel) -> list[Contender]:
    """This package's: the whole answer in one backward pass, or each of its tokens in its own."""

    def run(case: Case, method: str, per: Any, **more: Any) -> Scores:
        found = te.explain_answers(
            model,
            {"input_ids": list(case.prompt)},
            method,
            {"continuation": list(case.answer)},
            value="log-probability",
            per=per,
            **more,
        )
        return np.sum([one.relevance[: len(case.prompt)] for one in found], axis=0)

    # the peers' scores are of the word embeddings alone, before positions are added
    embedded = {"at": "words"}
    return [
        Contender(LRP, partial(run, method="lrp", per="answer")),
        Contender("lrp, each token", partial(run, method="lrp", per="token")),
        Contender("attnlrp, the whole answer", partial(run, method="attnlrp", per="answer")),
        Contender(GRADIENT, partial(run, method="gradient-x-input", per="answer", **embedded)),
    ]


def captum(module: Any, tokenizer: Any) -> list[Contender]:
    """Those of Captum's `LLMGradientAttribution` and `LLMAttribution`."""
    from captum.attr import (
        FeatureAblation,
        LayerGradientXActivation,
        LayerIntegratedGradients,
        LLMAttribution,
        LLMGradientAttribution,
        TextTokenInput,
    )

    words = module.get_input_embeddings()

    def run(case: Case, by: Any, **more: Any) -> Scores:
        given = TextTokenInput(case.text, tokenizer)
        found = by.attribute(given, target=torch.tensor(case.answer), **more)
        return np.asarray(found.seq_attr.detach().double().cpu())

    gradient = LLMGradientAttribution(LayerGradientXActivation(module, words), tokenizer)
    path = LLMGradientAttribution(LayerIntegratedGradients(module, words), tokenizer)
    without = LLMAttribution(FeatureAblation(module), tokenizer)
    return [
        Contender("captum: gradient x activation", partial(run, by=gradient)),
        Contender("captum: integrated gradients", partial(run, by=path, n_steps=_STEPS)),
        Contender("captum: feature ablation", partial(run, by=without, forward_in_tokens=False)),
    ]


def inseq(module: Any, tokenizer: Any) -> list[Contender]:
    """Those of Inseq, of the log-probability of each token of the answer."""
    import inseq as package

    def run(case: Case, by: Any, **more: Any) -> Scores:
        found = by.attribute(
            case.text,
            case.text + case.answer_text,
            attributed_fn="probability",
            logprob=True,
            show_progress=False,
            **more,
        )
        scores = found.sequence_attributions[0].target_attributions.double()
        return np.asarray(scores.sum(dim=-1)[: len(case.prompt)].nan_to_num().sum(dim=1))

    def loaded(method: str) -> Any:
        return package.load_model(module, method, tokenizer=tokenizer, device="cpu")

    return [
        Contender("inseq: input x gradient", partial(run, by=loaded("input_x_gradient"))),
        Contender(
            "inseq: integrated gradients",
            partial(run, by=loaded("integrated_gradients"), n_steps=_STEPS),
        ),
    ]


def without_each(model: LanguageModel, case: Case) -> Scores:
    """(T,) the fall of the answer's log-probability without each token of the prompt."""
    whole = _log_probability(model.module, case.prompt, case.answer)
    left = (case.prompt[:k] + case.prompt[k + 1 :] for k in range(len(case.prompt)))
    return np.array([whole - _log_probability(model.module, one, case.answer) for one in left])


@torch.no_grad()
def _log_probability(module: Any, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
    logits = module(input_ids=torch.tensor([[*prompt, *answer]])).logits[0]
    logs = logits[len(prompt) - 1 : -1].double().log_softmax(-1)
    return float(logs[torch.arange(len(answer)), torch.tensor(answer)].sum())


def measured(
    model: LanguageModel, contenders: list[Contender], given: list[Case]
) -> tuple[list[Row], list[Scores]]:
    """A row for each contender, and the falls without each token, for each prompt."""
    read: list[int] = []

    def count(_module: Any, args: Any, kwargs: Any) -> None:
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        read.append(len(tensors[0]))

    rows, falls = [Row(one.name) for one in contenders], []
    for one in contenders:  # once without a watch: what is imported and kept on first use
        one.run(given[0])
    # not of the whole model, whose `forward` Captum calls past its hooks
    handle = model.module.base_model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        for case in given:
            falls.append(without_each(model, case))
            forward = min(_seconds(model, case) for _ in range(5))
            for one, row in zip(contenders, rows, strict=True):
                read.clear()
                begun = time.process_time()
                scores = one.run(case)
                row.ratios.append((time.process_time() - begun) / forward)
                row.forwards.append(len(read))
                row.sequences.append(sum(read))
                row.scores.append(scores)
    finally:
        handle.remove()
    return rows, falls


def _seconds(model: LanguageModel, case: Case) -> float:
    begun = time.process_time()
    _log_probability(model.module, case.prompt, case.answer)
    return time.process_time() - begun


def peers(model: LanguageModel) -> tuple[list[Contender], list[str]]:
    """The contenders of what is installed, and for the others what to do."""
    found, missing = [], []
    for name, made in {"captum": captum, "inseq": inseq}.items():
        try:
            found += made(model.module, model.tokenizer)
        except ImportError as error:
            what = f"is not installed: pip install {name}"
            if _version(name) != "-":
                what = f"{_version(name)} cannot be imported: {error}"
            missing.append(f"{name} {what}")
    return found, missing


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def table(rows: list[Row], falls: list[Scores]) -> Iterator[str]:
    """The lines that are printed."""
    by = {row.name: row.scores for row in rows}
    yield f"{'contender':36} forwards  sequences    time   lrp  g x i  without"
    for row in rows:
        alike = [_alike(row.scores, by[LRP]), _alike(row.scores, by[GRADIENT])]
        shown = f"{alike[0]:5.2f}  {alike[1]:5.2f}  {_alike(row.scores, falls):7.2f}"
        yield (
            f"{row.name:36} {np.mean(row.forwards):8.0f}  {np.mean(row.sequences):9.0f}  "
            f"{np.median(row.ratios):6.1f} {shown}"
        )
    for row in rows:
        if row.name in ("captum: gradient x activation", "inseq: input x gradient"):
            apart = max(
                float(np.abs(a - b).max() / np.abs(b).max())
                for a, b in zip(row.scores, by[GRADIENT], strict=True)
            )
            yield f"{row.name} and {GRADIENT} differ by at most {apart:.1e} of the largest score"


def _alike(some: list[Scores], others: list[Scores]) -> float:
    return float(np.mean([rank_similarity(a, b) for a, b in zip(some, others, strict=True)]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shared", type=Path, default=os.environ.get("TRANSEXPLAIN_SHARED"))
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--answer", type=int, default=8, help="tokens")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = te.load_language_model(given.folder)
    source = prompts(texts_by_topic(given.shared, held_out=True), seed=3)
    texts = ("".join(one.parts.values()) for one in islice(source, 10 * given.prompts))
    found = cases(model, texts, given.prompts, given.answer)
    others, missing = peers(model)
    names = ("torch", "transformers", "captum", "inseq")
    print(", ".join(f"{name} {_version(name)}" for name in names))
    sizes = [len(one.prompt) for one in found]
    print(f"{len(found)} prompts of {min(sizes)} to {max(sizes)} tokens, answers of {given.answer}")
    for line in table(*measured(model, own(model) + others, found)):
        print(line)
    for one in missing:
        print(one)


if __name__ == "__main__":
    main()
