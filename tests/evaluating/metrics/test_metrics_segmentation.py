"""Segmentation metrics and the pointing game, by hand."""

import numpy as np
import pytest
import torch
from evidence_cases import picture_case

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.pointing import pointing_game
from transexplain.evaluating.metrics.rationale_regions import oracle
from transexplain.evaluating.metrics.segmentation import (
    _pixels,
    pixel_accuracy,
    segmentation_ap,
    segmentation_miou,
)

SEGMENTATION = (pixel_accuracy, segmentation_ap, segmentation_miou)
#: the upper left quarter of 4 x 4 pixels
QUARTER = np.kron([[1, 0], [0, 0]], np.ones((2, 2))).astype(bool)


def three(relevance, box=(0.0, 0.0, 1.0, 1.0), interpolation="nearest", pixels=None, **evidence):
    case = picture_case(np.array(relevance, dtype=float), box, **evidence)
    return [
        metric(case, interpolation=interpolation, pixels=pixels).value for metric in SEGMENTATION
    ]


@pytest.mark.parametrize(
    ("relevance", "accuracy", "precision", "iou"),
    [
        ([[4, 0], [0, 0]], 1, 1, 1),
        # above the mean of 1.5: the upper half. 12 of 16 right; 4 of 8 and 8 of 12
        ([[4, 2], [0, 0]], 0.75, 1, (1 / 2 + 2 / 3) / 2),
        # the patch beside it comes first: 4 wrong, then 4 right of 8
        ([[2, 4], [0, 0]], 0.75, 0.5, (1 / 2 + 2 / 3) / 2),
        # only the opposite corner: 4 missed, 4 wrong; 0 of 8 and 8 of 16
        ([[0, 0], [0, 4]], 0.5, 0.25, 0.25),
        # signed: what speaks against the class is below the mean
        ([[-4, 0], [0, 0]], 0, 0.25, 0),
        # all alike: none above, all 16 at once
        ([[0.1, 0.1], [0.1, 0.1]], 0.75, 0.25, 0.375),
    ],
)
def test_by_hand(relevance, accuracy, precision, iou) -> None:
    assert three(relevance, mask=QUARTER) == pytest.approx([accuracy, precision, iou])
    boxes = ((0.0, 0.0, 0.5, 0.5),)
    assert three(relevance, boxes=boxes) == pytest.approx([accuracy, precision, iou])
    assert three(relevance, boxes=boxes, pixels=6) == pytest.approx([accuracy, precision, iou])


def test_bilinear_by_hand() -> None:
    # one row of patches 0 and 4 over four pixels: 0, 1, 3, 4 with a mean of 2
    case = picture_case(np.array([[0.0, 4.0]]), mask=np.array([[0, 1, 0, 1]], dtype=bool))
    pixels = _pixels(case, "bilinear", None)
    assert isinstance(pixels, tuple)
    assert pixels[0].tolist() == [0, 1, 3, 4]
    # right: first and last; precision 1/1 and 2/3 at the marked ones
    assert pixel_accuracy(case).value == pytest.approx(0.5)
    assert segmentation_ap(case).value == pytest.approx((1 + 2 / 3) / 2)
    assert segmentation_miou(case).value == pytest.approx(1 / 3)


def test_bilinear_is_that_of_torch() -> None:
    relevance = np.random.default_rng(0).normal(size=(3, 5))
    mask = np.eye(20, 31, dtype=bool)
    pixels = _pixels(picture_case(relevance, mask=mask), "bilinear", None)
    assert isinstance(pixels, tuple)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(relevance)[None, None], size=(20, 31), mode="bilinear"
    )
    np.testing.assert_allclose(pixels[0].reshape(20, 31), expected[0, 0].numpy(), atol=1e-12)
    np.testing.assert_array_equal(pixels[1].reshape(20, 31), mask)


def test_only_what_the_model_saw_counts() -> None:
    # the middle columns 1 and 2 of four: the left one marked
    mask = np.array([[1, 1, 0, 1]], dtype=bool)
    assert three([[1, 0]], (0.25, 0, 0.75, 1), mask=mask) == [1, 1, 1]
    assert three([[0, 1]], (0.25, 0, 0.75, 1), mask=mask)[0] == 0
    # nothing or everything of the middle
    for row, printed in ([1, 0, 0, 1], "nothing"), ([0, 1, 1, 0], "everything"):
        case = picture_case(np.ones((1, 2)), (0.25, 0, 0.75, 1), mask=np.array([row], dtype=bool))
        for metric in SEGMENTATION:
            found = metric(case)
            assert found.value is None
            assert found.reason == f"{printed} that the model saw of the picture is marked"


