"""A generating model of pictures and texts, a LLaVA with random weights: plumbing and ledger."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language
import tiny_towers as tiny
import torch

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError
from transexplain.extras.language.language_model import LanguageModel
from transexplain.types.items import ItemFailure

PARTS = {"look": "<mask>", "question": " The nurse said that"}
PROMPT = te.Prompt.of(PARTS, picture=tiny.picture(0))
#: language model -> the ledger's tolerance; Llama's norms compute in float32, whatever its type
TOLERANCES = {"llama": 1e-5, "gpt_neox": 1e-12}


def loaded(language: str = "gpt_neox") -> LanguageModel:
    words = tiny_language.byte_pairs(begins=True)
    return te.load_language_model(tiny.llava(language), words, processor=tiny.processor())


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return loaded()


def own_logits(model: LanguageModel, answer: list[int]) -> torch.Tensor:
    """(V,) behind the prompt and an answer, by the module itself: 9 picture tokens, 9 patches."""
    ids = model.tokenizer("<mask>" * 9 + " The nurse said that")["input_ids"]
    pixels = tiny.processor()(images=tiny.picture(0), return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        return model.module(input_ids=torch.tensor([ids + answer]), pixel_values=pixels).logits[
            0, -1
        ]


@pytest.mark.parametrize("language", TOLERANCES)
@pytest.mark.parametrize("value", ["logit", "log-probability"])
def test_patches_and_tokens_and_constants_sum_to_the_logit(language: str, value: Any) -> None:
    model = loaded(language)
    found = te.explain_answers(model, PROMPT, target="continuation:he was", value=value)
    for one in found:
        z = own_logits(model, list(one.answer_ids[: one.step]))
        token = one.answer_ids[one.step or 0]
        wanted = z[token] if value == "logit" else z.log_softmax(-1)[token]
        assert one.logit == pytest.approx(float(wanted), abs=1e-6)
        ledger, patches = one.ledger, one.patches
        assert ledger is not None and ledger.relative_gap < TOLERANCES[language]
        assert patches is not None and patches.relevance.shape == (3, 3)
        assert np.abs(patches.relevance).min() > 0 and len(patches.prefix_relevance) == 1
        positions = one.relevance.sum() + patches.relevance.sum() + sum(patches.prefix_relevance)
        assert positions == pytest.approx(ledger.inputs + ledger.special, abs=1e-12)
        total = positions + ledger.embeddings + ledger.biases + ledger.rules
        tolerance = TOLERANCES[language] * ledger.magnitude
        assert total == pytest.approx(one.logit, abs=tolerance)
        sums = {segment.name: segment for segment in one.segments()}
        assert sum(each.relevance for each in sums.values()) == pytest.approx(positions)
        assert sums["picture"].tokens == 10
        # the patches stand in the place of the picture's tokens, whose own vectors nobody reads
        assert sums["look"].tokens == 9 and sums["look"].relevance == 0


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("The nurse said that", "no-picture"),
        ({"input_ids": [5, 6]}, "no-picture"),
        (te.Prompt.of("The nurse", picture=tiny.picture(0)), "no-place"),
        (te.Prompt.of("<mask> and <mask>", picture=tiny.picture(0)), "no-place"),
        (te.Prompt.of("<mask> she", picture=np.zeros((4, 4, 7))), "bad-image"),
        (te.Prompt.of("<mask> she", picture="none.png"), "missing-image"),
        (te.Prompt.of("<mask>" + " she said" * 40, picture=tiny.picture(0)), "too-long"),
    ],
)
def test_one_bad_prompt_costs_no_other(model: LanguageModel, prompt: Any, kind: str) -> None:
    bad, good = te.explain_answers(model, [prompt, PROMPT], on_error="record")
    assert (type(bad), bad.kind) == (ItemFailure, kind) and good.patches is not None


def test_what_does_not_fit(model: LanguageModel) -> None:
    plain = te.load_language_model(tiny_language.causal(), tiny_language.byte_pairs())
    with pytest.raises(ItemError, match="reads no pictures"):
        te.explain_answers(plain, te.Prompt.of("she", picture=tiny.picture(0)))
    with pytest.raises(ConfigurationError, match="rules or gradients"):
        te.explain_answers(model, PROMPT, "occlusion")
    with pytest.raises(ModelLoadError, match="no classifier"):
        model.as_classifier(["he", "she"])
    words = tiny_language.byte_pairs()
    with pytest.raises(ModelLoadError, match="processor="):
        te.load_language_model(tiny.llava(), words)
    with pytest.raises(ModelLoadError, match="leave the image processor out"):
        te.load_language_model(tiny_language.causal(), words, processor=tiny.processor())
    with pytest.raises(ModelLoadError, match="is told by a tokenizer"):
        te.load_language_model(tiny.llava(), processor=tiny.processor())


def test_prompts_without_a_picture_where_that_is_wanted() -> None:
    words = tiny_language.byte_pairs(begins=True)
    model = te.load_language_model(tiny.llava("gpt_neox"), words, kind="causal")
    (found,) = te.explain_answers(model, "The nurse said that")
    assert found.patches is None and found.ledger is not None
    assert found.ledger.relative_gap < 1e-12


def test_a_folder(tmp_path: Path) -> None:
    tiny.llava("gpt_neox").save_pretrained(tmp_path)  # type: ignore[operator]
    tiny_language.byte_pairs(begins=True).save_pretrained(tmp_path)
    tiny.processor().save_pretrained(tmp_path)
    tiny.picture(0).save(tmp_path / "a.png")
    prompt = te.Prompt.of(PARTS, picture=tmp_path / "a.png")
    (found,) = te.explain_answers(te.load_language_model(tmp_path, dtype="float64"), prompt)
    assert found.patches.picture == tmp_path / "a.png"
    (other,) = te.explain_answers(loaded(), PROMPT)
    assert found.token == other.token
    np.testing.assert_allclose(found.patches.relevance, other.patches.relevance, atol=1e-9)
