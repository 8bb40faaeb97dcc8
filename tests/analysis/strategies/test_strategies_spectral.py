"""Spectral clustering: planted clusters are counted and found, one cluster stays one."""

import numpy as np
import pytest
from scipy.linalg import eigvalsh
from sklearn.metrics import adjusted_rand_score

from transexplain.analysis.strategies import discover_strategies, spectral
from transexplain.analysis.strategies.discover_strategies import Sample


def blobs(sizes: tuple[int, ...], distance: float, seed: int, width: int = 12) -> tuple:
    """Normal clouds of width 1 around centres `distance` apart, and which cloud is whose."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((len(sizes), width))
    centres[np.arange(len(sizes)), np.arange(len(sizes))] = distance / np.sqrt(2)
    whose = np.repeat(np.arange(len(sizes)), sizes)
    return centres[whose] + rng.standard_normal((len(whose), width)), whose


@pytest.mark.parametrize("distance", [7.0, 30.0])  # linked by their neighbours, and not
@pytest.mark.parametrize("seed", range(3))
def test_three_planted_clusters_are_found(distance: float, seed: int) -> None:
    points, whose = blobs((80, 50, 30), distance, seed)
    found = spectral.cluster(points)
    assert found.count == 3
    assert (found.eigenvalues[1:3] < found.chance[1:3]).all()
    assert adjusted_rand_score(whose, found.labels) > 0.95
    assert np.bincount(found.labels).tolist() == sorted(np.bincount(found.labels), reverse=True)
    assert spectral.stability(points, found.labels, 3, seed=0) > 0.9
    assert spectral.silhouettes(points, found.labels).mean() > 0.3


@pytest.mark.exhaustive
def test_one_cluster_stays_one() -> None:
    counts = []
    for seed in range(10):
        for width in (2, 12):
            points = np.random.default_rng(seed).standard_normal((120, width))
            counts.append(spectral.cluster(points).count)
    # the test allows one false alarm in twenty
    assert counts.count(1) >= 18


@pytest.mark.parametrize("distance", [4.0, 30.0])
def test_eigenvalues_equal_those_of_the_whole_matrix(distance: float) -> None:
    """Also where 0 comes several times, which Lanczos' method can miss."""
    points, _ = blobs((40, 40, 40), distance, seed=1)
    graph = spectral.affinity(points)
    weights = graph.toarray()
    assert (weights == weights.T).all()
    assert set(np.unique(weights)) == {0.0, 1.0}
    assert (np.diag(weights) == 0).all()
    scale = 1 / np.sqrt(weights.sum(axis=1))
    laplacian = np.eye(len(weights)) - scale[:, None] * weights * scale
    whole = eigvalsh(laplacian)[:8]
    assert spectral.eigenvalues(graph, 8) == pytest.approx(whole, abs=1e-9)


def test_clusters_do_not_depend_on_the_order_of_points() -> None:
    points, _ = blobs((60, 40, 25), 7.0, seed=2)
    order = np.random.default_rng(0).permutation(len(points))
    first, other = spectral.cluster(points), spectral.cluster(points[order])
    assert other.count == first.count
    assert adjusted_rand_score(first.labels[order], other.labels) == 1.0


def test_an_unstable_split_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(points: np.ndarray, *, seed: int) -> spectral.Clustering:
        labels = np.arange(len(points)) % 2
        values = np.array([0.0, 0.1, 0.9])
        return spectral.Clustering(labels=labels, count=2, eigenvalues=values, chance=values)

    monkeypatch.setattr(spectral, "cluster", halved)
    random = np.random.default_rng(3)
    sample = Sample(
        item_ids=tuple(f"{number:03d}" for number in range(120)),
        grids=random.standard_normal((120, 4, 4)),
        bags=None,
    )
    found = discover_strategies.read(sample, "predicted", "cat", 120, seed=0)
    assert found.found.rejected == 2
    assert found.found.stability < discover_strategies.STABLE
    assert [cluster.size for cluster in found.found.clusters] == [120]
    assert [len(shares) for shares in found.shares] == [120]
    assert {point.cluster for point in found.found.points} == {1}


def test_the_picture_keeps_clusters_together_and_in_its_frame() -> None:
    points, whose = blobs((40, 40, 40), 30.0, seed=0)
    drawn = spectral.picture(points, seed=0)
    assert drawn.shape == (120, 2)
    assert np.abs(drawn).max() == pytest.approx(1.0)
    assert np.array_equal(drawn, spectral.picture(points, seed=0))
    assert spectral.silhouettes(drawn, whose).min() > 0.5
    assert (spectral.picture(np.ones((30, 4)), seed=0) == 0).all()


def test_the_most_typical_is_nearest_to_the_mean() -> None:
    points = np.array([[4.0, 0.0], [0.0, 0.0], [1.9, 0.0], [2.1, 3.0]])
    assert spectral.typical_first(points).tolist()[0] == 2


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_items_that_are_explained_exactly_alike(kinds: int) -> None:
    """Templates give many equal explanations; one kind is one cluster, and nothing fails."""
    points = np.eye(12)[np.arange(90) % kinds]
    found = spectral.cluster(points)
    assert sum(np.bincount(found.labels)) == 90
    if kinds > 1:
        assert adjusted_rand_score(np.arange(90) % kinds, found.labels) > 0.5