def test_a_mask_at_a_stated_resolution() -> None:
    # of four pixels in a row, the places at 1/4 and 3/4 lie in the second and the fourth
    case = picture_case(np.array([[0.0, 4.0]]), mask=np.array([[1, 0, 0, 1]], dtype=bool))
    found = _pixels(case, "nearest", 2)
    assert isinstance(found, tuple)
    assert found[0].tolist() == [0, 4, 0, 4]
    assert found[1].tolist() == [False, True, False, True]
    assert pixel_accuracy(case, interpolation="nearest", pixels=2).value == 1
    assert pixel_accuracy(case, interpolation="nearest").value == 0.5


def test_a_mask_coarser_than_the_box() -> None:
    mask = np.array([[1], [0]], dtype=bool)
    assert three([[2], [1]], (0.6, 0, 0.7, 1), mask=mask) == [1, 1, 1]


def test_pictures_that_nobody_marked() -> None:
    case = picture_case(np.ones((2, 2)))
    for metric in (*SEGMENTATION, pointing_game):
        assert metric(case).reason == "no evidence is marked in the picture"


@pytest.mark.parametrize(
    ("relevance", "expected"),
    [
        ([[4, 3], [0, 0]], 1),
        ([[3, 4], [0, 0]], 0),
        ([[-1, -2], [-2, -2]], 1),
        ([[-9, 1], [0, 0]], 0),  # the largest, not the largest in size
        ([[4, 4], [0, 0]], 0.5),
        ([[1, 1], [1, 1]], 0.25),
    ],
)
def test_pointing(relevance, expected) -> None:
    assert pointing_game(picture_case(np.array(relevance), mask=QUARTER)).value == expected
    boxes = ((0.0, 0.0, 0.5, 0.5),)
    assert pointing_game(picture_case(np.array(relevance), boxes=boxes)).value == expected


@pytest.mark.parametrize(("mask", "expected"), [([0, 1], 1), ([1, 0], 0)])
def test_a_centre_between_pixels_belongs_to_the_lower_right_one(mask, expected) -> None:
    row = np.array([mask], dtype=bool)
    for marks in (row, row.T):
        assert pointing_game(picture_case(np.ones((1, 1)), mask=marks)).value == expected


def test_pointing_with_tolerance() -> None:
    # the centre of the right patch stands at 0.75 across and 0.25 down, the region ends at 0.5
    case = picture_case(np.array([[0, 1], [0, 0]]), mask=QUARTER)
    assert pointing_game(case, tolerance=0.24).value == 0
    assert pointing_game(case, tolerance=0.25).value == 1
    # diagonally 0.25 each way: 0.354
    case = picture_case(np.array([[0, 0], [0, 1]]), boxes=((0.0, 0.0, 0.5, 0.5),))
    assert pointing_game(case, tolerance=0.35).value == 0
    assert pointing_game(case, tolerance=0.36).value == 1
    for bad in (-0.1, 1.5, True, "15", float("nan")):
        with pytest.raises(ConfigurationError, match="tolerance is a number from 0 to 1"):
            pointing_game(case, tolerance=bad)


def test_pointing_within_the_box() -> None:
    # the model saw the right half; its left patch's centre stands at 0.625
    box, boxes = (0.5, 0.0, 1.0, 1.0), ((0.6, 0.0, 0.65, 1.0),)
    assert pointing_game(picture_case(np.array([[1, 0]]), box, boxes=boxes)).value == 1
    assert pointing_game(picture_case(np.array([[0, 1]]), box, boxes=boxes)).value == 0
    away = picture_case(np.array([[0, 1]]), box, boxes=((0.0, 0.0, 0.5, 1.0),))
    assert pointing_game(away).reason == "nothing that the model saw of the picture is marked"


def test_the_oracle_finds_what_is_marked() -> None:
    case = picture_case(np.zeros((4, 4)), mask=QUARTER)
    found = oracle(case)
    assert found is not None
    drawn = picture_case(found.relevance, mask=QUARTER)
    assert [metric(drawn, interpolation="nearest").value for metric in SEGMENTATION] == [1, 1, 1]
    assert pointing_game(drawn).value == 1


@pytest.mark.parametrize("metric", SEGMENTATION)
def test_bad_parameters(metric) -> None:
    case = picture_case(np.ones((2, 2)), mask=QUARTER)
    with pytest.raises(ConfigurationError, match="bilinear or nearest, not 'cubic'"):
        metric(case, interpolation="cubic")
    for bad in (0, 2.5, True):
        with pytest.raises(ConfigurationError, match="whole number of at least 1"):
            metric(case, pixels=bad)
