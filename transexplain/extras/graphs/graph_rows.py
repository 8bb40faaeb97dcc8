"""Checks a graph as a file holds it, and keeps it as a row of the snapshot.

Dimension letters: T nodes, F features of a node, E edges.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.data.item_marks import BAD_SPANS, nodes_cell
from transexplain.data.source_files import printable
from transexplain.errors import ItemError
from transexplain.types.graphs import (
    EDGES,
    FEATURES,
    GROUPS,
    ID,
    LABEL,
    META,
    NAMES,
    POSITIONS,
    TEXT,
    is_reserved,
)

BAD_GRAPH = "bad-graph"


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphRow:
    """One graph, checked."""

    #: the inputs of the model by name, and `node_names`, `edges`, `node_positions` where given
    content: Mapping[str, Any]
    id: str | None
    label: str | None
    meta: Mapping[str, str]  #: its `meta.*` without that prefix, and its `text`
    groups: str | None  #: its substructures as the snapshot keeps them, see `item_marks`


def read_row(given: Mapping[str, Any], groups: str = GROUPS) -> GraphRow:
    """The graph that a file holds as arrays, texts and numbers by name.

    Args:
        given: what stands under each name; None: as if the name were not there.
        groups: the name of its substructures.

    Raises ItemError bad-graph, empty-graph or bad-spans.
    """
    named = {str(name): value for name, value in given.items() if value is not None}
    nodes = _features(named).shape[0]
    content: dict[str, Any] = {
        name: _input(name, value)
        for name, value in named.items()
        if not is_reserved(name) and name != groups
    }
    for name, read in _DRAWN.items():
        if name in named:
            content[name] = read(named[name], nodes)
    meta = {
        name.removeprefix(META): _text(name, value)
        for name, value in named.items()
        if name.startswith(META) or name == TEXT
    }
    return GraphRow(
        content=content,
        id=_text(ID, named[ID]) if ID in named else None,
        label=_text(LABEL, named[LABEL]) if LABEL in named else None,
        meta=meta,
        groups=_groups(named[groups], nodes) if groups in named else None,
    )


def pack(content: Mapping[str, Any]) -> str:
    """A graph's content as a text: the same bytes for the same graph."""

    def packed(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}

    return json.dumps({name: packed(value) for name, value in content.items()}, ensure_ascii=False)


def unpack(text: str) -> dict[str, Any]:
    """The content that `pack` was given: its arrays can be read only."""
    nodes = {}
    for name, value in json.loads(text).items():
        if isinstance(value, dict):
            data = base64.b64decode(value["data"])
            nodes[name] = np.frombuffer(data, dtype=value["dtype"]).reshape(value["shape"])
        else:
            nodes[name] = value
    return nodes


def _features(named: Mapping[str, Any]) -> NDArray[Any]:
    if FEATURES not in named:
        listing = ", ".join(map(repr, named)) or "nothing"
        raise ItemError(
            BAD_GRAPH, f"it has no {FEATURES!r}, an array of T nodes by F numbers; it has {listing}"
        )
    features = _input(FEATURES, named[FEATURES])
    if features.ndim != 2 or features.shape[1] == 0:
        raise ItemError(
            BAD_GRAPH, f"{FEATURES} has shape {features.shape}; expected (T, F): nodes by features"
        )
    if features.shape[0] == 0:
        raise ItemError("empty-graph", f"{FEATURES} has no nodes: its shape is {features.shape}")
    if not np.isfinite(features).all():
        node = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise ItemError(
            BAD_GRAPH, f"{FEATURES} holds NaN or infinity at node {node}; every feature is a number"
        )
    return features


def _input(name: str, value: Any) -> NDArray[Any]:
    values = _array(name, value)
    if values.dtype.kind in "US":
        raise ItemError(
            BAD_GRAPH,
            f"{name!r} holds text, which no model takes; call it {META}{name} to keep it with the "
            "graph",
        )
    if values.dtype.kind not in "fiub":
        raise ItemError(BAD_GRAPH, f"{name!r} holds {values.dtype}, not numbers")
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    return values.astype(values.dtype.newbyteorder("<"), copy=False)


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ItemError(BAD_GRAPH, f"{name!r} is no array: {error}") from error


def _text(name: str, value: Any) -> str:
    """One text or number; whole floats without their point, as tables write class ids."""
    single = isinstance(value, np.ndarray | np.generic) and np.size(value) == 1
    scalar = value.item() if single else value
    if isinstance(scalar, bytes):
        scalar = scalar.decode("utf-8", "backslashreplace")
    if isinstance(scalar, float) and scalar.is_integer():
        scalar = int(scalar)
    if isinstance(scalar, bool) or not isinstance(scalar, str | int | float):
        raise ItemError(BAD_GRAPH, f"{name!r} is not one text or one number")
    return printable(str(scalar))


def _names(value: Any, nodes: int) -> list[str]:
    values = _array(NAMES, value)
    if values.shape != (nodes,):
        raise ItemError(
            BAD_GRAPH, f"{NAMES} has shape {values.shape}; expected one name for each of {nodes}"
        )
    return [_text(NAMES, name) for name in values.tolist()]


def _edges(value: Any, nodes: int) -> NDArray[Any]:
    values = _array(EDGES, value)
    values = values.reshape(0, 2).astype(np.int64) if values.size == 0 else values
    if values.dtype.kind not in "iu" or values.ndim != 2 or values.shape[1] != 2:
        raise ItemError(
            BAD_GRAPH,
            f"{EDGES} is {values.dtype} of shape {values.shape}; expected whole numbers of shape "
            "(E, 2): the two nodes of each edge",
        )
    if values.size and not (int(values.min()) >= 0 and int(values.max()) < nodes):
        raise ItemError(
            BAD_GRAPH, f"{EDGES} names a node outside 0 to {nodes - 1}; nodes are counted from 0"
        )
    return values.astype("<i4")


def _positions(value: Any, nodes: int) -> NDArray[Any]:
    values = _array(POSITIONS, value)
    numbers = values.dtype.kind in "fiu"
    if not numbers or values.shape != (nodes, 2) or not np.isfinite(values).all():
        raise ItemError(
            BAD_GRAPH,
            f"{POSITIONS} is {values.dtype} of shape {values.shape}; expected numbers of shape "
            f"({nodes}, 2), none of them NaN",
        )
    return values.astype("<f4")


#: what is for drawings alone
_DRAWN = {NAMES: _names, EDGES: _edges, POSITIONS: _positions}


def _groups(value: Any, nodes: int) -> str:
    """Substructures as the snapshot keeps them; raises ItemError bad-spans."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ItemError(BAD_SPANS, f"{GROUPS} is not a JSON list: {error}") from error
    entries = list(value)
    if all(isinstance(entry, str) for entry in entries):
        entries = list(_by_name(entries, nodes))
    return nodes_cell(entries, nodes)


def _by_name(names: list[str], nodes: int) -> Iterator[list[Any]]:
    """A substructure of all nodes of one name; nodes named "" are in none."""
    if len(names) != nodes:
        raise ItemError(
            BAD_SPANS, f"{GROUPS} has {len(names)} names; expected one for each of {nodes} nodes"
        )
    places: dict[str, list[int]] = {}
    for node, name in enumerate(names):
        places.setdefault(name, []).append(node)
    yield from ([name, nodes] for name, nodes in places.items() if name)
