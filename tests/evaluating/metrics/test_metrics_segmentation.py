"""Segmentation and pointing by hand, and models whose evidence is known."""

from typing import Any

import numpy as np
import pytest
import torch
from evidence_cases import picture_case
from PIL import Image
from tiny_models import vit
from torchvision.transforms import functional as TF

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.map_metrics import pointing_game
from transexplain.evaluating.metrics.segmentation import (
    _pixels,
    pixel_accuracy,
    pixel_counts,
    pooled_accuracy,
    pooled_miou,
    segmentation_ap,
    segmentation_map,
    segmentation_miou,
)
from transexplain.types.items import Evidence, Item
from transexplain.types.scores import (
    ORACLE,
    MetricSpec,
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


@pytest.mark.parametrize("metric", SEGMENTATION)
def test_bad_parameters(metric) -> None:
    case = picture_case(np.ones((2, 2)), mask=QUARTER)
    with pytest.raises(ConfigurationError, match="bilinear or nearest, not 'cubic'"):
        metric(case, interpolation="cubic")
    for bad in (0, 2.5, True):
        with pytest.raises(ConfigurationError, match="whole number of at least 1"):
            metric(case, pixels=bad)


def drawn_pictures() -> list:
    """Pictures of several sizes; one is marked all over, one nowhere."""
    rng = np.random.default_rng(3)
    sizes = ((6, 6), (12, 4), (20, 31), (8, 8), (9, 5))
    masks = [rng.random(size) < 0.3 for size in sizes]
    masks[1][:], masks[3][:] = True, False
    return [picture_case(rng.normal(size=(3, 4)), mask=mask) for mask in masks]


def map_and_mask(case, side: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each pixel: relevance by torch, mask by its nearest pixel."""
    mask = case.item.evidence.mask
    height, width = mask.shape if side is None else (side, side)
    rows = [int((row + 0.5) * mask.shape[0] / height) for row in range(height)]
    cols = [int((col + 0.5) * mask.shape[1] / width) for col in range(width)]
    given = torch.from_numpy(np.asarray(case.attribution.relevance))[None, None]
    shown = torch.nn.functional.interpolate(given, size=(height, width), mode="bilinear")
    return shown[0, 0].numpy(), mask[np.ix_(rows, cols)]


@pytest.mark.parametrize("side", [None, 16])
def test_pixels_are_pooled_over_the_pictures(side: int | None) -> None:
    """Chefer et al. 2021a, table 2: counts summed pixel by pixel over the data set."""
    right = total = 0
    both, either = [0, 0], [0, 0]
    cases = drawn_pictures()
    for case in cases:
        relevance, mask = map_and_mask(case, side)
        taken = relevance > relevance.mean()
        total += mask.size
        right += (taken == mask).sum()
        for label in (False, True):
            both[label] += ((taken == label) & (mask == label)).sum()
            either[label] += ((taken == label) | (mask == label)).sum()
    details = [pixel_counts(case, pixels=side).detail for case in cases]
    assert sum(detail["pixels"] for detail in details) == total
    assert pooled_accuracy(details).value == pytest.approx(right / total)
    assert pooled_miou(details).value == pytest.approx(
        (both[0] / either[0] + both[1] / either[1]) / 2
    )
    # pictures of few pixels weigh as much as others in a mean over pictures, less when pooled
    alone = np.mean([detail["right"] / detail["pixels"] for detail in details])
    same = alone == pytest.approx(pooled_accuracy(details).value)
    assert same == (side is not None)


def test_both_sides_have_one_average_precision() -> None:
    """AP over thresholds of the two columns 1 - r and r, of which a pixel has one right."""
    case = drawn_pictures()[0]
    relevance, mask = map_and_mask(case, 8)
    r = (relevance - relevance.min()) / (relevance.max() - relevance.min())
    scores = [*(1 - r).reshape(-1), *r.reshape(-1)]
    right = [*(~mask).reshape(-1), *mask.reshape(-1)]
    precision_sum = recall_before = 0.0
    for threshold in sorted(set(scores), reverse=True):
        taken = [one >= threshold for one in scores]
        hits = sum(a and b for a, b in zip(taken, right, strict=True))
        recall = hits / sum(right)
        precision_sum += hits / sum(taken) * (recall - recall_before)
        recall_before = recall
    assert segmentation_map(case, pixels=8).value == pytest.approx(precision_sum)
    flat = picture_case(np.full((2, 2), 0.1), mask=QUARTER)
    assert segmentation_map(flat).value == 0.5


def test_what_cannot_be_pooled() -> None:
    nothing = picture_case(np.eye(2))
    assert "no evidence" in pixel_counts(nothing).reason
    for pooled in (pooled_accuracy, pooled_miou):
        assert pooled([]).reason == "no picture was measured"
    (whole,) = [pixel_counts(picture_case(np.eye(2), mask=np.ones((2, 2), dtype=bool))).detail]
    assert pooled_miou([whole]).value == pytest.approx(0.25)  # nothing of 0, half of everything
    with pytest.raises(ConfigurationError, match="pixels"):
        pixel_counts(nothing, pixels=0)


@pytest.mark.parametrize(
    "marks", [{"mask": np.eye(3, dtype=bool)}, {"boxes": ((0.0, 0.0, 1 / 3, 1 / 3),)}]
)
def test_evidence_of_pictures_reaches_the_metrics(marks: dict[str, Any]) -> None:
    model = te.wrap(
        vit(), modality="image", transform=lambda picture: TF.to_tensor(picture.resize((24, 24)))
    )
    noise = np.random.default_rng(0).integers(0, 256, size=(4, 48, 64, 3), dtype=np.uint8)
    pictures = [
        Item(id=str(n), index=n, content=Image.fromarray(pixels), evidence=Evidence(**marks))
        for n, pixels in enumerate(noise)
    ]
    metrics = ["pointing-game", "segmentation-ap", "segmentation-miou", "pixel-accuracy"]
    settings = [{}, *[{"interpolation": "nearest"}] * 3]
    specs = [MetricSpec(name=n, params=p) for n, p in zip(metrics, settings, strict=True)]
    for table in te.evaluate(model, pictures, ["random"], specs):
        means = {row.method: row.mean for row in table.rows}
        assert means[ORACLE] == 1.0 > means["random"]
        assert {row.items for row in table.rows} == {4}
