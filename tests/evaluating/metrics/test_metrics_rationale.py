"""Text metrics against marked passages, by hand."""

import numpy as np
import pytest
from evidence_cases import case_of, picture_case, text_case

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import bound_metric
from transexplain.evaluating.metrics.rationale import (
    marked,
    oracle,
    rationale_auprc,
    rationale_iou,
    rationale_iou_f1,
    token_f1,
)
from transexplain.types.items import Evidence
from transexplain.types.scores import MetricSpec
from transexplain.types.tokens import Token

ALL = (token_f1, rationale_auprc, rationale_iou, rationale_iou_f1)


def spans(*tokens: tuple[int, int]) -> list[tuple[int, int]]:
    """Characters of tokens from (inclusive) to (exclusive)."""
    return [(2 * first, 2 * stop - 1) for first, stop in tokens]


def test_token_f1_of_twenty_tokens() -> None:
    # the last four are marked; two of them come first, the other two last
    relevance = [float(-n) for n in range(20)]
    relevance[16:18] = [5, 6]
    found = token_f1(text_case(relevance, *spans((16, 20))))
    # first 10: 2 hits, F1 = 2 * 2 / (10 + 4); from 20 on: all 4, 2 * 4 / (20 + 4)
    assert found.curve == pytest.approx([4 / 14] + [8 / 24] * 7)
    assert found.value == pytest.approx((4 / 14 + 7 / 3) / 8)


def test_token_f1_by_words_adds_the_pieces_of_a_word() -> None:
    """Twelve words of two pieces; the two marked lead only once their pieces are added."""
    pieces = [
        Token(text="w", start=3 * n + half, end=3 * n + half + 1, word=n)
        for n in range(12)
        for half in (0, 1)
    ]
    relevance = [float(value) for n in range(12) for value in ((2, 2) if n < 2 else (3, -3))]
    # one span has the second piece of the first word alone, the other the whole second word
    case = case_of(tuple(pieces), relevance, Evidence(spans=((1, 2), (3, 5))))
    by_words = token_f1(case, by="words")
    assert by_words.curve == pytest.approx([2 * 2 / (10 + 2)] + [2 * 2 / (12 + 2)] * 7)
    by_pieces = token_f1(case)
    # three pieces are marked; the first ten are the ten of relevance 3, the first twenty have all
    assert by_pieces.curve[:2] == pytest.approx([0.0, 2 * 3 / (20 + 3)])
    with pytest.raises(ConfigurationError, match="by is 'tokens' or 'words', not 'letters'"):
        bound_metric(MetricSpec(name="token-f1", params={"by": "letters"}))(case)
    short = case_of(tuple(pieces[:20]), relevance[:20], Evidence(spans=((0, 2),)))
    assert token_f1(short, by="words").reason == "10 words: the first 10 are all of them"


@pytest.mark.parametrize(
    ("relevance", "expected"),
    [
        ([4, 3, 2, 1], 1.0),
        # thresholds 4 (P 1, R .5), 3 (P .5, R .5), 2 (P 2/3, R 1), 1 (P .5, R 1)
        # trapezoids: 0 to .5 at 1; .5 to 1 from 1/2 to 2/3
        ([4, 2, 3, 1], 0.5 + 0.5 * (1 / 2 + 2 / 3) / 2),
        # 4 (0, 0), 3 (0, 0), 2 (1/3, .5), 1 (1/2, 1); recall 0 ends at precision 1 as in sklearn
        ([1, 2, 3, 4], 0.5 * (0 + 1 / 3) / 2 + 0.5 * (1 / 3 + 1 / 2) / 2),
        # one threshold for all: from (recall 1, precision .5) to (0, 1)
        ([7, 7, 7, 7], 0.75),
        # signed: negative relevance is no evidence
        ([1, 0.5, -9, -8], 1.0),
    ],
)
def test_auprc(relevance: list[float], expected: float) -> None:
    found = rationale_auprc(text_case(relevance, *spans((0, 2))))
    assert found.value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.1, 0),  # token 9 alone; marked are 0 and 1
        (0.2, 1 / 3),  # 9 and 0: one in both, three in either
        (0.3, 2 / 3),
        (1.0, 2 / 10),
        (0.01, 0),  # at least one
    ],
)
def test_iou_of_tokens(share: float, expected: float) -> None:
    case = text_case([8, 7, 1, 1, 1, 1, 1, 1, 1, 9], *spans((0, 2)))
    assert rationale_iou(case, share=share).value == pytest.approx(expected)


