"""What looks like a shortcut: regions and words, beyond chance and large."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import hypergeom

from transexplain.analysis.strategies import shortcuts


def heatmaps(count: int, seed: int, corner: float = 0.0) -> np.ndarray:
    """(count, 8, 8) noise around 0, and `corner` of the positive relevance in the top left one."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((count, 8, 8))
    positive = np.clip(found, 0, None).sum(axis=(1, 2))
    found[:, 0, 0] = positive * corner / (1 - corner) if corner else found[:, 0, 0]
    return found


def test_regions_are_corners_and_borders_of_the_grid() -> None:
    found = {one.name: one for one in shortcuts.regions(16, 8)}
    assert len(found) == 8
    cells = np.arange(16 * 8).reshape(16, 8)
    corner = found["bottom right corner"]
    assert cells[corner.rows, corner.cols].tolist() == cells[12:, 6:].tolist()
    border = found["left border"]
    assert cells[border.rows, border.cols].tolist() == cells[:, :1].tolist()
    for one in found.values():
        assert one.area == cells[one.rows, one.cols].size / cells.size
    assert shortcuts.regions(3, 8) == ()


def test_shares_count_positive_relevance_only() -> None:
    grid = np.zeros((2, 4, 4))
    grid[0, 0, 0], grid[0, 2, 2], grid[0, 3, 3] = 1.0, 3.0, -9.0
    names = [one.name for one in shortcuts.regions(4, 4)]
    found = dict(zip(names, shortcuts.shares(grid)[0], strict=True))
    assert found["top left corner"] == found["left border"] == 0.25
    assert found["bottom right corner"] == 0.0
    assert shortcuts.shares(grid)[1].tolist() == [0.0] * 8  # no relevance at all


def judged(inside: np.ndarray, outside: np.ndarray) -> dict[str, shortcuts.RegionEvidence]:
    (found,) = shortcuts.evidence(
        (8, 8), [shortcuts.shares(inside)], [shortcuts.shares(outside)], 0
    )
    return {one.region: one for one in found}


def test_a_loaded_corner_stands_out_and_its_neighbours_do_not() -> None:
    found = judged(heatmaps(30, 0, corner=0.6), heatmaps(100, 1))
    corner = found["top left corner"]
    assert corner.stands_out
    assert corner.share > 0.6
    assert corner.adjusted_p == pytest.approx(8e-4)  # the smallest of 9,999 permutations, times 8
    assert not found["bottom right corner"].stands_out


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (heatmaps(30, 0), heatmaps(100, 1)),  # noise
        (heatmaps(30, 0, corner=0.6), heatmaps(100, 1, corner=0.5)),  # everywhere the same
        (heatmaps(30, 0, corner=0.15), heatmaps(100, 1)),  # beyond chance, but small
        (heatmaps(5, 0, corner=0.6), heatmaps(100, 1)),  # a few odd ones
        (heatmaps(30, 0, corner=0.6), heatmaps(0, 1)),  # nothing to compare with
    ],
)
def test_other_corners_do_not_stand_out(inside: np.ndarray, outside: np.ndarray) -> None:
    assert not [one for one in judged(inside, outside).values() if one.stands_out]


@pytest.mark.exhaustive
def test_p_is_even_where_there_is_no_difference() -> None:
    found = []
    for seed in range(60):
        inside, outside = heatmaps(12, 100 + seed), heatmaps(40, 500 + seed)
        (row,) = shortcuts.evidence(
            (8, 8), [shortcuts.shares(inside)], [shortcuts.shares(outside)], seed
        )
        found.append(min(one.adjusted_p or 0.0 for one in row))
    assert np.mean(np.array(found) <= 0.1) <= 0.2  # Holm allows a tenth; 60 tries


WORDS = ("common", "mark", "other")


def corpus(marked: int, rest: int) -> csr_array:
    rows = [[0.2, 2.0, 0.0]] * marked + [[1.0, 0.0, -1.0]] * rest
    return csr_array(np.array(rows))


def weighed(marked: int, rest: int) -> tuple:
    bags = corpus(marked, rest)
    labels = np.array([1] * marked + [0] * rest)
    listed = shortcuts.heaviest(bags, WORDS, labels, 2)
    return shortcuts.judged(listed, [rest, marked], shortcuts.vocabulary(bags, WORDS))


def test_a_rare_word_that_carries_a_cluster_stands_out() -> None:
    plain, marked = weighed(12, 400)
    assert [one.word for one in plain] == ["common"]
    first = marked[0]
    assert (first.word, first.documents, first.stands_out) == ("mark", 12, True)
    assert first.share == pytest.approx(2.0 / 2.2)
    assert first.corpus_share == pytest.approx(12 / 412)
    # three words are listed in all, and this is the smallest p
    assert first.adjusted_p == pytest.approx(3 * hypergeom.sf(11, 412, 12, 12))
    assert not plain[0].stands_out


@pytest.mark.parametrize(("marked", "rest"), [(40, 400), (6, 400)])  # common, and too few
def test_other_words_do_not_stand_out(marked: int, rest: int) -> None:
    assert not [one for row in weighed(marked, rest) for one in row if one.stands_out]


def test_vocabularies_of_classes_add_up() -> None:
    one = shortcuts.vocabulary(corpus(3, 5), WORDS)
    assert one.documents == {"common": 8, "mark": 3, "other": 5}
    both = shortcuts.merged([one, shortcuts.vocabulary(csr_array(np.eye(2)), ("mark", "new"))])
    assert (both.texts, both.documents) == (10, {"common": 8, "mark": 4, "other": 5, "new": 1})
