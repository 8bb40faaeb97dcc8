"""The public interface, as a user calls it."""

import pkgutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from explainer_samples import UNAIDED
from PIL import Image
from tiny_models import bert, vit, wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError, TargetError
from transexplain.types.items import Attribution, ItemFailure

TEXTS = ["a good film", "nice", "unbelievably good goods [x] a film", "film film"]


@pytest.fixture(scope="module")
def text_model():
    return te.wrap(
        bert(id2label={0: "bad", 1: "so-so", 2: "good"}).double(),
        tokenizer=wordpiece(),
        modality="text",
    )


def transform(image: Image.Image) -> torch.Tensor:
    pixels = np.asarray(image.resize((24, 24)), dtype=np.float32)
    return torch.from_numpy(pixels.transpose(2, 0, 1) / 255.0)


@pytest.fixture(scope="module")
def image_model():
    return te.wrap(vit(), modality="image", transform=transform)


def picture(seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def test_one_attribution_per_item_and_target_in_input_order(text_model) -> None:
    found = te.explain(text_model, TEXTS, target=["top:2", "contrast:good-so-so"], batch_tokens=16)
    assert [(a.item_id, a.target, a.rank) for a in found] == [
        (str(i), target, rank)
        for i in range(4)
        for target, rank in (("top:2", 0), ("top:2", 1), ("contrast:good-so-so", 0))
    ]
    for one in found:
        assert isinstance(one, Attribution)
        assert one.method == "lrp"
        assert (one.unit, one.at) == ("logits", "encoder")
        assert one.relevance.dtype == np.float64
        assert one.relevance.shape == (len(one.features),)
        assert one.text == TEXTS[int(one.item_id)]
        assert one.ledger.relative_gap < 1e-12
        assert one.ledger.inputs + one.ledger.special == pytest.approx(one.relevance.sum())


@pytest.mark.parametrize("method", UNAIDED)
def test_batches_change_nothing(text_model, method: str) -> None:
    together = te.explain(text_model, TEXTS, method, batch_tokens=10_000)
    alone = te.explain(text_model, TEXTS, method, batch_tokens=1)
    for left, right in zip(together, alone, strict=True):
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-10, atol=1e-12)


def test_explanation_is_deterministic_and_leaves_the_model(text_model) -> None:
    before = {k: v.clone() for k, v in text_model.module.state_dict().items()}
    first, second = (te.explain(text_model, TEXTS[0])[0] for _ in range(2))
    np.testing.assert_array_equal(first.relevance, second.relevance)
    assert all((before[k] == v).all() for k, v in text_model.module.state_dict().items())
    assert all(p.requires_grad for p in text_model.module.parameters())


def test_words_are_sums_of_their_pieces(text_model) -> None:
    (one,) = te.explain(text_model, "a unbelievably good film")
    words = one.words()
    assert [word.text for word in words] == ["a", "unbelievably", "good", "film"]
    pieces = [r for t, r in zip(one.features, one.relevance, strict=True) if t.word == 1]
    assert len(pieces) == 3
    assert words[1].relevance == pytest.approx(sum(pieces))
    assert sum(w.relevance for w in words) == pytest.approx(one.ledger.inputs)
    without_text = replace(one, text=None).words()
    assert [w.text for w in without_text] == ["a", "unbelievably", "good", "film"]
    assert [w.relevance for w in without_text] == [w.relevance for w in words]


def test_images(image_model) -> None:
    found = te.explain(image_model, [picture(0), np.asarray(picture(1))], target="all")
    assert len(found) == 8
    for one in found:
        assert one.relevance.shape == (3, 3)
        assert one.features.prefix == 1
        assert one.ledger.relative_gap < 5e-6
        assert one.ledger.special == pytest.approx(sum(one.prefix_relevance), abs=1e-6)
    with pytest.raises(TypeError, match="texts"):
        found[0].words()
    (one,) = te.explain(image_model, picture(), at="pixels")
    assert one.relevance.shape == (24, 24)


