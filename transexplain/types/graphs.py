"""The names of what a graph holds beside the inputs of the model, and its edges.

Dimension letters: T nodes, F features of a node, H heads, E edges.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, WrongKindError
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.tokens import Tokens

#: (T, F) the features of the nodes: the main input of the model, whatever its own name for it is
FEATURES = "node_features"
#: (T,) texts
NAMES = "node_names"
#: (E, 2) the two nodes that each edge joins, counted from 0
EDGES = "edges"
#: (T, 2) where a drawing places the nodes: to the right, and down
POSITIONS = "node_positions"
#: substructures: T names, or entries [group, nodes] or [group, nodes, entity]
GROUPS = "node_groups"
#: the item's own: its class, its id, and a text that stands for it (a molecule's SMILES)
LABEL, ID, TEXT = "label", "id", "text"
#: what begins the name of a value that is kept as the item's metadata
META = "meta."
#: inputs of some models that tell which nodes are joined
_LINKS = ("adjacency", "distances")
#: names that are no inputs of the model
RESERVED = frozenset({NAMES, EDGES, POSITIONS, GROUPS, LABEL, ID, TEXT})


_NUMBERED = re.compile(r"node \d+")


def numbered(number: int) -> str:
    """Return what a node without a name is called."""
    return f"node {number}"


def is_named(name: str) -> bool:
    """Return whether a node's name is more than its number."""
    return _NUMBERED.fullmatch(name) is None


def is_reserved(name: str) -> bool:
    """Return whether a graph's `name` is never given to the model."""
    return name in RESERVED or name.startswith(META)


def drawn_of(graph: Mapping[str, Any]) -> dict[str, Any]:
    """What of a graph is needed to draw it: its edges, places and text, a molecule's SMILES."""
    links = (EDGES, *_LINKS)
    first = next((name for name in links if graph.get(name) is not None), None)
    return {name: graph[name] for name in (first, POSITIONS, TEXT) if name and name in graph}


def edges_of(graph: Mapping[str, Any], nodes: int) -> NDArray[np.intp]:
    """(E, 2) the edges to draw between T `nodes`, each once, without loops.

    They are `edges`, else the pairs that `adjacency` (T, T) holds a number other than 0 for, else
    those at `distances` (T, T) of 1, else none.
    """
    if graph.get(EDGES) is not None:
        edges = _array(graph[EDGES]).astype(np.intp).reshape(-1, 2)
    else:
        inputs = ((name, _array(graph.get(name, ()))) for name in _LINKS)
        fitting = (
            np.argwhere(values == 1 if name == "distances" else values != 0)
            for name, values in inputs
            if values.shape == (nodes, nodes)
        )
        edges = next(fitting, np.empty((0, 2), dtype=np.intp))
    edges = np.sort(edges, axis=1)
    inside = (edges[:, 0] >= 0) & (edges[:, 1] < nodes) & (edges[:, 0] < edges[:, 1])
    return np.unique(edges[inside], axis=0)


def _array(values: Any) -> NDArray[Any]:
    """An array, a list, or a tensor on any device, as an array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphShape:
    """The drawn parts of a graph, whatever its relevance."""

    names: tuple[str, ...]  #: (T,)
    places: tuple[tuple[float, float], ...]  #: (T,) to the right, and down, in units of a link
    edges: tuple[tuple[int, int], ...]  #: (E,)


def nodes_of(attribution: Attribution) -> tuple[list[str], NDArray[np.float64]]:
    """(T,) names and relevance of the nodes, without virtual ones.

    Raises TypeError for the attribution of a picture, ConfigurationError where relevance is not
    finite.
    """
    if isinstance(attribution.features, PatchGrid):
        raise WrongKindError(
            "graph() draws graphs; this attribution is of a picture: use overlay()"
        )
    tokens = Tokens.of(attribution.features)
    real = ~tokens.special
    relevance = np.asarray(attribution.relevance, dtype=np.float64)[real]
    if not np.isfinite(relevance).all():
        raise ConfigurationError(f"the relevance of item {attribution.item_id!r} is not finite")
    texts = (name for name, kept in zip(tokens.texts, real.tolist(), strict=True) if kept)
    return list(texts), relevance
