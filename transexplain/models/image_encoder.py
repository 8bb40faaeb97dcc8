"""Encodes pictures as pixel tensors, with the patch grid and the crop that the model sees."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from operator import methodcaller
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
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
from transexplain.types.items import Item, ItemFailure, PatchGrid

#: an RGB picture to the model's input (3, H, W)
Transform = Callable[[Image.Image], Tensor]
#: one thing that is done to a picture
Step = Callable[[Image.Image], Image.Image]
#: the name of a method of a picture, and its arguments
Call = tuple[Any, ...]

NAME = "pixel_values"
_SAMPLES = ((61, 97), (130, 67), (300, 211))  #: width, height
_SIDE = 16  #: of a picture of all bytes
_REMEMBERED = 4096  #: picture sizes
#: torchvision's transforms that ask of a picture what its size says, and nothing else
_PLANNED = {f"torchvision.transforms.transforms.{name}" for name in ("Resize", "CenterCrop")}
_SEPARABLE = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)
_NARROW = 5 / 6  #: of a side: a crop that is worth an intermediate picture
_OFTEN = 8  #: pictures of one size, of which on it is worth a trial to resize less of them


@dataclass(frozen=True, slots=True, eq=False)
class PixelBytes(Mapping[str, Tensor]):
    """The inputs of one picture: `pixel_values` (3, H, W), made anew whenever they are asked for.

    `planes` (3, H, W) are bytes, `table` (3, 256) their values in each channel.
    """

    planes: Tensor
    table: Tensor

    def __getitem__(self, name: str) -> Tensor:
        if name != NAME:
            raise KeyError(name)
        return stacked([self], self.table)[0]

    def __iter__(self) -> Iterator[str]:
        return iter((NAME,))

    def __len__(self) -> int:
        return 1


def table_of(pictures: Sequence[PixelBytes]) -> Tensor | None:
    """The table that all these pictures share; None: they do not."""
    tables = {
        id(picture.table): picture.table for picture in pictures
    }  # those of a part are one object
    first, *others = tables.values()
    same = all(other.dtype == first.dtype and torch.equal(other, first) for other in others)
    return first if same else None


def stacked(pictures: Sequence[PixelBytes], table: Tensor) -> Tensor:
    """Values (B, 3, H, W) of pictures of one size, on the CPU."""
    made = torch.empty((len(pictures), *pictures[0].planes.shape), dtype=table.dtype)
    rows = table.numpy()
    for picture, target in zip(pictures, made.numpy(), strict=True):
        for plane, row, values in zip(picture.planes.numpy(), rows, target, strict=True):
            cv2.LUT(plane, row, dst=values)
    return made


def gathered(planes: Tensor, table: Tensor) -> Tensor:
    """Values (B, 3, H, W) of bytes (B, 3, H, W), wherever both are."""
    made = torch.empty(planes.shape, dtype=table.dtype, device=planes.device)
    for channel, row in enumerate(table):
        places = planes[:, channel].to(torch.int32).flatten()
        made[:, channel] = row.index_select(0, places).view_as(made[:, channel])
    return made


@dataclass(frozen=True, slots=True, eq=False)
class ByteTransform:
    """A transform in two steps: `to_bytes` (3, H, W), and their values (3, 256)."""

    to_bytes: Transform
    table: Tensor

    @classmethod
    def of(cls, transform: Transform, shape: tuple[int, int, int]) -> "ByteTransform | None":
        """The two steps of a transform to `shape`; None where they do not give its own bits.

        timm's transforms, torchvision's of the same build, and image processors of transformers
        are known; whether the steps give what the transform gives is tried with noise of several
        sizes.
        """
        sizes = (*_SAMPLES, (shape[2], shape[1]))
        try:
            steps = _steps(transform)
            if steps is None:
                return None
            to_bytes, values = steps
            made = cls(to_bytes, _table(values))
            same = all(made.gives(transform, sample, shape) for sample in _samples(sizes))
        except Exception:  # noqa: BLE001 - the transform itself is asked then, and says what is wrong
            return None
        return made if same else None

    def bytes_of(self, picture: Image.Image) -> PixelBytes:
        """The inputs of an RGB picture."""
        return PixelBytes(self.to_bytes(picture), self.table)

    def gives(self, transform: Transform, picture: Image.Image, shape: Sequence[int]) -> bool:
        """Return whether both make the same (3, H, W) of a picture, to the bit."""
        wanted, pixels = transform(picture), self.bytes_of(picture)
        return (
            tuple(wanted.shape) == tuple(pixels.planes.shape) == tuple(shape)
            and pixels.planes.dtype == torch.uint8
            and wanted.dtype == self.table.dtype
            and torch.equal(wanted, pixels[NAME])
        )


def _samples(sizes: Sequence[tuple[int, int]]) -> Iterator[Image.Image]:
    """Noise of these sizes (width, height)."""
    random = np.random.default_rng(0)
    for width, height in sizes:
        noise = random.integers(0, 256, size=(height, width, 3), dtype=np.uint8)
        noise[: height // 4] //= 255  # as good as black, and edges to resize
        yield Image.fromarray(noise)


def _table(values: Transform) -> Tensor:
    """(3, 256) what `values`, which neither resizes nor crops, makes of every byte."""
    every = np.arange(256, dtype=np.uint8).reshape(_SIDE, _SIDE)
    table = values(Image.fromarray(np.stack([every] * 3, axis=-1))).detach()
    if table.dtype not in (torch.float32, torch.float64) or not table.isfinite().all():
        raise ValueError("not a table of finite floats")
    return table.reshape(3, 256).contiguous()


def _steps(transform: Any) -> tuple[Transform, Transform] | None:
    """The ways from a picture to bytes and from bytes to values; None: not known."""
    if callable(own := getattr(transform, "steps", None)):
        to_bytes, values = own()
        return to_bytes, values
    if not _named(transform, "Compose"):
        return None
    several = list(transform.transforms)
    floats = next((n for n, step in enumerate(several) if _named(step, "ToTensor")), len(several))
    if not several[floats:] or not all(_named(step, "Normalize") for step in several[floats + 1 :]):
        return None
    return _Planes(tuple(several[:floats])), type(transform)(several[floats:])


def _named(value: Any, name: str) -> bool:
    """Return whether a value is of torchvision's class of this name."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == "torchvision"
        for base in type(value).__mro__
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Planes:
    """Applies transforms of pictures, and takes the result's three channels apart."""

    transforms: tuple[Step, ...]
    by_size: dict[tuple[int, int], tuple[Step, ...]] = field(default_factory=dict)
    seen: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __call__(self, picture: Image.Image) -> Tensor:
        for step in self._steps(picture.size):
            picture = step(picture)
        if picture.mode != "RGB":
            raise ValueError(f"a picture of mode {picture.mode}")
        planes: NDArray[np.uint8] = np.empty((3, picture.height, picture.width), dtype=np.uint8)
        # Pillow keeps four bytes a pixel: as they are, they need no copy
        pixels = pa.array(picture).values.to_numpy().reshape(*planes.shape[1:], 4)
        cv2.split(pixels, [*planes, np.empty_like(planes[0])])
        return torch.from_numpy(planes)

    def _steps(self, size: tuple[int, int]) -> tuple[Step, ...]:
        if len(self.by_size) >= _REMEMBERED:
            self.by_size.clear()
            self.seen.clear()
        self.seen[size] += 1
        if size not in self.by_size:
            calls = _calls(self.transforms, size)
            self.by_size[size] = self.transforms if calls is None else _made(calls)
        elif self.seen[size] == _OFTEN:
            self.by_size[size] = _shortened(self.transforms, size)
        return self.by_size[size]


