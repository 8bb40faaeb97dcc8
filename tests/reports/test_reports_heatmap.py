"""Overlays: sign by colour, strength by opacity, zero untouched."""

import base64
import io
import re
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from transexplain.errors import ConfigurationError
from transexplain.reports.forest import axis_around, axis_of, box, scale, strip
from transexplain.reports.heatmap import (
    PALETTES,
    colour,
    colour_bar,
    data_uri,
    overlay,
    resized,
    segments,
    table,
    tile,
)
from transexplain.reports.phrasing import tone
from transexplain.types.findings import Quantiles

GREY = Image.new("RGB", (40, 30), (128, 128, 128))


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV", "F"])
def test_zero_relevance_leaves_the_picture_unchanged(mode: str) -> None:
    ramp = np.arange(1200, dtype=np.uint8).reshape(30, 40) % 251
    image = Image.fromarray(np.stack([ramp, ramp[::-1], ramp], axis=-1))
    image = image.convert("L").convert(mode) if mode in ("F", "1") else image.convert(mode)
    drawn = overlay(image, np.zeros((3, 4)))
    plain = image.convert("L").convert("RGB") if mode == "F" else image.convert("RGB")
    assert drawn.mode == "RGB" and drawn.size == image.size
    assert np.array_equal(pixels(drawn), pixels(plain))


def test_upsampling_is_bilinear() -> None:
    white = Image.new("RGB", (64, 64), "white")
    away = 255 - pixels(overlay(white, np.array([[0.0, 1.0]]), alpha=0.0))[32, :, 2]
    assert away[:16].max() == 0  # flat up to the first centre
    assert (np.diff(away) >= 0).all() and away[-1] > 180
    assert len(set(away[16:48].tolist())) > 25  # a ramp, not a step


@pytest.mark.parametrize("solid", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_overlay_is_transexplains_equation(alpha: float, solid: bool) -> None:
    """alpha * image + (1 - alpha) * colours, pixel by pixel; one patch for each pixel."""
    picture = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    grid = np.random.default_rng(1).uniform(-1, 1, (4, 5))
    grid[0, 0], grid[1, 1] = 0.0, 1.0
    drawn = pixels(overlay(picture, grid, alpha=alpha, scale=1.0, solid=solid))
    for row, column in np.ndindex(4, 5):
        relevance, below = grid[row, column], picture[row, column].astype(float)
        if solid:
            colours = np.array(colour(relevance))
        else:  # a layer that lets the picture through where there is little relevance
            covers = np.array(colour(np.copysign(0.5 + 0.5 * abs(relevance), relevance)))
            colours = (1 - abs(relevance)) * below + abs(relevance) * covers
        expected = alpha * below + (1 - alpha) * colours
        assert np.abs(drawn[row, column] - expected).max() <= 0.5 + 1e-9


def test_a_shared_scale_makes_pictures_comparable() -> None:
    weak, strong = np.full((2, 2), 0.1), np.full((2, 2), 1.0)
    on_own = pixels(overlay(GREY, weak)), pixels(overlay(GREY, strong))
    shared = pixels(overlay(GREY, weak, scale=1.0)), pixels(overlay(GREY, strong, scale=1.0))
    assert np.array_equal(*on_own)
    assert np.abs(shared[0] - 128).max() < np.abs(shared[1] - 128).max()
    assert np.array_equal(shared[1], on_own[1])
    beyond = pixels(overlay(GREY, 50 * strong, scale=1.0))
    assert np.array_equal(beyond, on_own[1]), "values beyond the scale take the full colour"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8])
def test_any_number_type_of_relevance_draws_the_same(dtype: type) -> None:
    grid = np.array([[1, -1], [0, 1]])
    drawn = (pixels(overlay(GREY, grid.astype(one))) for one in (dtype, np.float64))
    assert np.array_equal(*drawn)


