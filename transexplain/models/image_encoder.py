"""Encodes pictures as pixel tensors, with the patch grid and the crop that the model sees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from transexplain.errors import ItemError
from transexplain.models.loaded_model import (
    Batch,
    Encoded,
    LongText,
    Padded,
    encode_each,
    on_device,
)
from transexplain.models.pixel_bytes import (
    NAME,
    ByteTransform,
    PixelBytes,
    Transform,
    gathered,
    stacked,
    table_of,
)
from transexplain.types.items import Item, ItemFailure, PatchGrid

#: left, top, right, bottom, as fractions of the picture
Box = tuple[float, float, float, float]
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)

_REMEMBERED = 4096  #: picture sizes
_WHITE = 255
_STEP = 1 / 256
_MISFIT = 0.02  #: of the picture's side; a transform that is no resize and crop fits worse


class CropFinder:
    """Finds the box of a transform for each picture size by transforming a ramp.

    The red value of the ramp encodes the column that a pixel came from, the green one its row; two
    plain pictures show what the transform does to values.
    """

    def __init__(self, transform: Transform, steps: ByteTransform | None = None) -> None:
        self._transform = transform
        self._steps = steps  #: the same transform in two steps, where it has them
        black, white = (Image.new("RGB", (64, 64), colour) for colour in (0, 0xFFFFFF))
        self._black, self._white = self._of(black), self._of(white)
        plain = steps is not None and not (
            steps.to_bytes(black).any() or (steps.to_bytes(white) < _WHITE).any()
        )
        self._shares = _shares(steps.table) if steps is not None and plain else None
        self._boxes: dict[tuple[int, int], Box] = {}

    def box(self, size: tuple[int, int]) -> Box:
        """The part of a picture of `size` (width, height) that reaches the model.

        The whole picture where the transform does something else than resize and crop.
        """
        if size not in self._boxes:
            if len(self._boxes) >= _REMEMBERED:
                self._boxes.clear()
            self._boxes[size] = self._find(size)
        return self._boxes[size]

    def _find(self, size: tuple[int, int]) -> Box:
        share = self._seen(_ramp(size))
        if share is None:
            return WHOLE
        across, down = _ends(share[0].mean(axis=0)), _ends(share[1].mean(axis=1))
        if across is None or down is None:
            return WHOLE
        return (across[0], down[0], across[1], down[1])

    def _seen(self, ramp: Image.Image) -> Sequence[NDArray[np.float64]] | None:
        """Red and green of what becomes of a ramp, each (H, W), from 0 at black to 1 at white."""
        if self._steps is not None and self._shares is not None:
            planes = self._steps.to_bytes(ramp).numpy()
            return [row[plane] for row, plane in zip(self._shares, planes, strict=False)]
        seen, spread = self._of(ramp), self._white - self._black
        if seen.shape != spread.shape or not np.all(np.abs(spread[:2]) > 0):
            return None
        return [*((seen[:2] - self._black[:2]) / spread[:2])]

    def _of(self, image: Image.Image) -> NDArray[np.float64]:
        pixels: Tensor = self._transform(image)
        return pixels.detach().to(torch.float64).numpy()


def _shares(table: Tensor) -> NDArray[np.float64] | None:
    """(2, 256) where each byte of red and green lies from 0 at black to 1 at white."""
    values = table[:2].to(torch.float64).numpy()
    spread = values[:, -1:] - values[:, :1]
    return None if (spread == 0).any() else np.asarray((values - values[:, :1]) / spread)


def _ramp(size: tuple[int, int]) -> Image.Image:
    width, height = size
    columns = np.rint(255 * (np.arange(width) + 0.5) / width).astype(np.uint8)
    rows = np.rint(255 * (np.arange(height) + 0.5) / height).astype(np.uint8)
    sides = (columns[None, :], rows[:, None])
    red, green = (Image.fromarray(side).resize(size, Image.Resampling.NEAREST) for side in sides)
    return Image.merge("RGB", (red, green, Image.new("L", size)))


def _ends(profile: NDArray[np.float64]) -> tuple[float, float] | None:
    """Where the first and the last pixel of a side begin and end; None: not a straight line."""
    places = np.arange(profile.size)
    slope, start = (float(part) for part in np.polyfit(places, profile, 1))
    if slope <= 0 or np.abs(start + slope * places - profile).max() > _MISFIT:
        return None
    low, high = start - slope / 2, start + slope * (profile.size - 0.5)
    # the ramp has 256 steps: closer to an edge than that is the edge
    return (low if low > _STEP else 0.0), (high if high < 1 - _STEP else 1.0)


class ImageEncoder:
    """Encodes pictures, arrays, image files and pixel tensors."""

    def __init__(
        self,
        transform: Transform | None,
        *,
        shape: tuple[int, int, int],
        grid: PatchGrid,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.transform = transform
        self._bytes = ByteTransform.of(transform, shape) if transform is not None else None
        self._crop = CropFinder(transform, self._bytes) if transform is not None else None
        self.shape = shape  #: (3, H, W) of the model's input
        self.grid = grid
        self.dtype, self.device = dtype, device

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Pixels (3, H, W) of each item, in order; the text parameters do not apply."""
        del long_text, max_length
        return encode_each(items, self._one)

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """Stack to pixel_values (B, 3, H, W), on the device in the model's number type."""
        lengths = torch.tensor([one.length for one in encoded])
        pixels = self._pixels([one.inputs for one in encoded])

        def moved() -> Batch:
            return Batch(
                encoded=tuple(encoded),
                inputs={NAME: pixels()},
                lengths=on_device(lengths, self.device),
            )

        return moved

    def _pixels(self, inputs: Sequence[Mapping[str, Tensor]]) -> Callable[[], Tensor]:
        pictures = [one for one in inputs if isinstance(one, PixelBytes)]
        table = table_of(pictures) if len(pictures) == len(inputs) else None
        if table is not None and self.device.type == "cuda":
            planes = torch.stack([one.planes for one in pictures])
            return lambda: gathered(
                on_device(planes, self.device), on_device(table, self.device).to(self.dtype)
            )
        if table is None:
            values = torch.stack([one[NAME] for one in inputs])
        else:
            values = stacked(pictures, table)
        return lambda: on_device(values, self.device).to(self.dtype)

    def _one(self, item: Item) -> Encoded:
        content = item.content
        if isinstance(content, Mapping):
            inputs, box = self._checked(_given(content)), WHOLE
        elif self.transform is None or self._crop is None:
            raise ItemError(
                "no-transform",
                "this model was wrapped without a transform: pass transform= to wrap, or give "
                "encoded inputs {'pixel_values': (3, H, W)}",
            )
        else:
            shown = picture(content)
            inputs, box = self._transformed(shown), self._crop.box(shown.size)
        return Encoded(
            item=item,
            inputs=inputs,
            features=replace(self.grid, box=box),
            length=self.grid.prefix + self.grid.rows * self.grid.cols,
            truncated=False,
        )

    def _transformed(self, shown: Image.Image) -> Mapping[str, Tensor]:
        assert self.transform is not None
        if self._bytes is None:
            return self._checked(self.transform(shown))
        found = self._bytes.bytes_of(shown)
        self._check_shape(found.planes)
        return found

    def _checked(self, pixels: Tensor) -> Mapping[str, Tensor]:
        self._check_shape(pixels)
        if not isfinite(float(pixels.sum(dtype=torch.float64))):
            raise ItemError("bad-input", "pixel_values hold NaN or infinity")
        return {NAME: pixels}

    def _check_shape(self, pixels: Tensor) -> None:
        if tuple(pixels.shape) != self.shape:
            raise ItemError(
                "bad-input",
                f"pixel_values have shape {tuple(pixels.shape)}; the model takes {self.shape}",
            )


