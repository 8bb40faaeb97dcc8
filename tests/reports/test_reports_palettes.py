"""Diverging palettes: both signs equally strong, zero neutral."""

import cv2
import numpy as np
import pytest

from transexplain.errors import ConfigurationError
from transexplain.reports.heatmap import PALETTES, colour, table


def lab(palette: str) -> np.ndarray:
    return cv2.cvtColor((table(palette)[None] / 255.0).astype(np.float32), cv2.COLOR_RGB2Lab)[0]


@pytest.mark.parametrize("palette", PALETTES)
def test_both_arms_have_the_same_lightness_and_darken_with_strength(palette: str) -> None:
    lightness = lab(palette)[:, 0]
    assert np.abs(lightness - lightness[::-1]).max() < 1.0  # of 100
    assert (np.diff(lightness[128:]) < 0.15).all()
    assert lightness[128] > 95 and lightness[0] < 50


@pytest.mark.parametrize("palette", PALETTES)
def test_zero_has_no_hue_and_the_ends_do(palette: str) -> None:
    chroma = np.hypot(lab(palette)[:, 1], lab(palette)[:, 2])
    assert chroma[128] < 1.0
    assert chroma[0] > 40 and chroma[256] > 40


def test_positive_is_red_or_green_and_negative_the_other_end() -> None:
    assert np.argmax(colour(1.0, "blue-red")) == 0
    assert np.argmax(colour(-1.0, "blue-red")) == 2
    assert np.argmax(colour(1.0, "green-red")) == 1
    assert np.argmax(colour(-1.0, "green-red")) == 0


def deuteranope(rgb: tuple[int, int, int]) -> np.ndarray:
    """How a viewer without M cones sees a colour (Vienot 1999), in CIELAB."""
    linear = (np.asarray(rgb) / 255.0) ** 2.2
    to_lms = np.array(
        [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
    )
    lms = to_lms @ linear
    lms[1] = 0.494207 * lms[0] + 1.24827 * lms[2]
    seen = np.clip(np.linalg.inv(to_lms) @ lms, 0, 1) ** (1 / 2.2)
    return cv2.cvtColor(seen[None, None].astype(np.float32), cv2.COLOR_RGB2Lab)[0, 0]


@pytest.mark.parametrize("strength", [0.3, 0.6, 1.0])
def test_signs_differ_without_green_cones_in_blue_red(strength: float) -> None:
    apart = deuteranope(colour(strength, "blue-red")) - deuteranope(colour(-strength, "blue-red"))
    assert np.linalg.norm(apart) > 20  # 2 is just noticeable


def test_values_outside_take_the_end() -> None:
    assert colour(9.0) == colour(1.0)
    assert colour(-9.0) == colour(-1.0)


def test_an_unknown_palette_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"jet.*green-red"):
        table("jet")
