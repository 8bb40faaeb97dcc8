"""Pictures to pixel tensors, and the patch grid that their positions are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from transexplain.errors import ItemError
from transexplain.models.base import Batch, Encoded, LongText, failure
from transexplain.models.crop import WHOLE, CropFinder
from transexplain.models.transform import Transform
from transexplain.types import Item, ItemFailure, PatchGrid


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
        self._crop = CropFinder(transform) if transform is not None else None
        self.shape = shape  #: (3, H, W) of the model's input
        self.grid = grid
        self.dtype, self.device = dtype, device

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Pixels (3, H, W) of each item, in order; the text parameters do not apply."""
        del long_text, max_length
        results: list[Encoded | ItemFailure] = []
        for item in items:
            try:
                results.append(self._one(item))
            except ItemError as error:
                results.append(failure(item, error))
        return results

    def collate(self, encoded: Sequence[Encoded]) -> Batch:
        """Stack to pixel_values (B, 3, H, W) in the model's number type."""
        pixels = torch.stack([one.inputs["pixel_values"] for one in encoded])
        lengths = torch.tensor([one.length for one in encoded], device=self.device)
        return Batch(
            encoded=tuple(encoded),
            inputs={"pixel_values": pixels.to(self.device, self.dtype)},
            lengths=lengths,
        )

    def _one(self, item: Item) -> Encoded:
        content, box = item.content, WHOLE
        if isinstance(content, Mapping):
            pixels = _given(content)
        elif self.transform is None or self._crop is None:
            raise ItemError(
                "no-transform",
                "this model was wrapped without a transform: pass transform= to wrap, or give "
                "encoded inputs {'pixel_values': (3, H, W)}",
            )
        else:
            shown = picture(content)
            pixels = self.transform(shown)
            box = self._crop.box(shown.size)
        if tuple(pixels.shape) != self.shape:
            raise ItemError(
                "bad-input",
                f"pixel_values have shape {tuple(pixels.shape)}; the model takes {self.shape}",
            )
        if not bool(torch.isfinite(pixels).all()):
            raise ItemError("bad-input", "pixel_values hold NaN or infinity")
        return Encoded(
            item=item,
            inputs={"pixel_values": pixels},
            features=replace(self.grid, box=box),
            length=self.grid.prefix + self.grid.rows * self.grid.cols,
            truncated=False,
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
    """An RGB picture from a PIL image or an array (H, W[, 1|3|4]).

    Arrays are bytes 0 to 255 or floats 0 to 1. Raises ItemError `bad-image`, `null` or
    `wrong-type`.
    """
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
        return image.convert("RGB")
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
