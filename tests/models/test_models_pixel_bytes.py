"""Pictures as bytes: the same bits as the model's own transform gives, or the transform itself."""

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from torchvision import transforms
from torchvision.transforms import v2
from transformers import ViTImageProcessor, ViTImageProcessorPil

from transexplain.models.huggingface import processor_transform
from transexplain.models.image_encoder import (
    WHOLE,
    ByteTransform,
    CropFinder,
    ImageEncoder,
    PixelBytes,
    gathered,
    stacked,
)
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import Item, PatchGrid

SIDE = 48
SHAPE = (3, SIDE, SIDE)
SIZES = [(48, 48), (96, 64), (64, 96), (1, 1), (200, 61), (3, 90), (90, 3), (57, 56), (320, 240)]
NUMBERS: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def of_timm(**options: Any) -> Any:
    given = {"interpolation": "bicubic", "crop_pct": 0.9, **NUMBERS, **options}
    return create_transform(input_size=SHAPE, is_training=False, **given)


def of_transformers(kind: Any, **options: Any) -> Any:
    processor = kind(size={"height": SIDE, "width": SIDE}, **options)
    return processor_transform(processor)


def noise(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    random = np.random.default_rng(size[0])
    pixels = random.integers(0, 256, size=(size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


KNOWN = {
    **{
        f"timm, {mode}, {how}, {share}": of_timm(crop_mode=mode, interpolation=how, crop_pct=share)
        for mode, how, share in [
            ("center", "bicubic", 0.9),
            ("center", "bilinear", 0.875),
            ("center", "lanczos", 0.6),
            ("center", "nearest", 0.9),
            ("center", "bicubic", 1.0),
            ("squash", "bicubic", 0.8),
            ("border", "bicubic", 0.9),
        ]
    },
    "torchvision, no normalisation": transforms.Compose(
        [transforms.Resize((SIDE, SIDE)), transforms.ToTensor()]
    ),
    "transformers": of_transformers(ViTImageProcessor),
    "transformers, not normalised": of_transformers(ViTImageProcessor, do_normalize=False),
    "transformers, other numbers": of_transformers(
        ViTImageProcessor, image_mean=[0.1, 0.2, 0.3], image_std=[0.3, 0.2, 0.9], resample=3
    ),
    "transformers, by Pillow": of_transformers(ViTImageProcessorPil),
}


@pytest.mark.parametrize("name", KNOWN)
def test_bytes_and_their_table_are_the_transform_to_the_bit(name: str) -> None:
    transform = KNOWN[name]
    steps = ByteTransform.of(transform, SHAPE)
    assert steps is not None
    for size in SIZES:
        shown = noise(size)
        wanted = transform(shown)
        for _ in range(10):  # later ones by what is known of the size
            found = steps.bytes_of(shown)
            assert found.planes.dtype == torch.uint8
            assert found["pixel_values"].dtype == wanted.dtype
            assert torch.equal(found["pixel_values"], wanted), size


class Unsteady:
    """Scales, but not every byte by itself."""

    def __call__(self, shown: Image.Image) -> torch.Tensor:
        pixels = transforms.functional.to_tensor(shown.resize((SIDE, SIDE)))
        return torch.sub(pixels, pixels.mean())


class Claims(Unsteady):
    """Says that it has two steps, which give something else."""

    def steps(self) -> Any:
        return lambda shown: torch.zeros(SHAPE, dtype=torch.uint8), transforms.ToTensor()


@pytest.mark.parametrize(
    "transform",
    [
        Unsteady(),
        Claims(),
        transforms.Compose(
            [transforms.Resize((SIDE, SIDE)), transforms.ToTensor(), transforms.RandomErasing(p=1)]
        ),
        transforms.Compose(
            [transforms.RandomCrop(SIDE, pad_if_needed=True), transforms.ToTensor()]
        ),
        transforms.Compose([transforms.Resize((9, 9)), transforms.ToTensor()]),
        of_transformers(ViTImageProcessor, do_rescale=False, do_normalize=False),
    ],
)
def test_another_transform_is_asked_itself(transform: Any) -> None:
    assert ByteTransform.of(transform, SHAPE) is None


def encoder(transform: Any) -> ImageEncoder:
    grid = PatchGrid(rows=3, cols=3, height=SIDE, width=SIDE, prefix=1)
    return ImageEncoder(
        transform, shape=SHAPE, grid=grid, dtype=torch.float32, device=torch.device("cpu")
    )


def encoded(by: ImageEncoder, *contents: Any) -> list[Encoded]:
    items = [Item(id=str(n), index=n, content=one) for n, one in enumerate(contents)]
    found = by.encode(items, long_text="truncate", max_length=None)
    assert all(isinstance(one, Encoded) for one in found)
    return [one for one in found if isinstance(one, Encoded)]


def test_a_batch_is_what_the_transform_makes_of_each() -> None:
    transform = of_timm()
    by, other = encoder(transform), encoder(of_timm(mean=(0.5, 0.5, 0.5)))
    plain = encoder(partial(transform))
    shown = [noise(size) for size in SIZES]
    made = encoded(by, *shown)
    assert all(isinstance(one.inputs, PixelBytes) for one in made)
    wanted = torch.stack([transform(one) for one in shown])
    assert torch.equal(by.padded(made)().inputs["pixel_values"], wanted)
    assert torch.equal(plain.padded(encoded(plain, *shown))().inputs["pixel_values"], wanted)
    assert [one.features for one in made] == [one.features for one in encoded(plain, *shown)]
    # beside one that was given encoded, and beside one of another table
    given = encoded(by, {"pixel_values": wanted[0]})
    foreign = encoded(other, shown[1])
    mixed = by.padded([*given, made[2], *foreign])().inputs["pixel_values"]
    assert torch.equal(mixed[:2], wanted[[0, 2]])
    assert torch.equal(mixed[2], other.padded(foreign)().inputs["pixel_values"][0])


def test_bytes_travel_and_are_a_mapping() -> None:
    (one,) = encoded(encoder(of_timm()), noise((96, 64)))
    again = pickle.loads(pickle.dumps(one.inputs))
    assert dict(again).keys() == {"pixel_values"}
    assert torch.equal(again["pixel_values"], one.inputs["pixel_values"])
    assert len(pickle.dumps(one.inputs)) < 2 * 3 * SIDE * SIDE + 8000  # no floats among them
    with pytest.raises(KeyError):
        one.inputs["input_ids"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_are_gathered_as_they_are_stacked(dtype: torch.dtype) -> None:
    made = [one.inputs for one in encoded(encoder(of_timm()), *map(noise, SIZES[:3]))]
    pictures = [one for one in made if isinstance(one, PixelBytes)]
    planes = torch.stack([one.planes for one in pictures])
    table = pictures[0].table
    assert torch.equal(gathered(planes, table.to(dtype)), stacked(pictures, table).to(dtype))


@pytest.mark.parametrize("name", ["center", "squash", "border"])
def test_the_crop_is_the_same_by_bytes(name: str) -> None:
    transform = of_timm(crop_mode=name)
    steps = ByteTransform.of(transform, SHAPE)
    assert steps is not None
    by_values, by_bytes = CropFinder(transform), CropFinder(transform, steps)
    for size in SIZES:
        assert by_values.box(size) == by_bytes.box(size), size


# --- the part of a picture that a transform keeps

SCALE = [
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
]


def squeeze(image: Image.Image) -> torch.Tensor:
    return v2.Compose([v2.Resize((48, 48)), *SCALE])(image)


def centre(image: Image.Image) -> torch.Tensor:
    return v2.Compose([v2.Resize(60), v2.CenterCrop(48), *SCALE])(image)


def rotated(image: Image.Image) -> torch.Tensor:
    return torch.rot90(squeeze(image), dims=(1, 2))


def inverted(image: Image.Image) -> torch.Tensor:
    return -squeeze(image)


@pytest.mark.parametrize("transform", [squeeze, inverted])
def test_a_squeezed_picture_is_seen_whole(transform) -> None:
    for size in ((48, 48), (200, 100), (31, 97)):
        assert CropFinder(transform).box(size) == pytest.approx(WHOLE, abs=0.01)


@pytest.mark.parametrize("size", [(200, 100), (90, 300), (64, 64), (60, 61)])
def test_a_centre_crop(size: tuple[int, int]) -> None:
    width, height = size
    side = 48 / 60 * min(size)
    expected = (
        (1 - side / width) / 2,
        (1 - side / height) / 2,
        (1 + side / width) / 2,
        (1 + side / height) / 2,
    )
    assert CropFinder(centre).box(size) == pytest.approx(expected, abs=0.015)


def test_other_transforms_count_as_the_whole_picture() -> None:
    assert CropFinder(rotated).box((100, 60)) == WHOLE
