"""Overlays: sign by colour, strength by opacity, zero untouched."""

import base64
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from transexplain.errors import ConfigurationError
from transexplain.reports.heatmap import (
    PALETTES,
    colour,
    colour_bar,
    data_uri,
    overlay,
    resized,
    segments,
    tile,
)

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


def test_positive_is_red_and_negative_blue_on_grey() -> None:
    drawn = pixels(overlay(GREY, np.array([[1.0, -1.0]])))
    left, right = drawn[15, 2], drawn[15, -3]
    assert left[0] > 128 > left[2] and right[2] > 128 > right[0]


def test_green_red_makes_positive_green() -> None:
    drawn = pixels(overlay(GREY, np.array([[1.0, -1.0]]), palette="green-red"))
    assert np.argmax(drawn[15, 2]) == 1 and np.argmax(drawn[15, -3]) == 0


def test_upsampling_is_bilinear() -> None:
    white = Image.new("RGB", (64, 64), "white")
    away = 255 - pixels(overlay(white, np.array([[0.0, 1.0]]), alpha=0.0))[32, :, 2]
    assert away[:16].max() == 0  # flat up to the first centre
    assert (np.diff(away) >= 0).all() and away[-1] > 180
    assert len(set(away[16:48].tolist())) > 25  # a ramp, not a step


def test_stronger_relevance_covers_more() -> None:
    grid = np.array([[0.2, 0.5, 1.0]])
    covered = np.abs(pixels(overlay(Image.new("RGB", (90, 30)), grid)) - 0).sum(axis=-1)[15]
    assert covered[2] < covered[45] < covered[-3]


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


def test_alpha_1_is_the_plain_picture_and_solid_alpha_0_the_colours_alone() -> None:
    grid = np.array([[0.0, 1.0], [-1.0, 0.5]])
    assert np.array_equal(pixels(overlay(GREY, grid, alpha=1.0)), pixels(GREY))
    ends = pixels(overlay(GREY, grid, alpha=0.0, solid=True))
    assert ends[0, 0].tolist() == list(colour(0.0)) and ends[0, -1].tolist() == list(colour(1.0))
    white = Image.new("RGB", GREY.size, "white")
    assert np.array_equal(ends, pixels(overlay(white, grid, alpha=0.0, solid=True)))


def test_a_shared_scale_makes_pictures_comparable() -> None:
    weak, strong = np.full((2, 2), 0.1), np.full((2, 2), 1.0)
    on_own = pixels(overlay(GREY, weak)), pixels(overlay(GREY, strong))
    shared = pixels(overlay(GREY, weak, scale=1.0)), pixels(overlay(GREY, strong, scale=1.0))
    assert np.array_equal(*on_own)
    assert np.abs(shared[0] - 128).max() < np.abs(shared[1] - 128).max()
    assert np.array_equal(shared[1], on_own[1])


def test_values_beyond_the_scale_take_the_full_colour() -> None:
    beyond = overlay(GREY, np.full((2, 2), 50.0), scale=1.0)
    assert np.array_equal(pixels(beyond), pixels(overlay(GREY, np.ones((2, 2)))))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8])
def test_any_number_type_of_relevance_draws_the_same(dtype: type) -> None:
    grid = np.array([[1, -1], [0, 1]])
    assert np.array_equal(
        pixels(overlay(GREY, grid.astype(dtype))), pixels(overlay(GREY, grid.astype(np.float64)))
    )


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


def test_booleans_and_16_bit_pictures_keep_their_contrast() -> None:
    mask = np.eye(4, dtype=bool)
    assert set(pixels(overlay(mask, np.zeros((1, 1)))).flat) == {0, 255}
    deep = Image.fromarray((np.arange(16, dtype=np.uint16) * 4369).reshape(4, 4))
    assert deep.mode.startswith("I")
    drawn = pixels(overlay(deep, np.zeros((1, 1))))[..., 0]
    assert drawn.ravel().tolist() == [17 * step for step in range(16)]


def test_transparent_parts_lie_on_white() -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert (pixels(overlay(clear, np.zeros((1, 1)))) == 255).all()
    assert (pixels(overlay(np.zeros((4, 4, 4), np.uint8), np.zeros((1, 1)))) == 255).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="NaN or infinity"):
        overlay(GREY, np.array([[0.0, bad]]))


@pytest.mark.parametrize("shape", [(3,), (2, 2, 1), (0, 4)])
def test_relevance_of_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"\(rows, cols\)"):
        overlay(GREY, np.zeros(shape))


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_outside_0_to_1_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match="alpha"):
        overlay(GREY, np.ones((1, 1)), alpha=alpha)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_scale_that_is_no_positive_number_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="scale"):
        overlay(GREY, np.ones((1, 1)), scale=scale)


@pytest.mark.parametrize(
    "array",
    [np.full((4, 4, 3), -1.5), np.full((4, 4, 3), 300), np.zeros((4, 4, 2)), np.zeros((0, 4, 3))],
)
def test_arrays_that_are_no_pictures_are_refused(array: np.ndarray) -> None:
    with pytest.raises(ConfigurationError, match="picture"):
        overlay(array, np.zeros((1, 1)))


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


def test_alpha_of_segments_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="alpha"):
        segments(np.zeros(2), PARTS, alpha=1.5)