@pytest.mark.parametrize(
    "array",
    [
        np.full((6, 5, 3), 51, np.uint8),
        np.full((6, 5), 51, np.uint8),
        np.full((6, 5, 1), 51, np.int64),
        np.full((6, 5), 51 * 257, np.uint16),
        np.full((6, 5, 3), 0.2, np.float32),
        np.full((6, 5, 4), [51, 51, 51, 255], np.uint8),
    ],
    ids=["rgb", "grey", "one-channel", "uint16", "float", "rgba"],
)
def test_arrays_are_read_by_their_type(array: np.ndarray) -> None:
    assert (pixels(overlay(array, np.zeros((2, 2)))) == 51).all()


def test_booleans_and_16_bit_keep_their_contrast_and_transparent_parts_lie_on_white() -> None:
    blank = np.zeros((1, 1))
    assert set(pixels(overlay(np.eye(4, dtype=bool), blank)).flat) == {0, 255}
    deep = Image.fromarray((np.arange(16, dtype=np.uint16) * 4369).reshape(4, 4))
    assert deep.mode.startswith("I")
    drawn = pixels(overlay(deep, blank))[..., 0]
    assert drawn.ravel().tolist() == [17 * step for step in range(16)]
    for clear in (Image.new("RGBA", (4, 4), (0, 0, 0, 0)), np.zeros((4, 4, 4), np.uint8)):
        assert (pixels(overlay(clear, blank)) == 255).all()


ONE = np.ones((1, 1))
REFUSED: list[tuple[Any, Any, dict[str, float], str]] = [
    *((GREY, np.array([[0.0, bad]]), {}, "NaN or infinity") for bad in (np.nan, np.inf, -np.inf)),
    *((GREY, np.zeros(shape), {}, r"\(rows, cols\)") for shape in ((3,), (2, 2, 1), (0, 4))),
    *((GREY, ONE, {"alpha": alpha}, "alpha") for alpha in (-0.1, 1.1, np.nan)),
    *((GREY, ONE, {"scale": scale}, "scale") for scale in (-1.0, np.nan, np.inf)),
    *(
        (array, ONE, {}, "picture")
        for array in (
            np.full((4, 4, 3), -1.5),
            np.full((4, 4, 3), 300),
            np.zeros((4, 4, 2)),
            np.zeros((0, 4, 3)),
        )
    ),
]


@pytest.mark.parametrize(("picture", "grid", "options", "named"), REFUSED)
def test_what_cannot_be_drawn_is_refused(
    picture: Any, grid: np.ndarray, options: dict[str, float], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        overlay(picture, grid, **options)


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
    ),
    st.sampled_from(PALETTES),
    st.one_of(st.none(), st.floats(0.0, 1e300)),
)
def test_any_finite_relevance_can_be_drawn(
    grid: np.ndarray, palette: str, scale: float | None
) -> None:
    image = Image.new("RGB", (9, 7), (40, 90, 200))
    assert overlay(image, grid, palette=palette, scale=scale).size == (9, 7)


def test_a_tile_is_transparent_at_zero_and_opaque_at_the_scale() -> None:
    drawn = np.asarray(tile(np.array([[0.0, 2.0], [0.0, -2.0], [0.0, 2.0]]), width=60))
    assert drawn.shape == (90, 60, 4)
    assert (drawn[:, :10, 3] == 0).all() and drawn[5, -3, 3] == 255


def test_the_colour_bar_runs_from_negative_over_nothing_to_positive() -> None:
    bar = np.asarray(colour_bar(width=101, height=4)).astype(int)
    assert bar.shape == (4, 101, 4)
    assert bar[0, 0, 2] > bar[0, 0, 0] and bar[0, -1, 0] > bar[0, -1, 2]
    assert bar[0, 50, 3] == 0 and bar[0, 0, 3] == bar[0, -1, 3] == 255


def test_pictures_are_brought_between_two_sizes() -> None:
    assert resized(Image.new("RGB", (32, 16)), smallest=160, largest=256).size == (160, 80)
    assert resized(Image.new("RGB", (1000, 10)), smallest=160, largest=256).size == (256, 3)
    same = Image.new("RGB", (200, 100))
    assert resized(same, smallest=160, largest=256) is same


