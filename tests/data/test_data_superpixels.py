"""Pictures as graphs of superpixels."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from transexplain.data.superpixels import EVEN, superpixels
from transexplain.errors import ConfigurationError


def picture(digit: int) -> np.ndarray:
    return np.kron(load_digits().images[digit] / 16, np.ones((4, 4)))


@pytest.mark.parametrize("digit", [0, 7])
def test_nodes_are_connected_parts_and_neighbours_are_joined(digit: int) -> None:
    shown = picture(digit)
    found = superpixels(shown, segments=40)
    nodes = found.parts.max() + 1
    assert 10 < nodes < 60
    assert sorted(np.unique(found.parts)) == list(range(nodes))
    graph = found.graph
    assert graph["node_features"].shape == (nodes, 3)
    pairs = set()
    for row in range(32):
        for col in range(32):
            for down, right in ((1, 0), (0, 1)):
                if row + down < 32 and col + right < 32:
                    one, other = found.parts[row, col], found.parts[row + down, col + right]
                    pairs |= {(min(one, other), max(one, other))} if one != other else set()
    assert {tuple(edge) for edge in graph["edges"].tolist()} == pairs
    for node in range(nodes):
        rows, cols = np.nonzero(found.parts == node)
        values = [shown[rows, cols].mean(), (rows.mean() + 0.5) / 32, (cols.mean() + 0.5) / 32]
        expected = [EVEN * (value - 0.5) for value in values]
        np.testing.assert_allclose(graph["node_features"][node], expected, atol=1e-5)
        np.testing.assert_allclose(
            graph["node_positions"][node], [cols.mean() + 0.5, rows.mean() + 0.5], rtol=1e-5
        )


def test_colours_are_features_of_their_own() -> None:
    colours = np.stack([picture(1), picture(2), picture(3)], axis=-1)
    assert superpixels(colours, segments=20).graph["node_features"].shape[1] == 5


def test_what_is_no_picture_and_a_missing_package_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"numbers, not \(4,\)"):
        superpixels(np.zeros(4))
    with pytest.raises(ConfigurationError, match="of finite numbers"):
        superpixels(np.full((8, 8), np.nan))
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[superpixels\]'"):
        superpixels(picture(0))