def test_iou_f1_of_passages() -> None:
    chosen = [0, 1, 2, 5, 8, 9]
    relevance = [1.0 if n in chosen else 0.0 for n in range(12)]
    # 0-2 against 1-3: 2 of 4, right; 5 against 5-7: 1 of 3, wrong; 8-9 against 8-9: right
    case = text_case(relevance, *spans((1, 4), (5, 8), (8, 10)))
    assert rationale_iou_f1(case, share=0.5).value == pytest.approx(2 * 2 / (3 + 3))
    assert rationale_iou_f1(case, share=0.5, threshold=0.3).value == pytest.approx(1.0)
    assert rationale_iou_f1(case, share=0.5, threshold=1.0).value == pytest.approx(2 / 6)
    # a passage marked twice, or not seen, is no further one to be found
    again = text_case(relevance, *spans((1, 4), (5, 8), (8, 10), (8, 10), (30, 40)))
    assert rationale_iou_f1(again, share=0.5).value == pytest.approx(4 / 6)
    # four passages marked, none right
    none = text_case(relevance, *spans((3, 4), (6, 7), (10, 11), (11, 12)))
    assert rationale_iou_f1(none, share=0.5).value == 0


@pytest.mark.parametrize("metric", ALL)
def test_items_that_cannot_be_measured(metric) -> None:
    relevance = list(np.arange(20.0))
    for case in (text_case(relevance), text_case(relevance, marked=False), text_case([])):
        found = metric(case)
        assert found.value is None
        assert found.reason == "no token that the model saw is marked"


def test_metrics_without_information_are_not_measured() -> None:
    case = text_case([1, 2, 3], *spans((0, 3)))
    assert rationale_auprc(case).reason == "every token is marked: any order is right"
    assert token_f1(case).reason == "3 tokens: the first 10 are all of them"


@pytest.mark.parametrize("share", [0, 1.5, True, "a tenth", float("nan")])
def test_bad_shares(share) -> None:
    case = text_case([1, 2, 3], (0, 1))
    with pytest.raises(ConfigurationError, match="share is a number above 0"):
        rationale_iou(case, share=share)
    with pytest.raises(ConfigurationError, match="threshold is a number above 0"):
        rationale_iou_f1(case, threshold=share)


LEFT_HALF, WHOLE = np.array([[1, 0], [1, 0]], dtype=bool), (0, 0, 1, 1)


def boxes(*corners: tuple[float, ...]) -> dict[str, tuple]:
    return {"boxes": corners}


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
    ("box", "marks", "expected"),
    [
        (WHOLE, boxes((0, 0, 0.5, 0.5)), [[1, 0], [0, 0]]),
        (WHOLE, boxes((0.25, 0, 0.75, 1)), [[0.5, 0.5], [0.5, 0.5]]),
        # two boxes on top of each other count once: 1/4 and 1/4 of the patch share 1/8
        (WHOLE, boxes((0, 0, 0.25, 0.25), (0.125, 0, 0.375, 0.25)), [[0.375, 0], [0, 0]]),
        (WHOLE, boxes(), [[0, 0], [0, 0]]),
        # the model saw the middle: patches begin at 0.25 and 0.5, are a quarter wide
        ((0.25, 0, 0.75, 1), boxes((0, 0, 0.375, 1)), [[0.5, 0], [0.5, 0]]),
        ((0.25, 0.5, 0.75, 1), boxes((0.5, 0, 1, 0.75)), [[0, 1], [0, 0]]),
        ((0.5, 0, 1, 1), boxes((0, 0, 0.5, 1)), [[0, 0], [0, 0]]),
        (WHOLE, {"mask": LEFT_HALF}, [[1, 0], [1, 0]]),
        (WHOLE, {"mask": np.eye(4, dtype=bool)}, [[0.5, 0], [0, 0.5]]),
        (WHOLE, {"mask": np.array([[1, 0, 0]], dtype=bool)}, [[2 / 3, 0], [2 / 3, 0]]),
        ((0.25, 0.25, 0.75, 0.75), {"mask": LEFT_HALF}, [[1, 0], [1, 0]]),
        ((0.25, 0, 1, 1), {"mask": LEFT_HALF}, [[2 / 3, 0], [2 / 3, 0]]),
    ],
)
def test_patches_by_boxes_and_masks(box, marks, expected) -> None:
    found = marked(picture_case(np.zeros((2, 2)), box, **marks))
    np.testing.assert_allclose(found.reshape(2, 2), expected, atol=1e-12)


def test_the_oracle_is_what_is_marked() -> None:
    case = text_case([5, -6, 7], (2, 3))
    found = oracle(case)
    assert (found.relevance.tolist(), found.method) == ([0, 0, 1, 0, 0], "oracle")
    picture = oracle(picture_case(np.zeros((2, 2)), mask=LEFT_HALF))
    assert picture.relevance.tolist() == [[1, 0], [1, 0]]
