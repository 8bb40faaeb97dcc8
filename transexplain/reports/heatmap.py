"""Draws heatmaps; the only module that normalises relevance."""

import base64
import io
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transexplain.errors import ConfigurationError

RGB = tuple[int, int, int]

#: name -> row of `palettes.png`, where each colour of a palette is a pixel. They were computed in
#: CIELAB: lightness falls evenly from 97 at 0 to 45 at both ends and chroma rises to 62, or as far
#: as a screen shows it, at the hues 272 (blue) and 36 (red), or 36 and 145 (green)
_ROWS = {"diverging": 0, "blue-red": 0, "green-red": 1}
PALETTES = tuple(_ROWS)

_HALF = 128  # steps from zero to one end


@cache
def table(palette: str = "diverging") -> NDArray[np.uint8]:
    """Colours from -1 over 0 (near white) to +1: (257, 3) RGB.

    Raises ConfigurationError for a palette that does not exist.
    """
    if palette not in _ROWS:
        raise ConfigurationError(f"unknown palette {palette!r}; known: {', '.join(PALETTES)}")
    picture = files("transexplain.reports").joinpath("templates", "palettes.png").read_bytes()
    colours: NDArray[np.uint8] = np.asarray(Image.open(io.BytesIO(picture)))[_ROWS[palette]]
    return colours


def colour(value: float, palette: str = "diverging") -> RGB:
    """The colour of a value in [-1, 1]; values outside take the colour of the end."""
    place = round((min(1.0, max(-1.0, value)) + 1.0) * _HALF)
    red, green, blue = table(palette)[place].tolist()
    return red, green, blue


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


def overlay(
    image: Picture,
    relevance: NDArray[Any],
    *,
    alpha: float = 0.5,
    scale: float | None = None,
    palette: str = "diverging",
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
    solid: bool = False,
) -> Image.Image:
    """alpha * image + (1 - alpha) * colours of the relevance, upsampled bilinearly.

    TransExplain, section 3.3.1. The colours are a layer whose opacity grows with
    |relevance|, so that the picture is unchanged where there is none; `solid` ones cover all of
    it, as the paper's equation has them.

    Args:
        image: PIL image of any mode, or array (H, W[, 1|3|4]), uint8, uint16 or float in 0 to 1.
        relevance: (rows, cols) over the `box` of the picture, signed, any unit.
        alpha: share of the picture itself, 0 to 1; at 1 it is the plain picture.
        scale: |relevance| that gets the full colour, the same for all pictures to be compared;
            None: the largest of this picture.
        palette: name in `PALETTES`.
        box: left, top, right, bottom of the part that the model saw, as fractions.
        solid: whether no relevance has a colour too, near white.

    Returns: RGB picture (H, W).
    Raises: ConfigurationError for NaN, infinity, a wrong shape, alpha or scale.
    """
    base = rgb(image).copy()
    height, width = base.shape[:2]
    left, right = (round(edge * width) for edge in (box[0], box[2]))
    top, bottom = (round(edge * height) for edge in (box[1], box[3]))
    if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
        raise ConfigurationError(f"box {box} is not left, top, right, bottom within 0 to 1")
    left, top = min(left, width - 1), min(top, height - 1)
    seen = base[top : max(bottom, top + 1), left : max(right, left + 1)]
    shares = _upsampled(_shares(_grid(relevance), scale), seen.shape[:2])
    colours, opacity = _solid(shares, palette) if solid else _coloured(shares, palette)
    seen += _of_colours(alpha) * opacity[..., None] * (colours - seen)
    return Image.fromarray(np.rint(base).astype(np.uint8))


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
    return _layer(_upsampled(_shares(grid, scale), (height, width)), palette)


def _layer(shares: NDArray[np.float64], palette: str) -> Image.Image:
    colours, opacity = _coloured(shares, palette)
    pixels = np.concatenate([colours, opacity[..., None] * 255], axis=-1)
    return Image.fromarray(np.rint(pixels).astype(np.uint8), "RGBA")


