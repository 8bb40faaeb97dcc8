"""Answers of language models, explained: next tokens, contrasts, continuations, generated texts."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language as tiny
import torch
import transformers
from command_line_here import run_here
from safetensors.torch import load_file

import transexplain as te
from orchestrator.spec.data_section import absolute_model
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError, TargetError
from transexplain.extras.language import answer_loop
from transexplain.extras.language.language_model import LanguageModel
from transexplain.models.load import present_files
from transexplain.types.items import ItemFailure

PROMPT = "The nurse said that"
PARTS = {"system": "The film was good.", "document": " The capital of France", "question": " is"}


@pytest.fixture(scope="module")
def causal() -> LanguageModel:
    return te.load_language_model(tiny.causal(), tiny.byte_pairs())


@pytest.fixture(scope="module")
def both_sides() -> LanguageModel:
    return te.load_language_model(tiny.encoder_decoder(), tiny.byte_pairs(ends=True))


@pytest.fixture(scope="module")
def masked() -> LanguageModel:
    return te.load_language_model(tiny.masked(), tiny.byte_pairs(begins=True, ends=True))


def logits_after(model: LanguageModel, one: te.AnswerAttribution) -> torch.Tensor:
    """(V,) at the position that predicts the explained token, by the module itself."""
    ids = model.tokenizer(PROMPT)["input_ids"]
    before = list(one.answer_ids[: one.step])
    with torch.no_grad():
        if model.kind == "causal":
            return model.module(input_ids=torch.tensor([ids + before])).logits[0, -1]
        given = {
            "input_ids": torch.tensor([ids]),
            "decoder_input_ids": torch.tensor([[2, *before]]),
        }
        return model.module(**given).logits[0, -1]


@pytest.mark.parametrize("name", ["causal", "both_sides"])
@pytest.mark.parametrize("value", ["logit", "log-probability"])
def test_tokens_of_a_continuation(name: str, value: Any, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    found = te.explain_answers(model, PROMPT, target="continuation:he was late", value=value)
    assert [one.step for one in found] == list(range(len(found)))
    assert "".join(one.token for one in found) == found[0].answer
    assert found[0].answer.strip() == "he was late"
    for one in found:
        z = logits_after(model, one)
        token = one.answer_ids[one.step or 0]
        log = float(z.log_softmax(-1)[token])
        assert one.log_probability == pytest.approx(log, rel=1e-9)
        assert one.logit == pytest.approx(float(z[token]) if value == "logit" else log, rel=1e-9)
        assert one.ledger is not None and one.ledger.relative_gap < 1e-12
        # the prompt, and the answer before the token; an encoder-decoder's begins with a special
        read = len(model.tokenizer(PROMPT)["input_ids"]) + (one.step or 0) + (name != "causal")
        assert len(one.relevance) == len(one.features) == read
        assert sum(each.relevance for each in one.segments()) == pytest.approx(one.relevance.sum())


@pytest.mark.parametrize("name", ["causal", "both_sides"])
def test_a_shared_forward_gives_what_passes_of_their_own_give(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = request.getfixturevalue(name)
    copies = te.explain_answers(model, PROMPT, target="generate:4")
    assert len(copies) >= 2
    monkeypatch.setattr(answer_loop, "_COPIED", 0)
    shared = te.explain_answers(model, PROMPT, target="generate:4")
    alone = te.explain_answers(model, PROMPT, target="generate:4", window=1)
    for one, *others in zip(copies, shared, alone, strict=True):
        for other in others:
            np.testing.assert_allclose(other.relevance, one.relevance, atol=1e-12)
            assert (other.token, other.text, other.answer) == (one.token, one.text, one.answer)


@pytest.mark.parametrize("name", ["causal", "both_sides"])
@pytest.mark.parametrize("window", [2, 64])
def test_the_whole_answer_is_the_sum_of_its_tokens(
    name: str, window: int, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(name)
    target = "continuation:he was late"
    tokens = te.explain_answers(model, PROMPT, target=target, value="log-probability")
    (whole,) = te.explain_answers(model, PROMPT, target=target, per="answer", window=window)
    assert whole.step is None
    assert whole.logit == pytest.approx(sum(one.logit for one in tokens))
    assert whole.log_probability == pytest.approx(whole.logit)
    assert whole.ledger is not None and whole.ledger.relative_gap < 1e-12
    for part in whole.segments():
        each = [s.relevance for one in tokens for s in one.segments() if s.name == part.name]
        assert part.relevance == pytest.approx(sum(each), abs=1e-12)


def test_generated_is_what_the_model_predicts_step_by_step(causal: LanguageModel) -> None:
    found = te.explain_answers(causal, PROMPT, target="generate:3")
    for one in found:
        assert int(logits_after(causal, one).argmax()) == one.answer_ids[one.step or 0]
    (first,) = te.explain_answers(causal, PROMPT, target="next")
    assert first.answer_ids == found[0].answer_ids[:1]
    np.testing.assert_allclose(first.relevance, found[0].relevance, atol=1e-12)


def test_a_contrast_is_a_difference_and_a_space_stands_before_a_word(causal: LanguageModel) -> None:
    pair, he, she = te.explain_answers(
        causal, PROMPT, target=["contrast:he-she", "next: he", {"next": " she"}]
    )
    np.testing.assert_allclose(pair.relevance, he.relevance - she.relevance, atol=1e-12)
    assert (pair.token, he.token, she.token) == ("he-she", " he", " she")
    by_number = te.explain_answers(causal, PROMPT, target=f"next:#{he.answer_ids[0]}")
    np.testing.assert_array_equal(by_number[0].relevance, he.relevance)


def test_parts_of_a_prompt_are_segments(causal: LanguageModel) -> None:
    prompt = te.Prompt.of(PARTS, continuation=" Paris and Rome")
    found = te.explain_answers(causal, prompt, target="continuation")
    last = {segment.name: segment for segment in found[-1].segments()}
    assert list(last) == ["system", "document", "question", "answer"]
    assert last["answer"].tokens == len(found) - 1
    (same, *_) = te.explain_answers(causal, prompt.text, target="continuation:Paris and Rome")
    np.testing.assert_allclose(same.relevance, found[0].relevance, atol=1e-12)


def test_a_mask_is_filled_in(masked: LanguageModel) -> None:
    text = "The nurse said that<mask> was late"
    found = te.explain_answers(masked, text, target=["next", "contrast:he-she"])
    ids = masked.tokenizer(text, return_tensors="pt")["input_ids"]
    z = masked.module(input_ids=ids).logits[
        0, ids[0].tolist().index(masked.tokenizer.mask_token_id)
    ]
    assert found[0].answer_ids == (int(z.argmax()),)
    he, she = masked.tokenizer.convert_tokens_to_ids(["Ġhe", "Ġshe"])
    assert found[1].logit == pytest.approx(float((z[he] - z[she]).detach()))
    assert all(one.ledger.relative_gap < 1e-12 for one in found)
    for wrong, kind in (("no mask here", "no-mask"), ("<mask> and<mask>", "no-mask")):
        (failed,) = te.explain_answers(masked, wrong, on_error="record")
        assert (type(failed), failed.kind) == (ItemFailure, kind)
    with pytest.raises(ItemError, match="fills in one token"):
        te.explain_answers(masked, text, target="generate")


GOOD = te.Prompt.of(PROMPT, " he")


@pytest.mark.parametrize(
    ("prompt", "target", "kind"),
    [
        (f"{PROMPT} ", {"continuation": "he was"}, "joined-token"),
        (" she said" * 60, "next", "too-long"),
        (" she said" * 30, f"continuation:{' he said' * 10}", "too-long"),
        ("  ", "next", "empty-text"),
        (PROMPT, "continuation", "no-continuation"),
        ({"input_ids": [5, 6]}, "continuation:he", "no-tokenizer"),
    ],
)
def test_one_bad_prompt_costs_no_other(
    causal: LanguageModel, prompt: Any, target: Any, kind: str
) -> None:
    found = te.explain_answers(causal, [prompt, GOOD], target=target, on_error="record")
    assert (type(found[0]), found[0].kind) == (ItemFailure, kind)
    assert len(found) > 1 and all(type(one) is te.AnswerAttribution for one in found[1:])
    with pytest.raises(ItemError):
        te.explain_answers(causal, [prompt, GOOD], target=target)


def test_a_word_of_several_tokens_is_named_with_its_pieces(causal: LanguageModel) -> None:
    with pytest.raises(ItemError, match="no single token behind this prompt but"):
        te.explain_answers(causal, PROMPT, target="next:Rumpelstiltskin")
    with pytest.raises(ItemError, match="none of the model's 330"):
        te.explain_answers(causal, PROMPT, target="next:#330")


@pytest.mark.parametrize(
    "target", ["top:3", "contrast:he", "contrast:a-b-c", "generate:0", "generate:x", "next:", 3, {}]
)
def test_wrong_targets_are_refused_before_anything_runs(causal: LanguageModel, target: Any) -> None:
    with pytest.raises(TargetError):
        te.explain_answers(causal, PROMPT, target=target)


def test_wrong_requests(causal: LanguageModel) -> None:
    with pytest.raises(ConfigurationError, match="value is"):
        te.explain_answers(causal, PROMPT, value="probability")
    with pytest.raises(ConfigurationError, match="load_language_model"):
        te.explain_answers(tiny.causal(), PROMPT)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="answer"):
        te.Prompt.of({"answer": "x"})
    with pytest.raises(ModelLoadError, match="no language-model head"):
        te.load_language_model(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    "method",
    ["gradient-x-input", "attnlrp", "saliency", "integrated-gradients", "chefer-lrp", "gae"],
)
def test_other_methods_explain_answers_too(causal: LanguageModel, method: str) -> None:
    found = te.explain_answers(causal, PROMPT, method, "generate:2")
    assert [len(one.relevance) for one in found] == [5, 6]
    assert all(np.isfinite(one.relevance).all() for one in found)
    # what stands behind the token that predicts has no part in it
    assert all(np.abs(one.relevance).sum() > 0 for one in found)


def test_the_command_line_explains_a_folder(tmp_path: Path) -> None:
    tiny.causal().float().save_pretrained(tmp_path)  # type: ignore[operator]
    tiny.byte_pairs().save_pretrained(tmp_path)
    assert te.load_language_model(str(tmp_path)).kind == "causal"
    call = ["explain", PROMPT, "--model", str(tmp_path), "--target", "continuation:he was"]
    shown = run_here(os.environ, tmp_path, *call)
    assert "token 2 of ' he was'" in shown and "answer" in shown
    (document,) = json.loads(run_here(os.environ, tmp_path, *call, "--per", "answer", "--json"))
    assert [part["name"] for part in document["segments"]] == ["prompt", "answer"]


def test_a_classifier_over_next_words(causal: LanguageModel, tmp_path: Path) -> None:
    texts = [PROMPT, "The capital of France is Paris. she said that"]
    classifier = causal.as_classifier(["he", "she"])
    assert classifier.classes == ("he", "she")
    both = te.explain(classifier, texts, target="contrast:he-she")  # one is padded
    for text, one in zip(texts, both, strict=True):
        (same,) = te.explain_answers(causal, text, target="contrast:he-she")
        assert one.logit == pytest.approx(same.logit)
        np.testing.assert_allclose(one.relevance, same.relevance, atol=1e-12)
    (long,) = te.explain(classifier, [" she said" * 60], on_error="record")
    assert (type(long), long.kind) == (ItemFailure, "too-long")
    for words, message in ((["he"], "two or more"), (["he", "Rumpelstiltskin"], "no single token")):
        with pytest.raises(ModelLoadError, match=message):
            causal.as_classifier(words)


@pytest.mark.parametrize("source", ["lm:x", "lm:?answers=a,b", "lm:x?words=a,b", "lm:x?answers=a,"])
def test_sources_of_answers(source: str) -> None:
    with pytest.raises(ModelLoadError, match="the form is lm:FOLDER"):
        te.load_model(source)


def test_a_folder_as_a_classifier(tmp_path: Path) -> None:
    tiny.causal().float().save_pretrained(tmp_path)
    tiny.byte_pairs().save_pretrained(tmp_path)
    source = f"lm:{tmp_path}?answers=he,she"
    loaded = te.load_model(source)
    assert (loaded.classes, loaded.ref.source) == (("he", "she"), source)
    assert "model.safetensors" in present_files(source)
    assert absolute_model(source) == source


@pytest.mark.shared
def test_the_mask_of_a_real_model(shared_dir: Path) -> None:
    models = shared_dir / "real" / "models"
    classifier = te.load_model(models / "minilm-sst2")
    module = transformers.BertForMaskedLM(classifier.module.config).eval()
    weights = load_file(models / "minilm-mlm-head" / "model.safetensors")
    missing, _ = module.load_state_dict(
        {**classifier.module.state_dict(), **{k: v.float() for k, v in weights.items()}},
        strict=False,
    )
    assert all("decoder" in name for name in missing), missing  # tied to the words
    module.tie_weights()
    model = te.load_language_model(module, classifier.encoder.tokenizer)
    text = "the film was a [MASK] and the audience left."
    found = te.explain_answers(model, text, target=["next", "contrast:comedy-success"])
    assert all(one.ledger is not None and one.ledger.relative_gap < 5e-6 for one in found)
    z = module(**model.tokenizer(text, return_tensors="pt")).logits[0, 5]
    assert found[0].answer_ids == (int(z.argmax()),)
    comedy, success = model.tokenizer.convert_tokens_to_ids(["comedy", "success"])
    assert found[1].logit == pytest.approx(float((z[comedy] - z[success]).detach()), abs=1e-4)


@pytest.mark.parametrize("module", [tiny.causal, tiny.masked])
def test_a_language_model_where_a_classifier_is_needed_is_refused_with_the_remedy(
    module: Any, tmp_path: Path
) -> None:
    module().save_pretrained(tmp_path)
    tiny.byte_pairs().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=r"language model .* lm:.*\?answers=WORD,WORD"):
        te.load_model(tmp_path)
