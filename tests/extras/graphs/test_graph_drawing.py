"""Graphs drawn as nodes and links: places, colours, words for those who do not see, escapes."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_records import new_attribution
from toy_graphs import Graphormer, graphormer_item, toy

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.extras.graphs.graph_drawing import layout, node_link, shape_of, stress_of
from transexplain.types.graphs import GraphShape
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.tokens import Token

MINUS = "\N{MINUS SIGN}"
SVG = "{http://www.w3.org/2000/svg}"


def attribution(relevance: list[float], names: list[str]) -> Attribution:
    nodes = tuple(Token(text=n, start=0, end=0, word=i) for i, n in enumerate(names))
    graph = Token(text="[graph]", start=0, end=0, special=True)
    return new_attribution(
        item_id="g",
        class_name="yes",
        relevance=np.array([9.0, *relevance]),
        features=(graph, *nodes),
    )


def test_places_are_a_minimum_of_the_stress_by_the_paper() -> None:
    """Gansner, Koren and North 2004, Eq. 1: no single node can move and lower the stress."""
    edges = np.array([(0, 1), (1, 2), (2, 3), (3, 0), (2, 4), (4, 5), (5, 6), (4, 7)])
    places = layout(8, edges)
    lengths = np.full((8, 8), np.inf)
    np.fill_diagonal(lengths, 0)
    for a, b in edges:
        lengths[a, b] = lengths[b, a] = 1
    for k in range(8):  # Floyd and Warshall
        lengths = np.minimum(lengths, lengths[:, k, None] + lengths[None, k])

    def stress(at: np.ndarray) -> float:
        pairs = np.triu_indices(8, 1)
        apart = np.linalg.norm(at[:, None] - at[None], axis=-1)[pairs]
        return float(((apart - lengths[pairs]) ** 2 / lengths[pairs] ** 2).sum())

    found = stress(places)
    assert found == pytest.approx(stress_of(places, lengths))
    for node in range(8):
        for step in (0.05 * np.array(one) for one in ((1, 0), (-1, 0), (0, 1), (0, -1))):
            moved = places.copy()
            moved[node] += step
            assert stress(moved) > found - 1e-6


@pytest.mark.parametrize(
    ("nodes", "edges"), [(0, []), (1, []), (2, []), (7, []), (5, [(0, 1), (3, 4)])]
)
def test_graphs_without_paths_have_places_too(nodes: int, edges: list[Any]) -> None:
    shape = shape_of([f"node {n}" for n in range(nodes)], {"edges": np.array(edges, dtype=int)})
    places = np.array(shape.places).reshape(-1, 2)
    assert np.isfinite(places).all() and len(places) == nodes
    if nodes > 1:
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
        assert apart[np.triu_indices(nodes, 1)].min() > 0.5
    ET.fromstring(node_link(shape, [0.0] * nodes, label="empty"))


def test_nodes_are_coloured_named_and_told() -> None:
    names = ["C", "<b>&", "node 2", "a long name"]
    graph = {"edges": [[0, 1], [1, 2], [2, 3]], "node_positions": np.eye(4)[:, :2] * 3}
    drawn = te.render.graph(attribution([1.0, -2.0, 0.0, 0.5], names), graph)
    root = ET.fromstring(drawn)
    assert root.get("role") == "img"
    told = root.find(f"{SVG}title").text  # type: ignore[union-attr]
    assert told == root.get("aria-label")
    assert f"g for yes. 4 nodes, 3 edges; strongest: <b>& (1) {MINUS}2.000, C (0) +1.000" in told
    titles = [one.text for one in root.iter(f"{SVG}title")][1:]
    assert titles == [
        "C (0): +1.000",
        f"<b>& (1): {MINUS}2.000",
        "node 2 (2): 0.000",
        "a long name (3): +0.500",
    ]
    assert [one.text for one in root.iter(f"{SVG}text")] == ["C", "<b>&", "2", "a long n"]
    first, second, third, fourth = root.iter(f"{SVG}circle")
    assert third.get("fill") == "none"
    reds, blues = first.get("fill"), second.get("fill")
    assert reds != blues and fourth.get("fill") == reds
    opacity = [float(one.get("fill-opacity") or 0) for one in (first, second, fourth)]
    assert opacity == pytest.approx([0.36, 0.72, 0.18], abs=1e-3)
    assert "[graph]" not in drawn, "virtual nodes are left out"
    assert not re.search(r"href|url\(|<script|<b>", drawn)


def test_a_shared_scale_and_a_choice_of_the_reader() -> None:
    shape = shape_of(["a", "b"], {"edges": [[0, 1]]})
    drawn = node_link(shape, [0.5, -1.0], label="x", scale=4.0, own=True)
    assert 'style="--k:0.25"' in drawn
    assert 'class="p" style="--v:0.50"' in drawn and 'class="n" style="--v:1.00"' in drawn


def test_an_explained_graph_knows_its_edges() -> None:
    model = te.wrap(toy(Graphormer), modality="nodes", classes=["a", "b", "c"])
    item = graphormer_item(5)
    [found] = te.explain(model, item)
    edges = int((np.asarray(item["distances"]) == 1).sum() // 2)
    assert f"5 nodes, {edges} edges" in te.render.graph(found)
    assert 'class="graph"' in te.render.html(found)
    assert 'class="graph"' in found._repr_html_()
    assert "0 edges" in te.render.graph(found, {"edges": []})


def test_what_cannot_be_drawn() -> None:
    one = attribution([1.0], ["a"])
    with pytest.raises(TypeError, match="takes one attribution"):
        te.render.graph([one])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="two numbers for each of 1 nodes"):
        te.render.graph(one, {"node_positions": np.ones((2, 2))})
    with pytest.raises(ConfigurationError, match="positive number"):
        te.render.graph(one, scale=float("nan"))
    with pytest.raises(ConfigurationError, match="unknown palette"):
        te.render.graph(one, palette="rainbow")
    with pytest.raises(ConfigurationError, match="not finite"):
        te.render.graph(attribution([np.nan], ["a"]))
    grid = PatchGrid(rows=1, cols=1, height=8, width=8)
    picture = replace(one, features=grid, relevance=np.ones((1, 1)))
    with pytest.raises(TypeError, match="use overlay"):
        te.render.graph(picture)
    assert isinstance(shape_of(["a"]), GraphShape)