def segments(
    relevance: NDArray[Any],
    labels: NDArray[Any],
    *,
    picture: Picture | None = None,
    alpha: float = 0.4,
    scale: float | None = None,
    palette: str = "diverging",
) -> Image.Image:
    """Relevance of the parts of a picture, each in one colour within its outline.

    Args:
        relevance: (T,) signed, any unit.
        labels: (rows, cols) the part, 0 to T - 1, that each place belongs to; -1: to none.
        picture: what lies below, as in `overlay`; the parts are stretched over it. None: white.
        alpha, scale, palette: as in `overlay`.

    Returns: RGB picture as large as `picture`, else 192 pixels wide.
    Raises: ConfigurationError for NaN, infinity, labels that name no part, a wrong shape.
    """
    shape = np.shape(relevance)
    parts = np.asarray(labels)
    if parts.ndim != 2 or 0 in parts.shape or not np.issubdtype(parts.dtype, np.integer):
        raise ConfigurationError(
            f"labels must be integers of shape (rows, cols), not {parts.dtype} of {parts.shape}"
        )
    if len(shape) != 1 or parts.min() < -1 or parts.max() >= shape[0]:
        raise ConfigurationError(
            f"labels from {parts.min()} to {parts.max()} do not fit relevance of shape {shape}; "
            "give relevance (T,) and labels from 0 (or -1: none) to T - 1"
        )
    blank = Image.new("RGB", (192, max(1, round(192 * parts.shape[0] / parts.shape[1]))), "white")
    base = rgb(blank if picture is None else picture)
    height, width = base.shape[:2]
    down = np.arange(height) * parts.shape[0] // height
    across = np.arange(width) * parts.shape[1] // width
    place = parts[np.ix_(down, across)]
    shares = _shares(_grid(np.atleast_2d(relevance)), scale)
    # -1 reads the last: no relevance
    colours, opacity = _coloured(np.append(shares, 0.0)[place], palette)
    drawn = base + _of_colours(alpha) * opacity[..., None] * (colours - base)
    edge = np.zeros(place.shape, dtype=bool)
    edge[:, 1:] |= place[:, 1:] != place[:, :-1]
    edge[1:] |= place[1:] != place[:-1]
    drawn[edge] += 0.5 * (128.0 - drawn[edge])  # grey shows on light and on dark
    return Image.fromarray(np.rint(drawn).astype(np.uint8))


_PALEST = 96  # grey of black in a muted picture


def colour_bar(*, width: int = 256, height: int = 12, palette: str = "diverging") -> Image.Image:
    """The key to a heatmap, RGBA: from -scale at the left over transparent 0 to +scale."""
    return _layer(_upsampled(np.linspace(-1.0, 1.0, width)[None], (height, width)), palette)


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


READABLE = 384  #: pixels of the longer side on which a heatmap can be read


def enlarged(image: Picture, size: int = READABLE) -> Image.Image:
    """`image` as a PIL image whose longer side has at least `size` pixels; never smaller."""
    drawn = Image.fromarray(np.rint(rgb(image)).astype(np.uint8))
    return resized(drawn, smallest=size, largest=max(size, *drawn.size))


def muted(image: Image.Image) -> Image.Image:
    """`image` in pale grey: what stands under a heatmap whose picture is shown next to it.

    Colours of the picture would mix with those of the relevance, and a red horse look relevant.
    """
    grey = np.asarray(image.convert("L"), dtype=np.float64)
    return Image.fromarray(np.rint(_PALEST + (255 - _PALEST) * grey / 255).astype(np.uint8), "L")


Grid = tuple[tuple[float, ...], ...]


def grid_of(relevance: NDArray[Any]) -> Grid:
    """A (rows, cols) array as rows of plain numbers."""
    return tuple(tuple(map(float, row)) for row in relevance)


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


Layer = tuple[NDArray[np.float64], NDArray[np.float64]]


def _upsampled(shares: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Shares (H, W) in -1 to 1 from those of the patches."""
    import cv2  # takes 35 MB, which a server of texts never needs

    larger = cv2.resize(shares, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR)
    clipped: NDArray[np.float64] = np.clip(larger, -1.0, 1.0)
    return clipped


def _of_colours(alpha: float) -> float:
    """The share 1 - alpha of the colours."""
    if not 0.0 <= alpha <= 1.0:
        raise ConfigurationError(f"alpha must lie between 0 and 1, not {alpha}")
    return 1.0 - alpha


def _coloured(share: NDArray[np.float64], palette: str) -> Layer:
    """Colours (H, W, 3) in 0 to 255 and opacity (H, W) in 0 to 1 of shares in -1 to 1."""
    # opacity shows the strength; a pale colour would only lighten dark pictures
    deep = np.copysign(0.5 + 0.5 * np.abs(share), share)
    return _solid(deep, palette)[0], np.abs(share)


def _solid(share: NDArray[np.float64], palette: str) -> Layer:
    """The same where the colour alone shows the strength."""
    places = np.rint((share + 1.0) * _HALF).astype(np.intp)
    return table(palette)[places].astype(np.float64), np.ones_like(share)


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
