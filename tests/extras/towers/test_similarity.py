"""How alike a picture and a text are, explained: relevance on both sides, in one ledger."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language
import tiny_towers as tiny
import torch
import transformers
from command_line_here import run_here
from everyday import only
from PIL import Image
from torch import nn

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError, TargetError
from transexplain.extras.towers.two_towers import TwoTowers, features
from transexplain.types.items import ItemFailure
from transexplain.types.tokens import Tokens

TEXTS = ["she said he said", "the film was good", "The capital of France is Paris."]
PAIRS = [(tiny.picture(seed), text) for seed, text in enumerate(TEXTS)]


def loaded(stem: str) -> TwoTowers:
    return te.load_two_towers(tiny.towers(stem), tiny.tokenizer(stem), tiny.processor())


@pytest.fixture(scope="module", params=["CLIP", "Siglip"])
def towers(request: pytest.FixtureRequest) -> TwoTowers:
    return loaded(request.param)


@pytest.fixture(scope="module")
def clip() -> TwoTowers:
    return loaded("CLIP")


def own_similarity(model: TwoTowers, picture: Image.Image, text: str) -> float:
    """By the module itself, with the inputs that its processor would make."""
    words = model.text.encoder.tokenizer  # type: ignore[attr-defined]
    siglip = isinstance(model.module, transformers.SiglipModel)
    more = {"padding": "max_length", "max_length": 32} if siglip else {}
    inputs = words([text], return_tensors="pt", **more)
    pixels = tiny.processor()(images=picture, return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        out = model.module(pixel_values=pixels, **inputs)
    return float(out.logits_per_image)


@pytest.mark.parametrize("stem", only("CLIP", "Siglip", "AltCLIP", "ChineseCLIP", of=tiny.MODELS))
def test_both_sides_and_the_constants_sum_to_the_models_own_similarity(stem: str) -> None:
    model = loaded(stem)
    for (picture, text), one in zip(PAIRS, te.explain_similarity(model, PAIRS), strict=True):
        assert one.similarity == one.logit
        assert one.similarity == pytest.approx(own_similarity(model, picture, text), abs=1e-9)
        assert one.similarity == pytest.approx(model.scale * one.cosine + model.bias)
        ledger = one.ledger
        assert ledger is not None and ledger.relative_gap < 1e-12
        positions = one.picture.relevance.sum() + one.text.relevance.sum()
        positions += sum(one.picture.prefix_relevance)
        assert positions == pytest.approx(ledger.inputs + ledger.special, abs=1e-12)
        constants = ledger.embeddings + ledger.biases + ledger.rules
        assert positions + constants == pytest.approx(one.similarity, abs=1e-12 * ledger.magnitude)
        # half of the product lies on each side, its constants included
        for side in (one.picture, one.text):
            assert side.ledger.total == pytest.approx(one.similarity / 2, abs=1e-12)
        assert one.picture.relevance.shape == (3, 3)
        assert [word.text for word in one.text.words()] == text.replace(".", " .").split()


def test_the_cosine_is_the_similarity_without_scale_and_bias(towers: TwoTowers) -> None:
    whole = te.explain_similarity(towers, PAIRS)
    for one, other in zip(
        whole, te.explain_similarity(towers, PAIRS, target="cosine"), strict=True
    ):
        assert other.logit == other.cosine == pytest.approx(one.cosine)
        assert other.similarity == pytest.approx(one.similarity)
        assert other.ledger is not None and other.ledger.relative_gap < 1e-12
        for side in ("picture", "text"):
            scaled = getattr(other, side).relevance * towers.scale
            np.testing.assert_allclose(scaled, getattr(one, side).relevance, atol=1e-12)


class Side(nn.Module):
    """The vectors (B, D) of one side as they are, neither normalised nor multiplied."""

    def __init__(self, tower: nn.Module, whole: nn.Module, side: str) -> None:
        super().__init__()
        self.tower, self.config = tower, whole.config
        self._whole, self._side = (whole,), side

    def get_input_embeddings(self) -> Any:
        return self.tower.get_input_embeddings()  # type: ignore[operator]

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        return features(self._whole[0], self._side, inputs)  # type: ignore[arg-type]


def test_the_product_rule_against_relevance_of_every_coordinate(clip: TwoTowers) -> None:
    """R(position) = scale / (2 |u| |v|) * the sum over d of R_d(position) * v_d, on either side."""
    picture, text = PAIRS[0]
    names = [f"d{number}" for number in range(12)]
    seen = te.wrap(
        Side(clip.picture.module, clip.module, "picture"),
        modality="image",
        transform=clip.picture.encoder.transform,  # type: ignore[attr-defined]
        classes=names,
        input_size=(3, 24, 24),
    )
    read = te.wrap(
        Side(clip.text.module, clip.module, "text"),
        modality="text",
        tokenizer=tiny.tokenizer(),
        classes=names,
    )
    of_picture, of_text = (
        te.explain(seen, picture, target="all"),
        te.explain(read, text, target="all"),
    )
    u, v = (np.array([one.logit for one in some]) for some in (of_picture, of_text))
    factor = clip.scale / (2 * np.linalg.norm(u) * np.linalg.norm(v))
    (found,) = te.explain_similarity(clip, (picture, text))
    for side, some, other in (("picture", of_picture, v), ("text", of_text, u)):
        wanted = factor * sum(one.relevance * c for one, c in zip(some, other, strict=True))
        assert np.abs(wanted).max() > 0.01
        np.testing.assert_allclose(getattr(found, side).relevance, wanted, atol=1e-12)


def test_gradients_are_those_of_finite_differences(clip: TwoTowers) -> None:
    """Gradient x input of a patch is the slope of the similarity along that patch's pixels."""
    picture, text = PAIRS[1]
    at = {"picture": "pixels", "text": "words"}
    (found,) = te.explain_similarity(clip, (picture, text), "gradient-x-input", at=at)
    assert found.at == "pixels and words"
    assert found.ledger is not None and found.ledger.relative_gap < 1e-12
    assert found.picture.relevance.shape == (24, 24)
    pixels = clip.picture.encoder.transform(picture).double()  # type: ignore[attr-defined]
    step = 1e-5
    part = torch.ones(3, 24, 24, dtype=torch.float64)
    values = []
    for sign in (1, -1):
        part[:, 8:16, :8] = 1 + sign * step
        pair = ({"pixel_values": pixels * part}, text)
        values.append(te.explain_similarity(clip, pair)[0].similarity)
    slope = (values[0] - values[1]) / (2 * step)
    assert found.picture.relevance[8:16, :8].sum() == pytest.approx(slope, rel=1e-6)
    words = clip.text.module.get_input_embeddings()  # type: ignore[operator]
    row = clip.text.encoder.tokenizer(text)["input_ids"]  # type: ignore[attr-defined]
    place = next(k for k, one in enumerate(row) if row.count(one) == 1 and one > 3)
    plain, values = words.weight.detach().clone(), []
    for sign in (1, -1):
        with torch.no_grad():
            words.weight[row[place]] = plain[row[place]] * (1 + sign * step)
        values.append(te.explain_similarity(clip, (picture, text))[0].similarity)
    with torch.no_grad():
        words.weight.copy_(plain)
    slope = (values[0] - values[1]) / (2 * step)
    assert found.text.relevance[place] == pytest.approx(slope, rel=1e-6)


