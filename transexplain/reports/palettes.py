"""Diverging colours for signed values, computed in CIELAB.

Both arms of a palette have the same lightness at the same strength, so neither sign looks
stronger than the other. Hue alone tells the sign: blue and red differ for every common kind of
colour blindness; green and red, which the TransExplain paper uses, do not.
"""

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError

RGB = tuple[int, int, int]

#: hue angles in CIELAB, degrees: (negative, positive)
_HUES = {
    "diverging": (272.0, 36.0),
    "blue-red": (272.0, 36.0),  # the same, by its colours
    "green-red": (36.0, 145.0),  # green is positive
}
PALETTES = tuple(_HUES)

_HALF = 128  # steps from zero to one end
_LIGHTEST, _DARKEST = 97.0, 45.0
_CHROMA = 62.0


@cache
def table(palette: str = "diverging") -> NDArray[np.uint8]:
    """Colours from -1 over 0 (near white) to +1: (257, 3) RGB.

    Raises ConfigurationError for a palette that does not exist.
    """
    if palette not in _HUES:
        raise ConfigurationError(f"unknown palette {palette!r}; known: {', '.join(PALETTES)}")
    negative, positive = _HUES[palette]
    left = _arm(negative)[:0:-1]
    found = np.concatenate([left, _arm(positive)])
    found.setflags(write=False)
    return found


def colour(value: float, palette: str = "diverging") -> RGB:
    """The colour of a value in [-1, 1]; values outside take the colour of the end."""
    place = round((min(1.0, max(-1.0, value)) + 1.0) * _HALF)
    red, green, blue = table(palette)[place].tolist()
    return red, green, blue


def _arm(hue: float) -> NDArray[np.uint8]:
    """From white to the strongest colour of one hue: (129, 3) RGB."""
    strength = np.linspace(0.0, 1.0, _HALF + 1)
    lightness = _LIGHTEST + (_DARKEST - _LIGHTEST) * strength
    # chroma runs ahead of lightness: weak values already show their hue
    chroma = np.minimum(_CHROMA * strength**0.8, _gamut_limit(lightness, hue))
    return np.rint(_rgb(lightness, chroma, hue) * 255).astype(np.uint8)


def _gamut_limit(lightness: NDArray[np.float64], hue: float) -> NDArray[np.float64]:
    """The largest chroma that a screen shows at each lightness, to 1 unit."""
    limit = np.zeros_like(lightness)
    for chroma in range(int(_CHROMA) + 1):
        rgb = _rgb(lightness, np.full_like(lightness, chroma), hue, clip=False)
        inside = ((rgb > 0.0) & (rgb < 1.0)).all(axis=-1)
        limit = np.where(inside & (limit >= chroma - 1), float(chroma), limit)
    return limit


def _rgb(
    lightness: NDArray[np.float64], chroma: NDArray[np.float64], hue: float, *, clip: bool = True
) -> NDArray[np.float64]:
    angle = np.deg2rad(hue)
    lab = np.stack([lightness, chroma * np.cos(angle), chroma * np.sin(angle)], axis=-1)
    rgb = cv2.cvtColor(lab[None].astype(np.float32), cv2.COLOR_Lab2RGB)[0].astype(np.float64)
    found: NDArray[np.float64] = np.clip(rgb, 0.0, 1.0) if clip else rgb
    return found
