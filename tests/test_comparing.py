"""One item by every method: in Python, as a page, on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from report_samples import Visible
from timm.models.vision_transformer import VisionTransformer
from tiny_models import bert, wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError, TargetError
from transexplain.evaluating.metrics.map_metrics import sensitivity_between
from transexplain.methods import METHODS, facts_of
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Compared

TEXT = "a unbelievably good nice film"
FEW = {"lime": {"samples": 40}, "kernel-shap": {"samples": 40}}


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert().double(), modality="text", tokenizer=wordpiece())


@pytest.fixture(scope="module")
def found(model: LoadedModel) -> list[Compared]:
    return te.explain_by_methods(model, TEXT, params=FEW)


def test_every_method_explains_as_by_itself_or_gives_its_reason(
    model: LoadedModel, found: list[Compared]
) -> None:
    assert [one.method for one in found] == list(METHODS)
    silent = {one.method for one in found if not one.attributions}
    assert silent == {"decoded-gradcam", "learned"}
    for one in found:
        assert one.seconds > 0
        assert len(one.attributions) == (0 if one.error else 2)
    (plain,) = te.explain(model, te.Item(id="0", index=0, content=TEXT), "attnlrp", "predicted")
    (one,) = [each for each in found if each.method == "attnlrp"]
    np.testing.assert_array_equal(one.attributions[0].relevance, plain.relevance)


def test_the_page_of_a_text(found: list[Compared]) -> None:
    page = Visible(te.render.comparison(found))
    for one in found:
        assert one.method in page.text
    assert page.text.count("unbelievably") == 2 * (len(METHODS) - 2)
    text = " ".join(page.text.split())
    for one in found:
        if not one.attributions:
            continue
        ignores = facts_of(one.method).reads_target == "no"
        likeness = f"class sensitivity {sensitivity_between(*one.attributions):.2f}"
        said = "the same for every class" if ignores else likeness
        assert f"{one.attributions[0].at} · {one.seconds:.2f} s {said}" in text
    with pytest.raises(ConfigurationError, match="palette"):
        te.render.comparison(found, palette="pink")


def test_a_method_that_hardly_differs_by_class_is_not_said_to_ignore_it(
    found: list[Compared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transexplain.reports.methods_compared.HARDLY", 0.2)
    near, far, blind = (
        " ".join(Visible(te.render.comparison([one])).text.split())
        for name in ("lrp-ah", "gae", "rollout")
        for one in found
        if one.method == name
    )
    assert "almost the same" in near and "class sensitivity 0.07" in near
    assert "the same for every class" in blind and "the same for every class" not in far


def test_the_page_of_a_picture() -> None:
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3
    )
    model = te.wrap(vit.eval(), modality="image", transform=_tensor)
    picture = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    found = te.explain_by_methods(model, picture, methods=["lrp", "rollout", "decoded-gradcam"])
    page = Visible(te.render.comparison(found, picture=Image.fromarray(picture)))
    images = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 4
    assert all(str(source).startswith("data:image/") for source in images)


def _tensor(picture: Any) -> torch.Tensor:
    array = np.asarray(picture.resize((16, 16)), dtype=np.float32) / 255
    return torch.from_numpy(array).permute(2, 0, 1)


def test_wrong_requests(model: LoadedModel) -> None:
    for content, options, error in (
        (TEXT, {"methods": ["lpr"]}, ConfigurationError),
        (TEXT, {"params": {"lpr": {}}}, ConfigurationError),
        (TEXT, {"target": "class:none"}, TargetError),
        (" ", {"methods": ["lrp"]}, ItemError),
    ):
        with pytest.raises(error):
            te.explain_by_methods(model, content, **options)


def test_the_command_line(call: Any, bert_dir: Path, tmp_path: Path) -> None:
    few = ["--param", "lime.samples=40", "--param", "kernel-shap.samples=40"]
    words = ["explain", TEXT, "--model", str(bert_dir), "--method", "all", *few]
    code, printed = call(*words, "-o", "all.json")
    assert code == 0, printed
    document = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [one["method"] for one in document] == list(METHODS)
    for wrong, named in ((("--param", "samples=3"), "'samples'"), (("-o", "all.png"), ".json")):
        code, printed = call(*words, *wrong)
        assert code == 2 and named in printed
