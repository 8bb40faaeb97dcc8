"""Pictures: grids found by probing, transforms, and every bad item."""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import timm
import torch
import transformers
from PIL import Image
from tiny_models import SIZES, Recorder, text_items, vit
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.models.input_layer import infer_grid, probing_pictures
from transexplain.models.load import load_model, wrap
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ItemFailure, PatchGrid

TINY = {"embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}


def timm_vit(name: str = "vit_tiny_patch16_224", **options: Any) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = timm.create_model(name, **{**TINY, **options})
    return module


def hf(kind: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {} if kind == "Swin" else SIZES
    settings = {**sizes, "image_size": 24, "patch_size": 8, "num_labels": 4, **options}
    config = getattr(transformers, f"{kind}Config")(**settings)
    module: nn.Module = getattr(transformers, f"{kind}ForImageClassification")(config)
    return module


def grid(rows: int, cols: int, height: int, width: int, prefix: int) -> PatchGrid:
    return PatchGrid(rows=rows, cols=cols, height=height, width=width, prefix=prefix)


SWIN = {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
CASES: dict[str, tuple[Any, PatchGrid]] = {
    "timm vit": (lambda: timm_vit(img_size=48), grid(3, 3, 48, 48, 1)),
    "timm vit, wide": (lambda: timm_vit(img_size=(32, 80)), grid(2, 5, 32, 80, 1)),
    "timm vit, one block": (lambda: timm_vit(img_size=48, depth=1), grid(3, 3, 48, 48, 1)),
    "timm vit, one patch": (lambda: timm_vit(img_size=16), grid(1, 1, 16, 16, 1)),
    "timm distilled": (
        lambda: timm_vit("deit_tiny_distilled_patch16_224", img_size=48),
        grid(3, 3, 48, 48, 2),
    ),
    "timm registers": (
        lambda: timm_vit("vit_small_patch14_reg4_dinov2", img_size=42),
        grid(3, 3, 42, 42, 5),
    ),
    "timm swin (B, H, W, D)": (
        lambda: timm.models.swin_transformer.SwinTransformer(img_size=32, patch_size=4, **SWIN),
        grid(8, 8, 32, 32, 0),
    ),
    "timm convnext (B, D, H, W)": (
        lambda: timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 8, 8)),
        grid(56, 56, 224, 224, 0),
    ),
    "hf vit": (lambda: hf("ViT"), grid(3, 3, 24, 24, 1)),
    "hf deit": (lambda: hf("DeiT"), grid(3, 3, 24, 24, 2)),
    "hf beit": (lambda: hf("Beit"), grid(3, 3, 24, 24, 1)),
    "hf dinov2 registers": (
        lambda: hf("Dinov2WithRegisters", num_register_tokens=3),
        grid(3, 3, 24, 24, 4),
    ),
    "hf swin (B, T, D)": (
        lambda: hf("Swin", patch_size=4, image_size=32, **SWIN),
        grid(8, 8, 32, 32, 0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_grid_prefix_and_layout_are_inferred(case: str) -> None:
    make, size = CASES[case]
    module = make().eval()
    model = wrap(module, modality="image")
    pictures = torch.randn(2, 3, size.height, size.width)
    rows = [
        one
        for one in model.encode(text_items(*({"pixel_values": p} for p in pictures)))
        if isinstance(one, Encoded)
    ]
    assert [one.features for one in rows] == [size, size]
    positions = size.prefix + size.rows * size.cols
    batch = model.collate(rows)
    assert batch.lengths.tolist() == [positions, positions]
    taps = Recorder()
    with torch.no_grad():
        logits = model.run(batch, at="encoder", taps=taps)
        plain = module(pictures)
    assert torch.equal(logits, getattr(plain, "logits", plain))
    assert taps.tensor.shape[:2] == (2, positions)


@pytest.mark.parametrize("case", ["timm vit, wide", "timm swin (B, H, W, D)", "hf swin (B, T, D)"])
def test_position_of_a_patch_is_where_the_patch_is(case: str) -> None:
    make, size = CASES[case]
    model = wrap(make().eval(), modality="image")
    tall, wide = size.height // size.rows, size.width // size.cols
    plain = torch.zeros(3, size.height, size.width)
    changed = plain.clone()
    row, col = size.rows - 1, 1
    changed[:, row * tall : (row + 1) * tall, col * wide : (col + 1) * wide] = 2.0
    made = model.encode(text_items({"pixel_values": plain}, {"pixel_values": changed}))
    taps = Recorder()
    with torch.no_grad():
        rows = [one for one in made if isinstance(one, Encoded)]
        model.run(model.collate(rows), at="encoder", taps=taps)
    moved = (taps.tensor[1] - taps.tensor[0]).abs().amax(-1)
    assert int(moved.argmax()) == size.prefix + row * size.cols + col


class Shuffled(nn.Module):
    """A ViT-like module that lays its patches out in an order of its own."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.order = order
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8)) for _ in range(2)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)[:, self.order]
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))  # type: ignore[no-any-return]


class TwoBranches(Shuffled):
    """Layers that are only a part of what reads the picture."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x.mean(1).flatten(1)[:, :2]


def test_layers_of_no_grid_are_no_input_layer() -> None:
    """Patches in an order of their own, and layers that the picture bypasses."""
    shuffled = Shuffled([3, 1, 2, 0, 4, 5, 6, 7, 8])
    model, bypassed, fine = (
        wrap(module, modality="image", input_size=(3, 12, 12))
        for module in (shuffled, TwoBranches(list(range(9))), Shuffled(list(range(9))))
    )
    assert model.input_layers == bypassed.input_layers == ("pixels",)
    assert model.encoder.grid == grid(12, 12, 12, 12, 0)  # type: ignore[attr-defined]
    assert fine.encoder.grid == grid(3, 3, 12, 12, 0)  # type: ignore[attr-defined]
    pictures = probing_pictures((3, 12, 12), torch.float32, torch.device("cpu"))
    embedded = shuffled.embed(pictures).flatten(2).transpose(1, 2)[:, shuffled.order]
    with pytest.raises(ModelLoadError, match=r"\(5, 9, 8\).*top left pixel"):
        infer_grid(embedded, (3, 12, 12))


def test_without_repeated_layers_positions_are_pixels() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = wrap(module, modality="image", input_size=(3, 6, 5))
    assert (model.default_at, model.input_layers) == ("pixels", ("pixels",))
    assert model.classes == ("0", "1", "2", "3")
    [one] = model.encode(text_items({"pixel_values": torch.zeros(3, 6, 5)}))
    assert isinstance(one, Encoded)
    assert one.features == PatchGrid(rows=6, cols=5, height=6, width=5)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    def transform(image: Image.Image) -> torch.Tensor:
        array = np.asarray(image.resize((24, 24)), dtype=np.float32)
        return torch.from_numpy(array).permute(2, 0, 1) / 255

    return wrap(vit(), modality="image", transform=transform)


def pixels(model: LoadedModel, content: object) -> torch.Tensor:
    [one] = model.encode(text_items(content))
    assert isinstance(one, Encoded), one
    return one.inputs["pixel_values"]


def test_pictures_and_arrays_are_the_same_picture(model: LoadedModel) -> None:
    array = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    image = Image.fromarray(array)
    expected = pixels(model, image)
    assert float(expected.max()) > 0.9
    for same in (array, array / 255, torch.from_numpy(array)):
        assert torch.equal(pixels(model, same), expected)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
def test_every_mode_becomes_three_channels(model: LoadedModel, mode: str) -> None:
    assert pixels(model, Image.new(mode, (30, 20))).shape == (3, 24, 24)


@pytest.mark.parametrize(
    ("content", "kind", "reported"),
    [
        (None, "null", "null"),
        (5, "wrong-type", "int"),
        (np.zeros((4, 4, 2), np.uint8), "bad-image", "(4, 4, 2)"),
        (np.zeros((0, 4, 3), np.uint8), "bad-image", "no pixels"),
        (np.zeros((4, 4, 3), np.int64), "bad-image", "int64"),
        (np.full((4, 4, 3), 255.0), "bad-image", "0 and 1"),
        (np.full((4, 4, 3), np.nan), "bad-image", "0 and 1"),
        (Path("somewhere.png"), "wrong-type", "Path"),
        ({"pixel_values": torch.zeros(3, 8, 8)}, "bad-input", "(3, 24, 24)"),
        ({"pixel_values": torch.zeros(3, 24, 24, dtype=torch.uint8)}, "bad-input", "floats"),
        ({"pixel_values": torch.full((3, 24, 24), torch.nan)}, "bad-input", "NaN"),
        ({"pixel_values": "x"}, "bad-input", "numbers"),
        ({"pixels": torch.zeros(3, 24, 24)}, "bad-input", "pixels"),
    ],
)
def test_bad_pictures_fail_alone(
    model: LoadedModel, content: object, kind: str, reported: str
) -> None:
    good = Image.new("RGB", (24, 24))
    before, bad, after = model.encode(text_items(good, content, good))
    assert isinstance(bad, ItemFailure)
    assert bad.kind == kind
    assert reported in bad.message
    assert isinstance(before, Encoded)
    assert isinstance(after, Encoded)


def test_the_image_processor_of_the_directory_is_used(vit_dir: Path) -> None:
    model = load_model(vit_dir, dtype="float64")
    assert model.classes == ("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3")
    image = Image.fromarray(np.full((50, 40, 3), 255, np.uint8))
    assert torch.allclose(pixels(model, image), torch.ones(3, 24, 24), atol=1e-6)  # (1 - .5) / .5
    [one] = model.encode(text_items(image))
    assert isinstance(one, Encoded)
    assert model.collate([one]).inputs["pixel_values"].dtype == torch.float64
    assert one.features == PatchGrid(rows=3, cols=3, height=24, width=24, prefix=1)


@pytest.mark.shared
def test_picture_model_is_as_good_as_it_should_be(shared_dir: Path) -> None:
    model = load_model(shared_dir / "real/models/vit-cifar10")
    items = []
    with ZipFile(shared_dir / "real/images/cifar10_jpg.zip") as archive:
        names = [name for name in archive.namelist() if name.startswith("test/") and "." in name]
        names = names[:: len(names) // 60][:60]
        for index, name in enumerate(names):
            image = Image.open(io.BytesIO(archive.read(name)))
            items.append(Item(id=name, index=index, content=image))
    rows = [one for one in model.encode(items) if isinstance(one, Encoded)]
    assert rows[0].features == PatchGrid(rows=8, cols=8, height=32, width=32, prefix=1)
    with torch.no_grad():
        logits = model.run(model.collate(rows), at="encoder", taps=Recorder())
    right = [name.split("/")[1] for name in names]
    assert len(set(right)) == 10
    predicted = [model.classes[index] for index in logits.argmax(1).tolist()]
    assert sum(a == b for a, b in zip(predicted, right, strict=True)) >= 36