def test_batches_give_what_single_pairs_give(towers: TwoTowers) -> None:
    together = te.explain_similarity(towers, PAIRS)
    small = te.explain_similarity(towers, PAIRS, batch_tokens=10)
    for number, pair in enumerate(PAIRS):
        (alone,) = te.explain_similarity(towers, pair)
        for one in (together[number], small[number]):
            assert one.similarity == pytest.approx(alone.similarity, abs=1e-12)
            for side in ("picture", "text"):
                first, second = getattr(one, side), getattr(alone, side)
                np.testing.assert_allclose(first.relevance, second.relevance, atol=1e-12)
                assert first.features == second.features


@pytest.mark.parametrize(
    "method",
    ["gradient-x-input", "lrp-ah-ln", "attnlrp", "lrp-gamma", "lrp-epsilon", "chefer-lrp"],
)
def test_every_composite_has_one_ledger_of_both_sides(towers: TwoTowers, method: str) -> None:
    for one in te.explain_similarity(towers, PAIRS[:2], method):
        ledger = one.ledger
        assert ledger is not None and ledger.relative_gap < 1e-12
        explained = 1.0 if one.unit == "unit_relevance" else one.similarity
        assert ledger.total == pytest.approx(explained, abs=1e-12 * ledger.magnitude)
        entries = (ledger.inputs, ledger.special, ledger.embeddings, ledger.biases, ledger.rules)
        assert sum(entries) == pytest.approx(ledger.total, abs=1e-12 * ledger.magnitude)
        assert sum(ledger.biases_by_kind.values()) == pytest.approx(ledger.biases, abs=1e-12)
        assert sum(ledger.rules_by_kind.values()) == pytest.approx(ledger.rules, abs=1e-12)


