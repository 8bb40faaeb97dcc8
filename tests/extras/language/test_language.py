"""Answers of language models, explained, attributed to parts of a prompt, and generated."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language as tiny
import torch
import transformers
from architectures_record import randomised
from command_line_here import run_here
from sklearn.linear_model import Lasso

import transexplain as te
from orchestrator.spec.data_section import absolute_model
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError, TargetError
from transexplain.extras.language import answer_loop
from transexplain.extras.language.language_model import LanguageModel
from transexplain.extras.language.load_language import generating
from transexplain.models.load import present_files
from transexplain.types.items import Item, ItemFailure

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


def test_a_folder_as_a_classifier(tmp_path: Path) -> None:
    tiny.causal().float().save_pretrained(tmp_path)
    tiny.byte_pairs().save_pretrained(tmp_path)
    source = f"lm:{tmp_path}?answers=he,she"
    loaded = te.load_model(source)
    assert (loaded.classes, loaded.ref.source) == (("he", "she"), source)
    assert "model.safetensors" in present_files(source)
    assert absolute_model(source) == source
    for wrong in ("lm:x", "lm:?answers=a,b", "lm:x?words=a,b", "lm:x?answers=a,"):
        with pytest.raises(ModelLoadError, match="the form is lm:FOLDER"):
            te.load_model(wrong)


@pytest.mark.parametrize("module", [tiny.causal, tiny.masked])
def test_a_language_model_where_a_classifier_is_needed_is_refused_with_the_remedy(
    module: Any, tmp_path: Path
) -> None:
    module().save_pretrained(tmp_path)
    tiny.byte_pairs().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=r"language model .* lm:.*\?answers=WORD,WORD"):
        te.load_model(tmp_path)


SEGMENTS = {
    "one": "The nurse was late.",
    "two": " The doctor was early.",
    "three": " The film was good.",
    "question": " she said",
}
ANSWER = " that he was"
SEGMENTED = te.Prompt.of(SEGMENTS, continuation=ANSWER)


def log_probability(model: LanguageModel, without: set[str]) -> float:
    """Of the answer behind the other parts, by the module itself."""
    before = "".join(text for name, text in SEGMENTS.items() if name not in without)
    ids = model.tokenizer(before)["input_ids"]
    answer = model.tokenizer(ANSWER)["input_ids"]
    with torch.no_grad():
        logits = model.module(input_ids=torch.tensor([ids + answer])).logits[0]
    logs = logits[len(ids) - 1 : -1].log_softmax(-1)
    return float(sum(logs[place, token] for place, token in enumerate(answer)))


def test_leave_one_out_is_the_fall_without_each_part(causal: LanguageModel) -> None:
    (found,) = te.attribute_context(
        causal, SEGMENTED, "leave-one-out", "continuation", drops=[1, 2]
    )
    whole = log_probability(causal, set())
    assert found.log_probability == pytest.approx(whole)
    wanted = {name: whole - log_probability(causal, {name}) for name in ("one", "two", "three")}
    assert found.scores == pytest.approx(wanted)
    best = sorted(wanted, key=lambda name: -wanted[name])
    assert found.drops[2] == pytest.approx(whole - log_probability(causal, set(best[:2])))
    assert (found.passes, found.answer) == (4, ANSWER)


def test_context_cite_is_a_lasso_on_the_logit_of_the_probability(causal: LanguageModel) -> None:
    (found,) = te.attribute_context(causal, SEGMENTED, "context-cite", "continuation", samples=12)
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
    (found,) = te.attribute_context(causal, SEGMENTED, target="continuation", parts=["two", "one"])
    (whole,) = te.explain_answers(causal, SEGMENTED, target="continuation", per="answer")
    sums = {segment.name: segment.relevance for segment in whole.segments()}
    assert found.scores == pytest.approx({name: sums[name] for name in ("two", "one")})
    assert (found.passes, found.log_probability) == (2, pytest.approx(whole.log_probability))


def test_what_is_wrong_is_named(causal: LanguageModel) -> None:
    with pytest.raises(ConfigurationError, match="no part 'four'"):
        te.attribute_context(causal, SEGMENTED, parts=["four"])
    with pytest.raises(ConfigurationError, match="named parts"):
        te.attribute_context(causal, "a text", target="next")
    with pytest.raises(ConfigurationError, match="above 0"):
        te.attribute_context(causal, SEGMENTED, "context-cite", samples=0)
    with pytest.raises(ItemError, match="no answer"):
        te.attribute_context(causal, SEGMENTED, target="contrast:he-she")
    bad = te.Prompt.of(SEGMENTS)
    found = te.attribute_context(causal, [bad, SEGMENTED], target="continuation", on_error="record")
    assert (type(found[0]), found[0].kind) == (ItemFailure, "no-continuation")
    assert isinstance(found[1], te.ContextAttribution)


TEXT = "The nurse said that he was late, and the doctor said that she was early."
COUNT = 6


def llama() -> Any:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=330, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return randomised(transformers.LlamaForCausalLM(config))


def opened(module: Any) -> tuple[LanguageModel, list[list[int]]]:
    """The model and 18 prompts of 1 to 35 tokens, of which one would be a batch of its own."""
    ids = tiny.byte_pairs()(TEXT).input_ids
    return te.load_language_model(module, tiny.byte_pairs()), [ids[: 1 + 2 * n] for n in range(18)]


def counted(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts each call of the module's `generate` is given."""
    rows: list[int] = []
    own = module.generate

    def generate(ids: torch.Tensor, **more: Any) -> torch.Tensor:
        rows.append(len(ids))
        return own(ids, **more)

    monkeypatch.setattr(module, "generate", generate, raising=False)
    return rows


