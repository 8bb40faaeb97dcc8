"""Which tokens and patches are marked, by hand."""

import numpy as np
import pytest
from evidence_cases import picture_case, text_case

from transexplain.evaluating.metrics.rationale import marked, oracle

LEFT_HALF = np.array([[1, 0], [1, 0]], dtype=bool)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 1)], [1, 0, 0, 0]),
        ([(1, 2)], [0, 0, 0, 0]),  # the space behind the first token
        ([(1, 3)], [0, 1, 0, 0]),
        ([(2, 5), (6, 7)], [0, 1, 1, 1]),
        ([(7, 40)], [0, 0, 0, 0]),  # in what was cut off
        ([], [0, 0, 0, 0]),
    ],
)
def test_tokens(spans: list[tuple[int, int]], expected: list[float]) -> None:
    assert marked(text_case([1, 2, 3, 4], *spans)).tolist() == expected


def test_without_evidence_nothing_is_marked() -> None:
    assert marked(text_case([1, 2], marked=False)).tolist() == [0, 0]
    assert marked(picture_case(np.ones((1, 2)))).tolist() == [0, 0]
    assert oracle(picture_case(np.ones((1, 2)))) is None


@pytest.mark.parametrize(
    ("box", "boxes", "expected"),
    [
        ((0, 0, 1, 1), [(0, 0, 0.5, 0.5)], [[1, 0], [0, 0]]),
        ((0, 0, 1, 1), [(0.25, 0, 0.75, 1)], [[0.5, 0.5], [0.5, 0.5]]),
        # two boxes on top of each other count once: 1/4 and 1/4 of the patch share 1/8
        ((0, 0, 1, 1), [(0, 0, 0.25, 0.25), (0.125, 0, 0.375, 0.25)], [[0.375, 0], [0, 0]]),
        ((0, 0, 1, 1), [], [[0, 0], [0, 0]]),
        # the model saw the middle: patches begin at 0.25 and 0.5, are a quarter wide
        ((0.25, 0, 0.75, 1), [(0, 0, 0.375, 1)], [[0.5, 0], [0.5, 0]]),
        ((0.25, 0.5, 0.75, 1), [(0.5, 0, 1, 0.75)], [[0, 1], [0, 0]]),
        ((0.5, 0, 1, 1), [(0, 0, 0.5, 1)], [[0, 0], [0, 0]]),
    ],
)
def test_patches_by_boxes(box, boxes, expected) -> None:
    found = marked(picture_case(np.zeros((2, 2)), box, boxes=tuple(boxes)))
    np.testing.assert_allclose(found.reshape(2, 2), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("box", "mask", "expected"),
    [
        ((0, 0, 1, 1), LEFT_HALF, [[1, 0], [1, 0]]),
        ((0, 0, 1, 1), np.eye(4, dtype=bool), [[0.5, 0], [0, 0.5]]),
        ((0, 0, 1, 1), np.array([[1, 0, 0]], dtype=bool), [[2 / 3, 0], [2 / 3, 0]]),
        ((0.25, 0.25, 0.75, 0.75), LEFT_HALF, [[1, 0], [1, 0]]),
        ((0.25, 0, 1, 1), LEFT_HALF, [[2 / 3, 0], [2 / 3, 0]]),
    ],
)
def test_patches_by_mask(box, mask, expected) -> None:
    found = marked(picture_case(np.zeros((2, 2)), box, mask=mask))
    np.testing.assert_allclose(found.reshape(2, 2), expected, atol=1e-12)


def test_boxes_and_the_mask_drawn_of_them_mark_the_same() -> None:
    generator = np.random.default_rng(0)
    corners = np.sort(generator.integers(0, 41, size=(5, 2, 2)), axis=1)
    corners[:, 1] += 1
    mask = np.zeros((42, 42), dtype=bool)
    for (left, top), (right, bottom) in corners:
        mask[top:bottom, left:right] = True
    boxes = tuple(map(tuple, (corners.reshape(5, 4) / 42).tolist()))
    case = picture_case(np.zeros((3, 4)), (0.1, 0.2, 0.9, 0.7), boxes=boxes)
    other = picture_case(np.zeros((3, 4)), (0.1, 0.2, 0.9, 0.7), mask=mask)
    np.testing.assert_allclose(marked(case), marked(other), atol=1e-12)
    assert 0 < marked(case).mean() < 1


def test_the_oracle_is_what_is_marked() -> None:
    case = text_case([5, -6, 7], (2, 3))
    found = oracle(case)
    assert found is not None
    assert (found.relevance.tolist(), found.method) == ([0, 0, 1, 0, 0], "oracle")
    picture = oracle(picture_case(np.zeros((2, 2)), mask=LEFT_HALF))
    assert picture is not None
    assert picture.relevance.tolist() == [[1, 0], [1, 0]]