@pytest.mark.parametrize(
    "method", ["rollout", "gae", "saliency", "integrated-gradients", "occlusion", "random"]
)
def test_other_methods_explain_each_side_with_the_other_held(clip: TwoTowers, method: str) -> None:
    (found,) = te.explain_similarity(clip, PAIRS[0], method)
    assert found.ledger is None
    assert any("held as it is" in note for note in found.notes)
    for side in (found.picture, found.text):
        assert np.isfinite(side.relevance).all() and np.abs(side.relevance).sum() > 0


def test_padding_that_siglip_reads_is_special_and_its_own_numbers_are_kept() -> None:
    model = loaded("Siglip")
    (found,) = te.explain_similarity(model, PAIRS[0])
    tokens = Tokens.of(found.text.features)  # type: ignore[arg-type]
    assert len(tokens) == 32 and tokens.texts[-1] == "<pad>" and bool(tokens.special[-1])
    assert np.abs(found.text.relevance[tokens.special]).min() > 0
    assert len(te.explain_similarity(loaded("CLIP"), PAIRS[0])[0].text.features) < 32


def test_a_pair_is_drawn_on_one_scale(clip: TwoTowers, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    tiny.picture(3).save(path)
    (found,) = te.explain_similarity(clip, (path, "the <b> film & more"))
    assert found.picture.picture == str(path)
    shown = te.render.pair(found)
    assert shown == found._repr_html_()
    assert "data:image/" in shown and "&lt;" in shown and "<b>" not in shown
    page = te.render.html([found, found])
    assert page.count("data:image/") == 2 and page.count('class="tx"') == 2
    assert te.render.overlay(found.picture).size[0] >= 256
    words = [abs(word.relevance) for word in found.text.words()]
    full = float(max(np.abs(found.picture.relevance).max(), *words))
    assert te.render.pair(found, scale=full) == shown
    assert te.render.pair(found, scale=full * 4) != shown
    assert "tx-" in te.render.html(found.text)
    assert "similarity=" in repr(found)


BAD: list[tuple[Any, str]] = [
    ((tiny.picture(1), "  "), "empty-text"),
    ((tiny.picture(1), None), "null"),
    ((tiny.picture(1), 3), "wrong-type"),
    ((tiny.picture(1), "she said that " * 20), "too-long"),
    ((None, "she said"), "null"),
    (("no such file.png", "she said"), "missing-image"),
    ((np.zeros((4, 4, 7)), "she said"), "bad-image"),
    (({"pixel_values": torch.zeros(3, 5, 5)}, "she said"), "bad-input"),
    ((tiny.picture(1), {"input_ids": [5, 999]}), "bad-input"),
]


@pytest.mark.parametrize(("pair", "kind"), BAD)
def test_one_bad_pair_costs_no_other(clip: TwoTowers, pair: Any, kind: str) -> None:
    found = te.explain_similarity(clip, [PAIRS[0], pair, PAIRS[1]], on_error="record")
    assert (type(found[1]), found[1].kind) == (ItemFailure, kind)
    for one, index in ((found[0], 0), (found[2], 1)):
        (alone,) = te.explain_similarity(clip, PAIRS[index])
        assert one.similarity == pytest.approx(alone.similarity, abs=1e-12)
    with pytest.raises(ItemError):
        te.explain_similarity(clip, [PAIRS[0], pair])


def test_long_texts_are_cut_where_that_is_wanted(clip: TwoTowers) -> None:
    long = (tiny.picture(1), "she said that " * 20)
    (found,) = te.explain_similarity(clip, long, long_text="truncate")
    assert len(found.text.features) == 32
    with pytest.raises(ItemError, match="more than 8 positions"):
        te.explain_similarity(clip, PAIRS[2], max_length=8)


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        (PAIRS, {"on_error": "skip"}, "raise or record"),
        (PAIRS, {"at": "pixels"}, "'picture': 'pixels'"),
        (PAIRS, {"at": {"image": "pixels"}}, "'picture': 'pixels'"),
        (PAIRS, {"long_text": "window"}, "'error' or 'truncate'"),
        (PAIRS, {"batch_tokens": 0}, "number above 0"),
        (PAIRS, {"method": "decoded-gradcam"}, "both pictures and texts"),
        (PAIRS, {"method": "learned"}, "both pictures and texts"),
        (PAIRS, {"epsilonn": 1}, "no parameter"),
        ("a.png", {}, "a tuple"),
        ([("a.png",)], {}, "a tuple"),
        (["a.png", "she said"], {}, "a tuple"),
    ],
)
def test_wrong_requests(clip: TwoTowers, pairs: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        te.explain_similarity(clip, pairs, **options)


def test_wrong_targets_and_models(clip: TwoTowers) -> None:
    with pytest.raises(TargetError, match="'similarity' or 'cosine'"):
        te.explain_similarity(clip, PAIRS, target="predicted")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"te\.explain\(model, items\)"):
        te.explain_similarity(clip.picture, PAIRS)  # type: ignore[arg-type]