def _made(calls: Sequence[Call]) -> tuple[Step, ...]:
    return tuple(methodcaller(*call) for call in calls)


def _calls(transforms: tuple[Step, ...], size: tuple[int, int]) -> list[Call] | None:
    """The calls of the transforms on a picture of `size`; None: not known."""
    kinds = {f"{type(transform).__module__}.{type(transform).__name__}" for transform in transforms}
    if not kinds <= _PLANNED:
        return None
    asked: Any = _Unseen(size, [])
    try:
        for step in transforms:
            asked = step(asked)
        calls: list[Call] = asked.calls
    except Exception:  # noqa: BLE001 - they ask for more than its size
        return None
    return calls


def _shortened(transforms: tuple[Step, ...], size: tuple[int, int]) -> tuple[Step, ...]:
    """Steps that resize less of what is cropped away, where they give the same bits.

    Pillow resizes first along one side and then along the other, in an order that it chooses by
    the sizes; what is cropped away can go in between. Noise shows whether the order was the same.
    """
    calls = _calls(transforms, size)
    whole = transforms if calls is None else _made(calls)
    noise = next(_samples((size,)))
    for shorter in _shorter(calls, size):
        steps = _made(shorter)
        if np.array_equal(_applied(whole, noise), _applied(steps, noise)):
            return steps
    return whole


