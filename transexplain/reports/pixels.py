"""The colours of a picture as numbers, whatever kind of picture it is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transexplain.errors import ConfigurationError

Picture = Image.Image | NDArray[Any]


def rgb(image: Picture) -> NDArray[np.float64]:
    """(H, W, 3) in 0 to 255; transparent parts on white.

    Takes PIL images of any mode and arrays (H, W[, 1|3|4]), uint8, uint16 or float in 0 to 1.
    Raises ConfigurationError for arrays that are no picture.
    """
    if isinstance(image, Image.Image):
        if image.mode.startswith("I"):  # 16-bit grey: Pillow would clip it to white
            return _rgb_of_array(np.asarray(image).clip(0, 65535).astype(np.uint16))
        if image.mode == "F":
            image = image.convert("L")
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.asarray(image.convert("RGB")).astype(np.float64)
    return _rgb_of_array(np.asarray(image))


def _rgb_of_array(array: NDArray[Any]) -> NDArray[np.float64]:
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4) or 0 in array.shape:
        raise ConfigurationError(
            f"a picture must be an array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), "
            f"not {array.shape}"
        )
    values = _bytes(array).reshape(*array.shape[:2], channels)
    if channels == 4:
        cover = values[..., 3:] / 255.0
        return values[..., :3] * cover + 255.0 * (1.0 - cover)
    return np.repeat(values, 3, axis=2) if channels == 1 else values


def _bytes(array: NDArray[Any]) -> NDArray[np.float64]:
    """Brightness from 0 to 255, read by the array's number type."""
    numbers = array.astype(np.float64)
    if array.dtype == np.bool_:
        return numbers * 255.0
    if np.issubdtype(array.dtype, np.floating):
        top = 1.0
    else:
        top = 65535.0 if array.dtype == np.uint16 else 255.0
    if not (np.isfinite(numbers).all() and numbers.min() >= 0.0 and numbers.max() <= top):
        raise ConfigurationError(
            f"a picture of type {array.dtype} must lie between 0 and {top:g}; "
            "give the picture itself, not the model's normalised input"
        )
    return numbers * (255.0 / top)