@pytest.mark.parametrize("make", [tiny.causal, llama], ids=["absolute", "rotary"])
def test_answers_are_those_of_each_prompt_alone(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompts = opened(make())
    alone = [model.generate(one, COUNT) for one in prompts]
    assert len({tuple(one) for one in alone}) > 1
    rows = counted(model.module, monkeypatch)
    assert model.generate_together(prompts, COUNT) == alone
    assert rows == [1, 2, 16, 2], "a measurement, and two batches"
    assert model.generate_together(prompts[::-1], COUNT) == alone[::-1]
    assert rows[4:] == [16, 2], "which is made once"


def test_a_model_that_reads_padding_reads_each_prompt_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tiny.causal()
    forward = module.forward

    def blind(**given: Any) -> Any:
        given.pop("attention_mask")
        given.pop("position_ids", None)
        return forward(**given)

    model, prompts = opened(module)
    monkeypatch.setattr(module, "forward", blind)
    alone = [model.generate(one, COUNT) for one in prompts]
    rows = counted(module, monkeypatch)
    assert model.generate_together(prompts, COUNT) == alone
    assert rows == [1, 2, *[1] * 18]


def test_a_prompt_behind_which_two_tokens_are_as_likely_is_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tiny.causal(tie_word_embeddings=False)
    model, prompts = opened(module)
    said = model.generate(prompts[-1], 1)[0]
    with torch.no_grad():
        module.lm_head.weight[329] = module.lm_head.weight[said]
    alone = [model.generate(one, 1) for one in prompts]
    tied = sum(one in ([said], [329]) for one in alone)
    assert tied > 0
    rows = counted(module, monkeypatch)
    assert model.generate_together(prompts, 1) == alone
    assert sum(one == 1 for one in rows) == 1 + tied, "the measurement's and these"


def test_a_prompt_near_the_limit_has_as_many_tokens_as_there_is_room_for() -> None:
    model = te.load_language_model(tiny.causal(), tiny.byte_pairs())
    reader = generating(model, COUNT)
    ids = tiny.byte_pairs()(TEXT * 4).input_ids
    text = tiny.byte_pairs().decode(ids[:62])
    full = tiny.byte_pairs().decode(ids[:64])
    items = [Item(id=str(n), index=n, content=one) for n, one in enumerate([text, TEXT, full])]
    found = reader.encode(items)
    assert [getattr(one, "kind", "") for one in found] == ["", "", "too-long"]
    assert found[0].length <= 64 and found[0].item.texts[0] == text  # type: ignore[union-attr]