def _given(content: Mapping[str, Any]) -> Tensor:
    if set(content) != {"pixel_values"}:
        raise ItemError(
            "bad-input", f"encoded pictures are {{'pixel_values': (3, H, W)}}, not {list(content)}"
        )
    try:
        pixels = torch.as_tensor(content["pixel_values"]).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ItemError(
            "bad-input", f"pixel_values are not an array of numbers: {error}"
        ) from error
    if not pixels.is_floating_point():
        raise ItemError(
            "bad-input",
            f"pixel_values must be normalised floats, not {pixels.dtype}; "
            "give the picture itself as an array (H, W, 3)",
        )
    return pixels[0] if pixels.ndim == 4 and pixels.shape[0] == 1 else pixels


def picture(content: Any) -> Image.Image:
    """An RGB picture from a PIL image, an array (H, W[, 1|3|4]) or what is `opened` as one.

    Arrays are bytes 0 to 255 or floats 0 to 1. Raises ItemError `bad-image`, `null` or
    `wrong-type`, and those of opening it.
    """
    if callable(opened := getattr(content, "opened", None)):
        content = opened()
    if content is None:
        raise ItemError("null", "the picture is null")
    if isinstance(content, Image.Image):
        return _rgb(content)
    if isinstance(content, Tensor):
        content = content.detach().cpu().numpy()
    if not isinstance(content, np.ndarray):
        raise ItemError(
            "wrong-type",
            f"an image model takes pictures or arrays, not {type(content).__name__}",
        )
    return _from_array(content)


def _rgb(image: Image.Image) -> Image.Image:
    try:
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise ItemError("bad-image", f"the picture cannot be read: {error}") from error


def _from_array(array: np.ndarray[Any, np.dtype[Any]]) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ItemError(
            "bad-image", f"an array of shape {array.shape} is no picture; give (H, W, 3)"
        )
    if 0 in array.shape:
        raise ItemError("bad-image", f"an array of shape {array.shape} has no pixels")
    if np.issubdtype(array.dtype, np.floating):
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise ItemError("bad-image", "float pictures must lie between 0 and 1")
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise ItemError("bad-image", f"arrays must be uint8 or float in 0 to 1, not {array.dtype}")
    return _rgb(Image.fromarray(array))
