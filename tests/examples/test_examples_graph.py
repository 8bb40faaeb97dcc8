"""The graph example: its graphs, its pruning, and all of it on a few digits."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

import transexplain as te

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        import graph_superpixels

        yield graph_superpixels
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def digits(example: ModuleType) -> list:
    return example.digits(24)


def test_superpixels_are_connected_parts_of_the_picture(example: ModuleType, digits: list) -> None:
    for digit in digits:
        nodes = digit.parts.max() + 1
        assert sorted(set(digit.parts.ravel())) == list(range(nodes))
        graph = digit.graph
        assert graph["node_features"].shape == (nodes, example.FEATURES)
        assert np.isfinite(graph["node_features"]).all()
        assert (np.diag(graph["distances"]) == 0).all()
        assert (graph["distances"] == graph["distances"].T).all()
        assert ((graph["distances"] == 1).sum(axis=1) == graph["degrees"]).all()
        brightness = (graph["node_features"][:, 0] + 1) / 2
        place = digit.parts == 3
        assert brightness[3] == pytest.approx(digit.picture[place].mean(), abs=1e-6)


def test_taking_nodes_away_keeps_the_rest(example: ModuleType, digits: list) -> None:
    graph = digits[0].graph
    less = example.without(graph, np.array([0, 4]))
    kept = [1, 2, 3, *range(5, len(graph["degrees"]))]
    assert (less["distances"] == graph["distances"][kept][:, kept]).all()
    assert (less["node_features"] == graph["node_features"][kept]).all()
    assert (less["degrees"] == graph["degrees"][kept]).all()


def test_the_example_batches_as_the_library_does(example: ModuleType, digits: list) -> None:
    torch.manual_seed(0)
    network = example.GraphTransformer(width=example.FEATURES, classes=10, layers=2).eval()
    names = [str(number) for number in range(10)]
    found = te.explain(
        te.wrap(network, modality="nodes", classes=names), [digit.graph for digit in digits]
    )
    logits = example.logits_of(network, [digit.graph for digit in digits])
    assert [one.class_index for one in found] == logits.argmax(axis=1).tolist()
    np.testing.assert_allclose([one.logit for one in found], logits.max(axis=1), rtol=1e-4)
    assert max(one.ledger.relative_gap for one in found) < 5e-6
    for one, digit in zip(found, digits, strict=True):
        assert example.node_relevance(one).shape == (digit.parts.max() + 1,)
        assert one.features[0].special


def test_a_curve_starts_at_the_logit_and_its_area_is_its_mean(
    example: ModuleType, digits: list
) -> None:
    torch.manual_seed(0)
    network = example.GraphTransformer(width=example.FEATURES, classes=10, layers=2).eval()
    orders = [np.arange(len(digit.graph["degrees"])) for digit in digits]
    curve = example.pruning_curve(network, digits, orders)
    logits = example.logits_of(network, [digit.graph for digit in digits])
    assert curve[0] == pytest.approx(logits.max(axis=1).mean(), rel=1e-4)
    assert curve.shape == example.SHARES.shape
    assert len(set(np.round(curve, 6))) > 5
    assert example.area(np.full(10, 2.5)) == pytest.approx(2.5)
    assert example.area(np.linspace(1.0, 0.0, 10)) == pytest.approx(0.5)


@pytest.mark.exhaustive
def test_the_example_runs_on_a_few_digits(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "sheet.png"
    words = ["--digits", "160", "--epochs", "4", "--explained", "12", "--shown", "2"]
    example.main([*words, "--output", str(output)])
    reported = capsys.readouterr().out
    assert "160 graphs" in reported
    assert "of 40 test digits" in reported
    assert "most relevant first" in reported
    with Image.open(output) as sheet:
        assert sheet.size == (12 + 2 * 188, 30 + 3 * 188)
        colours = np.asarray(sheet.convert("RGB")).astype(int)
    below = colours[30 + 2 * 188 : 30 + 2 * 188 + 176]
    assert np.abs(below[..., 0] - below[..., 2]).max() > 40, "relevance is in colour"
