"""Wrapping modules that are in memory."""

from dataclasses import replace

import pytest
import timm
import torch
from PIL import Image
from tiny_models import bert, text_items, vit, wordpiece
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.models.assemble import unique_names
from transexplain.models.load import wrap
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import PatchGrid


def test_names_come_from_the_config_unless_given() -> None:
    module = bert(id2label={0: "no", 1: "yes", 2: "yes"})
    model = wrap(module, modality="text", tokenizer=wordpiece())
    assert model.classes == ("no", "yes (1)", "yes (2)")
    assert wrap(module, modality="text", classes=["a", "b", "c"]).classes == ("a", "b", "c")
    assert model.module is module
    assert model.ref.source.endswith("modeling_bert.BertForSequenceClassification")
    assert unique_names(["a", "b", "a"]) == ("a (0)", "b", "a (2)")


def test_digest_is_of_the_weights_and_the_class() -> None:
    module = bert()
    first = wrap(module, modality="text").ref.digest
    assert wrap(bert(), modality="text").ref.digest == first
    with torch.no_grad():
        module.classifier.bias[0] += 1
    assert wrap(module, modality="text").ref.digest != first

    class Other(nn.Linear):
        pass

    plain, other = nn.Linear(2, 2), Other(2, 2)
    other.load_state_dict(plain.state_dict())
    digests = {
        wrap(nn.Sequential(nn.Flatten(), part), modality="image", input_size=(1, 1, 2)).ref.digest
        for part in (plain, other)
    }
    assert len(digests) == 2


def test_timm_models_bring_their_transform() -> None:
    module = timm.create_model(
        "vit_tiny_patch16_224", img_size=48, embed_dim=16, depth=2, num_heads=2, num_classes=3
    )
    model = wrap(module, modality="image")
    assert model.classes == ("0", "1", "2")
    [one] = model.encode(text_items(Image.new("RGB", (100, 80))))
    assert isinstance(one, Encoded)
    assert one.inputs["pixel_values"].shape == (3, 48, 48)
    grid = PatchGrid(rows=3, cols=3, height=48, width=48, prefix=1)
    assert isinstance(one.features, PatchGrid)
    assert replace(one.features, box=grid.box) == grid
    # resized to 66 x 53, of which the middle 48 x 48 are seen
    assert one.features.box == pytest.approx((9 / 66, 2 / 53, 57 / 66, 50 / 53), abs=0.005)


def test_float64_and_half_precision_keep_their_type() -> None:
    model = wrap(vit().double(), modality="image")
    [one] = model.encode(text_items({"pixel_values": torch.zeros(3, 24, 24)}))
    assert isinstance(one, Encoded)
    assert model.collate([one]).inputs["pixel_values"].dtype == torch.float64
    assert model.ref.dtype == "float64"


def test_a_picture_size_is_required_only_where_it_is_unknown() -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ModelLoadError, match="input_size="):
        wrap(module, modality="image")
    by_transform = wrap(module, modality="image", transform=lambda _: torch.zeros(3, 7, 9))
    [one] = by_transform.encode(text_items(Image.new("RGB", (5, 5))))
    assert isinstance(one, Encoded)
    assert one.features == PatchGrid(rows=7, cols=9, height=7, width=9)
    with pytest.raises(ModelLoadError, match=r"tensor \(3, H, W\)"):
        wrap(module, modality="image", transform=lambda _: torch.zeros(3))


def test_other_modalities_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="known: text, image, nodes"):
        wrap(nn.Linear(2, 2), modality="sound")


def test_modules_that_are_no_classifiers_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="torch module"):
        wrap("bert", modality="text")  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match="logits"):
        wrap(nn.Identity(), modality="image", input_size=(3, 4, 4))
    with pytest.raises(ModelLoadError, match="classes="):
        wrap(nn.Conv2d(1, 2, 3), modality="image", input_size=(3, 4, 4))


@pytest.mark.parametrize("package", ["bitsandbytes.nn.modules", "torchao.quantization"])
def test_packed_weights_are_refused_by_name(package: str) -> None:
    class Linear4bit(nn.Linear):
        pass

    Linear4bit.__module__ = package
    module = nn.Sequential(nn.Embedding(9, 4), Linear4bit(4, 2))
    expected = f"1 is a Linear4bit of {package.partition('.')[0]}, whose weights are packed"
    with pytest.raises(ModelLoadError, match=expected):
        wrap(module, modality="text", classes=("no", "yes"))