def _shorter(calls: list[Call] | None, size: tuple[int, int]) -> Iterator[list[Call]]:
    """Resizing along one side, cropping it, and the same for the other: both ways around."""
    match calls:
        case [("resize", (width, height), how), ("crop", (left, top, right, bottom))] if (
            how in _SEPARABLE and min(left, top) >= 0 and right <= width and bottom <= height
        ):
            if right - left <= _NARROW * width:
                rows = [("resize", (width, size[1]), how), ("crop", (left, 0, right, size[1]))]
                inside = ("crop", (0, top, right - left, bottom))
                yield [*rows, ("resize", (right - left, height), how), inside]
            if bottom - top <= _NARROW * height:
                columns = [("resize", (size[0], height), how), ("crop", (0, top, size[0], bottom))]
                inside = ("crop", (left, 0, right, bottom - top))
                yield [*columns, ("resize", (width, bottom - top), how), inside]


def _applied(steps: tuple[Step, ...], picture: Image.Image) -> NDArray[np.uint8]:
    for step in steps:
        picture = step(picture)
    return np.asarray(picture)


class _Unseen(Image.Image):
    """Stands for an RGB picture of a size: it has no pixels, and notes what is asked of it."""

    def __init__(self, size: tuple[int, int], calls: list[Call]) -> None:
        super().__init__()
        self._mode, self._size = "RGB", size
        self.calls = calls

    def resize(self, size: Any, resample: Any = None, *others: Any, **options: Any) -> "_Unseen":
        """Noted."""
        if others or options:
            raise NotImplementedError
        return _Unseen(tuple(size), [*self.calls, ("resize", tuple(size), resample)])

    def crop(self, box: Any = None) -> "_Unseen":
        """Noted."""
        left, top, right, bottom = box
        call = ("crop", (left, top, right, bottom))
        return _Unseen((right - left, bottom - top), [*self.calls, call])


#: left, top, right, bottom, as fractions of the picture
Box = tuple[float, float, float, float]
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)

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
        lengths = torch.tensor([entry.length for entry in encoded])
        pixels = self._pixels([entry.inputs for entry in encoded])

        def moved() -> Batch:
            return Batch(
                encoded=tuple(encoded),
                inputs={NAME: pixels()},
                lengths=on_device(lengths, self.device),
            )

        return moved

    def _pixels(self, inputs: Sequence[Mapping[str, Tensor]]) -> Callable[[], Tensor]:
        pictures = [tensor for tensor in inputs if isinstance(tensor, PixelBytes)]
        table = table_of(pictures) if len(pictures) == len(inputs) else None
        if table is not None and self.device.type == "cuda":
            planes = torch.stack([picture.planes for picture in pictures])
            return lambda: gathered(
                on_device(planes, self.device), on_device(table, self.device).to(self.dtype)
            )
        if table is None:
            values = torch.stack([tensor[NAME] for tensor in inputs])
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
        pixels = self._bytes.bytes_of(shown)
        self._check_shape(pixels.planes)
        return pixels

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