def test_what_is_no_model_of_two_towers(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no model directory"):
        te.load_two_towers(tmp_path / "missing")
    tiny_language.causal().save_pretrained(tmp_path)  # type: ignore[operator]
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="is no model of two towers"):
        te.load_two_towers(tmp_path)
    words, pictures = tiny.tokenizer(), tiny.processor()
    for other in (tiny_language.causal(), nn.Linear(2, 2)):
        with pytest.raises(ModelLoadError, match="no model of two towers"):
            te.load_two_towers(other, words, pictures)
    with pytest.raises(ModelLoadError, match="its tokenizer and its image processor"):
        te.load_two_towers(tiny.towers(), words)
    changed = tiny.towers()
    forward = changed.forward

    def other_similarity(**inputs: Any) -> Any:
        out = forward(**inputs)
        out.logits_per_image = out.logits_per_image**2
        return out

    changed.forward = other_similarity  # type: ignore[method-assign]
    with pytest.raises(ModelLoadError, match="no scaled cosine"):
        te.load_two_towers(changed, words, pictures)


@pytest.mark.parametrize("stem", ["CLIP", "Siglip"])
def test_a_folder(stem: str, tmp_path: Path) -> None:
    folder = tiny.saved(tmp_path / "model", stem, torch.float64)
    model = te.load_two_towers(folder, dtype="float64")
    assert model.picture.ref.digest and repr(folder)[-8:-2] in repr(model)
    made = loaded(stem)
    for one, other in zip(
        te.explain_similarity(model, PAIRS), te.explain_similarity(made, PAIRS), strict=True
    ):
        np.testing.assert_allclose(one.picture.relevance, other.picture.relevance, atol=1e-9)
        np.testing.assert_allclose(one.text.relevance, other.text.relevance, atol=1e-9)
    with pytest.raises(ModelLoadError, match=r"two towers .* load_two_towers .* --text"):
        te.load_model(folder)


