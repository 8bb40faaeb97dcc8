"""Parts of a prompt scored by relevance, by leaving them out, and by ContextCite's regression."""

import numpy as np
import pytest
import tiny_language as tiny
import torch
from sklearn.linear_model import Lasso

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError
from transexplain.extras.language.language_model import LanguageModel
from transexplain.types.items import ItemFailure

PARTS = {
    "one": "The nurse was late.",
    "two": " The doctor was early.",
    "three": " The film was good.",
    "question": " she said",
}
ANSWER = " that he was"
PROMPT = te.Prompt.of(PARTS, continuation=ANSWER)


@pytest.fixture(scope="module")
def causal() -> LanguageModel:
    return te.load_language_model(tiny.causal(), tiny.byte_pairs())


def log_probability(model: LanguageModel, without: set[str]) -> float:
    """Of the answer behind the other parts, by the module itself."""
    before = "".join(text for name, text in PARTS.items() if name not in without)
    ids = model.tokenizer(before)["input_ids"]
    answer = model.tokenizer(ANSWER)["input_ids"]
    with torch.no_grad():
        logits = model.module(input_ids=torch.tensor([ids + answer])).logits[0]
    logs = logits[len(ids) - 1 : -1].log_softmax(-1)
    return float(sum(logs[place, token] for place, token in enumerate(answer)))


def test_leave_one_out_is_the_fall_without_each_part(causal: LanguageModel) -> None:
    (found,) = te.attribute_context(causal, PROMPT, "leave-one-out", "continuation", drops=[1, 2])
    whole = log_probability(causal, set())
    assert found.log_probability == pytest.approx(whole)
    wanted = {name: whole - log_probability(causal, {name}) for name in ("one", "two", "three")}
    assert found.scores == pytest.approx(wanted)
    best = sorted(wanted, key=lambda name: -wanted[name])
    assert found.drops[2] == pytest.approx(whole - log_probability(causal, set(best[:2])))
    assert (found.passes, found.answer) == (4, ANSWER)


def test_context_cite_is_a_lasso_on_the_logit_of_the_probability(causal: LanguageModel) -> None:
    (found,) = te.attribute_context(causal, PROMPT, "context-cite", "continuation", samples=12)
    names = ["one", "two", "three"]
    kept = np.random.default_rng(0).random((12, 3)) < 0.5
    logs = np.array(
        [
            log_probability(causal, {n for n, k in zip(names, row, strict=True) if not k})
            for row in kept
        ]
    )
    odds = np.log(np.exp(logs) / (1 - np.exp(logs)))
    wanted = Lasso(alpha=0.01).fit(kept.astype(float), odds).coef_
    assert list(found.scores.values()) == pytest.approx(wanted.tolist(), abs=1e-6)
    assert found.passes == 12


def test_relevance_is_summed_over_each_part(causal: LanguageModel) -> None:
    (found,) = te.attribute_context(causal, PROMPT, target="continuation", parts=["two", "one"])
    (whole,) = te.explain_answers(causal, PROMPT, target="continuation", per="answer")
    sums = {segment.name: segment.relevance for segment in whole.segments()}
    assert found.scores == pytest.approx({name: sums[name] for name in ("two", "one")})
    assert (found.passes, found.log_probability) == (2, pytest.approx(whole.log_probability))


def test_the_answer_may_be_generated_and_an_encoder_decoder_has_parts_too() -> None:
    both = te.load_language_model(tiny.encoder_decoder(), tiny.byte_pairs(ends=True))
    (one,) = te.attribute_context(both, PARTS, "leave-one-out", "generate:3", drops=[1])
    (other,) = te.attribute_context(both, PARTS, target="generate:3")
    assert one.answer_ids == other.answer_ids and one.scores.keys() == other.scores.keys()
    assert one.drops[1] == pytest.approx(max(one.scores.values()))


def test_what_is_wrong_is_named(causal: LanguageModel) -> None:
    with pytest.raises(ConfigurationError, match="no part 'four'"):
        te.attribute_context(causal, PROMPT, parts=["four"])
    with pytest.raises(ConfigurationError, match="named parts"):
        te.attribute_context(causal, "a text", target="next")
    with pytest.raises(ConfigurationError, match="above 0"):
        te.attribute_context(causal, PROMPT, "context-cite", samples=0)
    with pytest.raises(ItemError, match="no answer"):
        te.attribute_context(causal, PROMPT, target="contrast:he-she")
    bad = te.Prompt.of(PARTS)
    found = te.attribute_context(causal, [bad, PROMPT], target="continuation", on_error="record")
    assert (type(found[0]), found[0].kind) == (ItemFailure, "no-continuation")
    assert isinstance(found[1], te.ContextAttribution)