@pytest.mark.parametrize(("mode", "kind"), [("RGB", "JPEG"), ("RGBA", "PNG"), ("L", "JPEG")])
def test_data_addresses_hold_the_picture(mode: str, kind: str) -> None:
    head, _, body = data_uri(Image.new(mode, (5, 4))).partition(";base64,")
    assert head == f"data:image/{kind.lower()}"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        assert image.format == kind and image.size == (5, 4)


PARTS = np.array([[0, 0, 1], [0, -1, 1]])


def test_every_segment_has_one_colour_by_its_sign_and_strength() -> None:
    grey = np.full((80, 120, 3), 128, dtype=np.uint8)
    drawn = pixels(segments(np.array([2.0, -1.0]), PARTS, picture=grey))
    first, second, none = drawn[10, 10], drawn[60, 110], drawn[60, 60]
    assert first[0] > 128 > first[2] and second[2] > 128 > second[0]
    assert np.abs(first - 128).sum() > np.abs(second - 128).sum()
    assert (none == 128).all(), "what belongs to no node stays as it was"
    assert (drawn[2:38, 2:78] == first).all() and (drawn[42:, 2:38] == first).all()
    weaker = pixels(segments(np.array([2.0, -1.0]), PARTS, picture=grey, scale=8.0))
    assert np.abs(weaker[10, 10] - 128).sum() < np.abs(first - 128).sum()


def test_segments_are_outlined_and_zero_relevance_changes_nothing_else() -> None:
    drawn = pixels(segments(np.zeros(2), PARTS))
    assert drawn.shape == (128, 192, 3)
    changed = np.argwhere((drawn != 255).any(axis=-1))
    assert len(changed) == 4 * 64 - 1, "four borders of 64 pixels, two share a corner"
    assert set(changed[changed[:, 0] < 64][:, 1]) == {128}
    labels = np.zeros((2, 2), dtype=np.int64)
    assert (pixels(segments(np.zeros(1), labels)) == 255).all()


@pytest.mark.parametrize(
    ("relevance", "labels", "reported"),
    [
        (np.zeros(2), PARTS.astype(float), "integers"),
        (np.zeros(2), np.zeros(4, dtype=int), "rows, cols"),
        (np.zeros(2), np.zeros((0, 4), dtype=int), "rows, cols"),
        (np.zeros(1), PARTS, "from -1 to 1 do not fit"),
        (np.zeros((2, 2)), PARTS, r"shape \(2, 2\)"),
        (np.zeros(2), PARTS - 1, "from -2"),
        (np.array([np.nan, 0.0]), PARTS, "NaN"),
    ],
)
def test_segments_that_do_not_fit_are_refused(
    relevance: np.ndarray, labels: np.ndarray, reported: str
) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        segments(relevance, labels)
    with pytest.raises(ConfigurationError, match="alpha"):
        segments(np.zeros(2), PARTS, alpha=1.5)


# ---- diverging palettes -------------------------------------------------------------------------


def lab(palette: str) -> np.ndarray:
    return cv2.cvtColor((table(palette)[None] / 255.0).astype(np.float32), cv2.COLOR_RGB2Lab)[0]


@pytest.mark.parametrize("palette", PALETTES)
def test_both_arms_have_the_same_lightness_and_darken_with_strength(palette: str) -> None:
    lightness = lab(palette)[:, 0]
    assert np.abs(lightness - lightness[::-1]).max() < 1.0  # of 100
    assert (np.diff(lightness[128:]) < 0.15).all()
    assert lightness[128] > 95 and lightness[0] < 50

    chroma = np.hypot(lab(palette)[:, 1], lab(palette)[:, 2])
    assert chroma[128] < 1.0 and min(chroma[0], chroma[256]) > 40


