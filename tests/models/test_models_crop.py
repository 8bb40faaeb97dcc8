"""The part of a picture that a transform keeps."""

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from transexplain.models.image_encoder import WHOLE, CropFinder

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
