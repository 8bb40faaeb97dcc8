"""Pictures as bytes, with a table of what a model's transform makes of each byte.

Most transforms resize and crop a picture in bytes, and then scale and normalise every byte by
itself: a table of 256 values for each channel says all of that, exactly. So pictures wait and
travel in a quarter of the memory, and become floats as a batch, on the device where it is a card.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

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
    tables = {id(one.table): one.table for one in pictures}  # those of a part are one object
    first, *others = tables.values()
    same = all(one.dtype == first.dtype and torch.equal(one, first) for one in others)
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
            same = all(made.gives(transform, one, shape) for one in _samples(sizes))
        except Exception:  # noqa: BLE001 - the transform itself is asked then, and says what is wrong
            return None
        return made if same else None

    def bytes_of(self, picture: Image.Image) -> PixelBytes:
        """The inputs of an RGB picture."""
        return PixelBytes(self.to_bytes(picture), self.table)

    def gives(self, transform: Transform, picture: Image.Image, shape: Sequence[int]) -> bool:
        """Whether both make the same (3, H, W) of a picture, to the bit."""
        wanted, found = transform(picture), self.bytes_of(picture)
        return (
            tuple(wanted.shape) == tuple(found.planes.shape) == tuple(shape)
            and found.planes.dtype == torch.uint8
            and wanted.dtype == self.table.dtype
            and torch.equal(wanted, found[NAME])
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
    """How bytes are made of a picture, and values of bytes; None: not known."""
    if callable(own := getattr(transform, "steps", None)):
        to_bytes, values = own()
        return to_bytes, values
    if not _named(transform, "Compose"):
        return None
    several = list(transform.transforms)
    floats = next((n for n, one in enumerate(several) if _named(one, "ToTensor")), len(several))
    if not several[floats:] or not all(_named(one, "Normalize") for one in several[floats + 1 :]):
        return None
    return _Planes(tuple(several[:floats])), type(transform)(several[floats:])


def _named(value: Any, name: str) -> bool:
    """Whether a value is of torchvision's class of this name."""
    return any(
        one.__name__ == name and one.__module__.partition(".")[0] == "torchvision"
        for one in type(value).__mro__
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
    """What the transforms ask of a picture of `size`; None: that is not known."""
    kinds = {f"{type(one).__module__}.{type(one).__name__}" for one in transforms}
    if not kinds <= _PLANNED:
        return None
    asked: Any = _Unseen(size, [])
    try:
        for one in transforms:
            asked = one(asked)
        found: list[Call] = asked.calls
    except Exception:  # noqa: BLE001 - they ask for more than its size
        return None
    return found


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