def test_positive_is_red_or_green_and_negative_the_other_end() -> None:
    for palette, ends in (("blue-red", (0, 2)), ("green-red", (1, 0))):
        assert tuple(np.argmax(colour(end, palette)) for end in (1.0, -1.0)) == ends
    assert (colour(9.0), colour(-9.0)) == (colour(1.0), colour(-1.0)), "values outside take the end"


def test_an_unknown_palette_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"jet.*green-red"):
        table("jet")


# ---- the forest plot puts numbers where they belong ---------------------------------------------


def percent(svg: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, svg)]


def test_dot_and_interval_stand_at_their_values() -> None:
    axis = axis_of([(0.5, (0.25, 0.75))], 0.1)
    drawn = str(strip(0.5, (0.25, 0.75), "open", axis))
    (dot,) = percent(drawn, r'cx="([\d.]+)%"')
    (left,) = percent(drawn, r'fp-interval" x1="([\d.]+)%"')
    (right,) = percent(drawn, r'fp-interval" x1="[\d.]+%" x2="([\d.]+)%"')
    assert 50 < left < dot < right <= 96
    assert dot - left == pytest.approx(right - dot, abs=0.02)
    assert axis.place(0.0) == 50.0 and "difference 0.50" in drawn


def test_an_interval_wider_than_the_plot_gets_an_arrow() -> None:
    wide, narrow = (0.1, (-90.0, 90.2)), (-0.3, (-0.4, -0.2))
    axis = axis_of([wide, narrow], 0.1)
    assert axis.limit < 2.0  # one lost row does not squeeze the others
    assert str(strip(*wide, "open", axis)).count("fp-arrow") == 2
    assert "fp-arrow" not in str(strip(*narrow, "open", axis))


def test_rows_without_interval_and_flagged_ones() -> None:
    drawn = str(strip(None, None, "unknown", axis_of([(None, None)], 0.1)))
    assert "fp-band" in drawn and "circle" not in drawn
    down = (-0.5, (-0.6, -0.4))
    assert "fp-flagged fp-neg" in str(strip(*down, tone("difference"), axis_of([down], 0.1)))


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)), max_size=5),
    st.floats(0.0, 1e3),
)
def test_any_numbers_give_an_axis_with_few_ticks(
    pairs: list[tuple[float, float]], practical: float
) -> None:
    rows = [(middle, (middle - half, middle + half)) for middle, half in pairs]
    axis = axis_of(rows, practical)
    assert 3 <= len(axis.ticks()) <= 5 and 0.0 in axis.ticks()
    for place in percent(
        str(scale(axis)) + "".join(str(strip(*row, "open", axis)) for row in rows), r'="([\d.]+)%"'
    ):
        assert 0.0 <= place <= 100.0


def test_a_box_shows_the_five_quantiles() -> None:
    spread = Quantiles(low=-1.0, lower=-0.25, median=0.0, upper=0.5, high=0.75)
    axis = axis_around([-1.0, 0.75])
    drawn = str(box(spread, axis))
    left = percent(drawn, r'fp-box" x="([\d.]+)%')[0]
    width = percent(drawn, r'fp-box" x="[\d.]+%" width="([\d.]+)%')[0]
    assert (left, left + width) == pytest.approx((axis.place(-0.25), axis.place(0.5)))
    assert percent(drawn, r'fp-interval" x1="([\d.]+)%') == [axis.place(-1.0)]
    assert percent(drawn, r'fp-interval" x1="[\d.]+%" x2="([\d.]+)%') == [axis.place(0.75)]
    assert percent(drawn, r'fp-median" x1="([\d.]+)%') == [50.0]
    assert "median 0.00, half of the mentions within \N{MINUS SIGN}0.25 to 0.50" in drawn
    flat = Quantiles(low=0.5, lower=0.5, median=0.5, upper=0.5, high=0.5)
    assert percent(str(box(flat, axis)), r'fp-box" x="[\d.]+%" width="([\d.]+)%') == [0.4], "seen"
