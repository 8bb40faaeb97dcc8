"""Heatmaps: the only place that draws. Relevance is normalised here and nowhere before."""

import base64
import io
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transexplain.errors import ConfigurationError
from transexplain.reports.palettes import table

Picture = Image.Image | NDArray[Any]


def overlay(
    image: Picture,
    relevance: NDArray[Any],
    *,
    alpha: float = 0.5,
    scale: float | None = None,
    palette: str = "diverging",
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
) -> Image.Image:
    """`image` with the relevance of its patches laid over it, upsampled bilinearly.

    Opacity grows with |relevance|: where it is 0 the picture is unchanged, at `scale` and beyond
    the colour covers `alpha` of it.

    Args:
        image: PIL image of any mode, or array (H, W[, 1|3|4]), uint8, uint16 or float in 0 to 1.
        relevance: (rows, cols) over the `box` of the picture, signed, any unit.
        alpha: blending coefficient, 0 to 1.
        scale: |relevance| that gets the full colour, the same for all pictures to be compared;
            None: the largest of this picture.
        palette: name in `palettes.PALETTES`.
        box: left, top, right, bottom of the part that the model saw, as fractions.

    Returns: RGB picture (H, W).
    Raises: ConfigurationError for NaN, infinity, a wrong shape, alpha or scale.
    """
    base = _rgb(image).copy()
    seen = _part(base, box)
    colours, opacity = _layer(relevance, seen.shape[:2], alpha=alpha, scale=scale, palette=palette)
    seen += opacity[..., None] * (colours - seen)
    return Image.fromarray(np.rint(base).astype(np.uint8))


def _part(
    pixels: NDArray[np.float64], box: tuple[float, float, float, float]
) -> NDArray[np.float64]:
    """The view of `pixels` (H, W, 3) inside `box`, at least one pixel wide and high."""
    height, width = pixels.shape[:2]
    left, right = (round(edge * width) for edge in (box[0], box[2]))
    top, bottom = (round(edge * height) for edge in (box[1], box[3]))
    if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
        raise ConfigurationError(f"box {box} is not left, top, right, bottom within 0 to 1")
    left, top = min(left, width - 1), min(top, height - 1)
    return pixels[top : max(bottom, top + 1), left : max(right, left + 1)]


def tile(
    relevance: NDArray[Any],
    *,
    width: int = 192,
    scale: float | None = None,
    palette: str = "diverging",
) -> Image.Image:
    """The heatmap alone, RGBA of `width` pixels: 0 is transparent, so it sits on any page."""
    grid = _grid(relevance)
    height = max(1, round(width * grid.shape[0] / grid.shape[1]))
    colours, opacity = _layer(grid, (height, width), alpha=1.0, scale=scale, palette=palette)
    pixels = np.concatenate([colours, opacity[..., None] * 255], axis=-1)
    return Image.fromarray(np.rint(pixels).astype(np.uint8), "RGBA")


def colour_bar(*, width: int = 256, height: int = 12, palette: str = "diverging") -> Image.Image:
    """The key to a heatmap, RGBA: from -scale at the left over transparent 0 to +scale."""
    ramp = np.linspace(-1.0, 1.0, width)[None]
    colours, opacity = _layer(ramp, (height, width), alpha=1.0, scale=1.0, palette=palette)
    pixels = np.concatenate([colours, opacity[..., None] * 255], axis=-1)
    return Image.fromarray(np.rint(pixels).astype(np.uint8), "RGBA")


def resized(image: Image.Image, *, smallest: int, largest: int) -> Image.Image:
    """`image` with its longer side between two bounds, so that small pictures show a heatmap.

    Enlarging keeps the pixels square: a 32-pixel picture should look like what the model got.
    """
    side = max(image.size)
    if smallest <= side <= largest:
        return image
    factor = (smallest if side < smallest else largest) / side
    size = tuple(max(1, round(length * factor)) for length in image.size)
    method = Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS
    return image.resize((size[0], size[1]), method)


def data_uri(image: Image.Image, *, quality: int = 86) -> str:
    """`image` as a `data:` address: JPEG, or PNG where it has transparency."""
    buffer = io.BytesIO()
    if image.mode == "RGBA":
        image.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        image.convert("RGB").save(buffer, "JPEG", quality=quality, subsampling=0, optimize=True)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _layer(
    relevance: NDArray[Any],
    shape: tuple[int, int],
    *,
    alpha: float,
    scale: float | None,
    palette: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Colours (H, W, 3) in 0 to 255 and opacity (H, W) in 0 to 1."""
    if not 0.0 <= alpha <= 1.0:
        raise ConfigurationError(f"alpha must lie between 0 and 1, not {alpha}")
    share = _shares(_grid(relevance), scale)
    share = cv2.resize(share, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR)
    share = np.clip(share, -1.0, 1.0)
    # opacity says how strong; a pale colour besides would only lighten dark pictures
    deep = np.copysign(0.5 + 0.5 * np.abs(share), share)
    colours = table(palette)[np.rint((deep + 1.0) * 128).astype(np.intp)].astype(np.float64)
    return colours, alpha * np.abs(share)


def _shares(grid: NDArray[np.float64], scale: float | None) -> NDArray[np.float64]:
    """Relevance in units of the scale, before upsampling, at most 1 in size."""
    if scale is None:
        scale = float(np.abs(grid).max())
    elif not (np.isfinite(scale) and scale >= 0.0):
        raise ConfigurationError(f"a heatmap's scale must be a positive number, not {scale}")
    if scale == 0.0:
        return np.zeros_like(grid)
    # clipped first: dividing by a tiny scale must not overflow
    shares: NDArray[np.float64] = np.clip(grid, -scale, scale) / scale
    return shares


def _grid(relevance: NDArray[Any]) -> NDArray[np.float64]:
    grid = np.asarray(relevance)
    if grid.ndim != 2 or 0 in grid.shape:
        raise ConfigurationError(
            f"a heatmap needs relevance of shape (rows, cols), not {grid.shape}"
        )
    numbers = grid.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ConfigurationError("this relevance holds NaN or infinity and cannot be drawn")
    return numbers


def _rgb(image: Picture) -> NDArray[np.float64]:
    """(H, W, 3) in 0 to 255; transparent parts on white."""
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
