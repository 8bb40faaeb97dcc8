"""Graphs like molecules, a graph transformer of random weights for them, and their audit."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import shortest_path

from transexplain.extras.graphs.graph_files import write_graphs
from transexplain.extras.graphs.graph_transformer import GraphTransformer

ATOMS = ("C", "N", "O", "Cl", "c")
CLASSES = ("inert", "active")
HETERO, ENDS = "part/hetero", "part/ends"


def molecule(number: int) -> dict[str, Any]:
    """A random tree of atoms with one ring, and its substructures."""
    random = np.random.default_rng(number)
    nodes = int(random.integers(4, 10))
    kinds = random.integers(0, len(ATOMS), nodes)
    kinds[0] = 1
    joined = np.zeros((nodes, nodes), dtype=bool)
    for node in range(1, nodes):
        other = int(random.integers(0, node))
        joined[node, other] = joined[other, node] = True
    names = [ATOMS[kind] for kind in kinds]
    groups = [
        [HETERO, [node for node in range(nodes) if names[node] in ("N", "O")]],
        [ENDS, [node for node in range(nodes) if joined[node].sum() == 1]],
    ]
    return {
        "node_features": np.eye(len(ATOMS), dtype=np.float32)[kinds],
        "distances": shortest_path(joined, unweighted=True).astype(np.int64),
        "degrees": joined.sum(axis=1),
        "node_names": names,
        "edges": np.argwhere(np.triu(joined)),
        "node_groups": groups,
        "label": CLASSES[number % 2],
        "id": f"mol-{number}",
        "text": "".join(names),
        "meta.scaffold": f"s{number % 3}",
    }


def molecules(count: int) -> list[dict[str, Any]]:
    """So many molecules, the same every time."""
    return [molecule(number) for number in range(count)]


def make_graph_audit(folder: Path, *, count: int = 12, **keys: Any) -> dict[str, Any]:
    """Write a model and graphs below `folder`, and return the specification of their audit."""
    torch.manual_seed(0)
    network = GraphTransformer(width=len(ATOMS), classes=2, hidden=8, heads=2, layers=1, far=4)
    network.save(folder / "model", CLASSES)
    if not (folder / "graphs").exists():
        write_graphs(folder / "graphs", molecules(count))
    return {
        "model": str(folder / "model"),
        "data": {"source": f"graphs:{folder / 'graphs'}", "spans": "node_groups"},
        "groups": {"check": 100, "randomised": False},
        **keys,
    }
