"""Which part of a picture a transform lets the model see."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from transexplain.models.transform import Transform

#: left, top, right, bottom, as fractions of the picture
Box = tuple[float, float, float, float]
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)

_REMEMBERED = 4096  #: picture sizes
_STEP = 1 / 256
_MISFIT = 0.02  #: of the picture's side; a transform that is no resize and crop fits worse


class CropFinder:
    """Finds the box of a transform for each picture size by transforming a ramp.

    The red value of the ramp tells the column that a pixel came from, the green one its row; two
    plain pictures tell what the transform does to values.
    """

    def __init__(self, transform: Transform) -> None:
        self._transform = transform
        self._black, self._white = (self._of(Image.new("RGB", (64, 64), c)) for c in (0, 0xFFFFFF))
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
        seen = self._of(_ramp(size))
        spread = self._white - self._black
        if seen.shape != spread.shape or not np.all(np.abs(spread[:2]) > 0):
            return WHOLE
        share = (seen[:2] - self._black[:2]) / spread[:2]
        across, down = _ends(share[0].mean(axis=0)), _ends(share[1].mean(axis=1))
        if across is None or down is None:
            return WHOLE
        return (across[0], down[0], across[1], down[1])

    def _of(self, image: Image.Image) -> NDArray[np.float64]:
        pixels: Tensor = self._transform(image)
        return pixels.detach().to(torch.float64).numpy()


def _ramp(size: tuple[int, int]) -> Image.Image:
    width, height = size
    columns = np.rint(255 * (np.arange(width) + 0.5) / width).astype(np.uint8)
    rows = np.rint(255 * (np.arange(height) + 0.5) / height).astype(np.uint8)
    red = np.broadcast_to(columns[None, :], (height, width))
    green = np.broadcast_to(rows[:, None], (height, width))
    return Image.fromarray(np.stack([red, green, np.zeros_like(red)], axis=-1))


def _ends(profile: NDArray[np.float64]) -> tuple[float, float] | None:
    """Where the first and the last pixel of a side begin and end; None: not a straight line."""
    places = np.arange(profile.size)
    slope, start = (float(part) for part in np.polyfit(places, profile, 1))
    if slope <= 0 or np.abs(start + slope * places - profile).max() > _MISFIT:
        return None
    low, high = start - slope / 2, start + slope * (profile.size - 0.5)
    # the ramp has 256 steps: closer to an edge than that is the edge
    return (low if low > _STEP else 0.0), (high if high < 1 - _STEP else 1.0)
