"""Explanations as points: pooling keeps sums, word types are counted once, order is by id."""

import numpy as np
import pytest
from report_samples import image_attribution, text_attribution, tokens_of

from transexplain.analysis.strategies.discover_strategies import CELLS, gather, pooled, word_types


def test_pooling_adds_up_neighbours_and_normalises() -> None:
    grid = np.arange(32.0 * 20).reshape(32, 20) - 100.0
    (found,) = pooled([grid])
    assert found.shape == (16, 16)
    assert np.abs(found).sum() == pytest.approx(1.0)
    assert found.sum() == pytest.approx(grid.sum() / np.abs(_twofold(grid)).sum())
    assert np.allclose(found, _twofold(grid) / np.abs(_twofold(grid)).sum())


def _twofold(grid: np.ndarray) -> np.ndarray:
    """32 x 20 to 16 x 16, a slow twin: rows in pairs, columns where `j * 20 // 16` begins."""
    starts = [j * 20 // 16 for j in range(16)] + [20]
    return np.array(
        [
            [grid[2 * i : 2 * i + 2, starts[j] : starts[j + 1]].sum() for j in range(16)]
            for i in range(16)
        ]
    )


def test_heatmaps_of_several_sizes_get_the_smallest() -> None:
    found = pooled([np.ones((8, 4)), np.ones((4, 8)), np.ones((40, 40))])
    assert found.shape == (3, 4, 4)
    assert np.allclose(found, 1 / 16)
    assert pooled([np.ones((40, 40))]).shape == (1, CELLS, CELLS)


def test_word_types_sum_over_occurrences_in_any_case() -> None:
    text = "Good film good GOOD"
    one = text_attribution(text, tokens_of(text), [9.0, 1.0, -0.5, 2.0, 4.0, 9.0])
    assert word_types(one) == {"good": 7.0, "film": -0.5}


def test_size_does_not_count_only_shape() -> None:
    texts = ["a b", "a b", "b c"]
    values = [[0, 1, 2, 0], [0, 10, 20, 0], [0, 1, 1, 0]]
    sample = gather(
        text_attribution(text, tokens_of(text), value, item_id=str(number))
        for number, (text, value) in enumerate(zip(texts, values, strict=True))
    )
    assert sample.words == ("a", "b", "c")
    assert sample.bags.toarray().tolist() == [[1, 2, 0], [10, 20, 0], [0, 1, 1]]
    points = sample.points()
    assert np.allclose(points[0], points[1])
    assert np.allclose(np.linalg.norm(points, axis=1), 1.0)


def test_rows_are_in_the_order_of_ids() -> None:
    rng = np.random.default_rng(0)
    ones = [image_attribution(rng.standard_normal((4, 4)), item_id=name) for name in "dacb"]
    first, other = gather(ones), gather(ones[::-1])
    assert first.item_ids == other.item_ids == ("a", "b", "c", "d")
    assert np.array_equal(first.points(), other.points())
    assert first.points().shape == (4, 16)


def test_a_text_without_words_is_a_point_too() -> None:
    sample = gather(
        text_attribution(text, tokens_of(text), [0.0] * len(tokens_of(text)), item_id=text or "-")
        for text in ("", "a", "b c", "c d")
    )
    assert np.isfinite(sample.points()).all()