def test_picture_files(image_model, tmp_path: Path) -> None:
    picture(3).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("not a picture")
    files = [tmp_path / "good.png", str(tmp_path / "bad.png")]
    good, bad = te.explain(image_model, files, on_error="record")
    assert isinstance(good, Attribution)
    assert bad.kind == "bad-image"


def test_errors_are_raised_or_recorded(text_model) -> None:
    items = ["good", "", "film"]
    with pytest.raises(ItemError, match="empty") as caught:
        te.explain(text_model, items)
    assert caught.value.kind == "empty-text"
    found = te.explain(text_model, items, on_error="record")
    assert [type(one) for one in found] == [Attribution, ItemFailure, Attribution]
    assert found[1].item_id == "1"


def test_long_texts_are_cut_or_refused(text_model) -> None:
    long = "good " * 20_000
    (one,) = te.explain(text_model, long)
    assert len(one.features) == 20
    found = te.explain(text_model, [long, "good"], on_error="record", long_text="error")
    assert found[0].kind == "too-long"
    assert isinstance(found[1], Attribution)


def test_one_bad_item_never_costs_the_others(text_model, monkeypatch) -> None:
    """A batch that fails is halved until the item at fault is alone."""
    collate = type(text_model).collate

    def fail(self, encoded):
        if any("goods" in one.item.content for one in encoded):
            raise RuntimeError("no such kernel")
        return collate(self, encoded)

    monkeypatch.setattr(type(text_model), "collate", fail)
    found = te.explain(text_model, TEXTS, on_error="record")
    assert [isinstance(one, Attribution) for one in found] == [True, True, False, True]
    assert found[2].kind == "model-error"
    assert "no such kernel" in found[2].message


def test_streams_are_never_collected(text_model) -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield "good film"

    stream = te.explain_iter(text_model, endless())
    assert [next(stream).item_id for _ in range(3)] == ["0", "1", "2"]
    assert taken < 1000


def test_own_classes(text_model) -> None:
    own = [{"name": "not-good", "classes": ["bad", "so-so"]}]
    (sum_,) = te.explain(text_model, "film", target="not-good", classifications=own)
    parts = te.explain(text_model, "film", target=["class:bad", "class:so-so"])
    np.testing.assert_allclose(sum_.relevance, sum(p.relevance for p in parts))
    assert sum_.class_index is None
    assert sum_.logit == pytest.approx(sum(p.logit for p in parts))


def test_wrong_requests_are_named(text_model, image_model) -> None:
    with pytest.raises(TargetError, match="bad, so-so, good"):
        te.explain(text_model, "film", target="class:great")
    with pytest.raises(ConfigurationError, match="did you mean 'lrp'"):
        te.explain(text_model, "film", "lpr")
    with pytest.raises(ConfigurationError, match="no parameter 'batch_size'; it has: at"):
        te.explain(text_model, "film", batch_size=3)
    with pytest.raises(te.TransExplainError, match="pixels"):
        te.explain(text_model, "film", at="pixels")
    with pytest.raises(te.TransExplainError, match="words"):
        te.explain(image_model, picture(), at="words")


def test_import_is_light() -> None:
    code = (
        "import sys, transexplain; from transexplain import Attribution, Item;"
        "print('torch' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "False"


def test_public_names_exist() -> None:
    for name in te.__all__:
        assert getattr(te, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        te.nothing  # noqa: B018


def test_render(text_model, image_model) -> None:
    found = te.explain(text_model, TEXTS[:2])
    html = te.render.html(found)
    assert "unbelievably" not in html
    assert html.count("good") >= 1
    (one,) = te.explain(image_model, picture())
    assert te.render.overlay(one, picture()).size == (24, 24)
    with pytest.raises(TypeError, match="pictures"):
        te.render.overlay(found[0], picture())


def test_no_module_hides_a_public_function() -> None:
    """An import of a module `transexplain.explain` would put it in the place of the function."""
    modules = {module.name for module in pkgutil.iter_modules(te.__path__)}
    assert modules & set(te.__all__) == {"render"}  # itself public