def test_the_command_line(tmp_path: Path) -> None:
    folder = tiny.saved(tmp_path / "model")
    tiny.picture(0).save(tmp_path / "a.png")
    call = ["explain", "a.png", "--model", str(folder), "--text", "she said"]
    shown = run_here(os.environ, tmp_path, *call)
    assert "similarity" in shown and "cosine" in shown and "she" in shown
    (document,) = json.loads(run_here(os.environ, tmp_path, *call, "--json"))
    (found,) = te.explain_similarity(te.load_two_towers(folder), (tiny.picture(0), "she said"))
    assert document["similarity"] == pytest.approx(found.similarity)
    np.testing.assert_allclose(document["picture"]["relevance"], found.picture.relevance, 1e-4)
    run_here(os.environ, tmp_path, *call, "-o", "pair.html")
    assert "data:image/" in (tmp_path / "pair.html").read_text()
    run_here(os.environ, tmp_path, *call, "-o", "pair.png", "--target", "cosine")
    with Image.open(tmp_path / "pair.png") as drawn:
        assert drawn.size[0] >= 256
    refused = run_here(os.environ, tmp_path, *call[:4], code=2)
    assert "--text" in refused
    (tmp_path / "data.csv").write_text("text\nshe said\n")
    audit = ["run", "--model", str(folder), "--data", "data.csv"]
    assert "load_two_towers" in run_here(os.environ, tmp_path, *audit, code=2)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.saved(tmp_path / "my-clip")
    tiny.picture(0).save(tmp_path / "photo.png")
    page = Path(__file__).parents[3] / "docs" / "how-to" / "pictures-and-text.md"
    monkeypatch.chdir(tmp_path)
    for language, block in re.findall(r"```(\w+)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        if language == "python":
            exec(compile(block, str(page), "exec"), {})
            assert "data:image/" in (tmp_path / "pair.html").read_text("utf-8")
            (tmp_path / "pair.html").unlink()
        for line in block.splitlines() if language == "sh" else ():
            assert run_here(os.environ, tmp_path, *shlex.split(line)[1:])
    assert (tmp_path / "pair.html").is_file()


@pytest.mark.parametrize("stem", ["CLIP", "Siglip"])
def test_texts_are_the_classes_of_a_classifier_of_pictures(stem: str) -> None:
    model = loaded(stem)
    zero_shot = model.as_classifier(TEXTS)
    assert zero_shot.classes == tuple(TEXTS) and zero_shot.modality == "image"
    pictures = [picture for picture, _ in PAIRS]
    found = te.explain(zero_shot, pictures, target="all")
    wanted = [own_similarity(model, picture, text) for picture in pictures for text in TEXTS]
    assert [one.logit for one in found] == pytest.approx(wanted, abs=1e-9)
    assert all(one.ledger is not None and one.ledger.relative_gap < 1e-12 for one in found)
    (pair,) = te.explain_similarity(model, (pictures[0], TEXTS[1]))
    # the texts are held, so the picture has both halves of the product
    np.testing.assert_allclose(found[1].relevance, 2 * pair.picture.relevance, atol=1e-9)
    for texts, message in (
        (["a"], "two or more"),
        (["a", "a"], "two or more"),
        (["a", " "], "cannot be"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            model.as_classifier(texts)


def test_a_folder_is_a_classifier_over_texts(call: Any, tmp_path: Path) -> None:
    folder = tiny.saved(tmp_path / "clip")
    tiny.picture(0).save(tmp_path / "0.png")
    source = f"towers:{folder}?texts=a cat; a dog"
    assert te.load_model(source).ref.source == source
    code, printed = call("explain", "0.png", "--model", source, "-o", "0.json")
    assert code == 0, printed
    (found,) = json.loads((tmp_path / "0.json").read_text(encoding="utf-8"))
    assert found["class_name"] in ("a cat", "a dog")
    for wrong in ("towers:x", "towers:?texts=a;b", "towers:x?words=a;b", "towers:x?texts=a;"):
        with pytest.raises(ModelLoadError, match="the form is towers:FOLDER"):
            te.load_model(wrong)
    with pytest.raises(ModelLoadError, match=r"Audits take it as .* towers:.*\?texts=A TEXT"):
        te.load_model(folder)
