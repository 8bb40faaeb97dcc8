"""Draws graphs as nodes and links in SVG, the nodes coloured by relevance.

Dimension letters: T nodes, E edges.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.reports.coloured_text import DEEPEST, FAINTEST, MAX_OPACITY, escape
from transexplain.reports.heatmap import colour
from transexplain.reports.phrasing import signed
from transexplain.types.graphs import POSITIONS, GraphShape, edges_of, nodes_of, numbered
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.plans import AuditPlan

Points = NDArray[np.float64]  #: (T, 2) to the right, and down

MOST_NODES = 400  #: a larger graph is no drawing that one could read
_RADIUS = 13.0  #: of a node, in units of the drawing
_LINK = 46.0  #: what a link of middle length is long
_SHORT = 3  #: characters of a name that fit into a node at full size
_ROUNDS = 200  #: of majorization at most
_STILL = 1e-5  #: share by which the stress has to fall, for another round


def shape_of(names: Sequence[str], graph: Mapping[str, Any] | None = None) -> GraphShape:
    """The shape of a graph of T nodes.

    Args:
        names: (T,) of the nodes.
        graph: holds `edges` (or `adjacency`, `distances`) and, where nodes have a place,
            `node_positions`; None: nothing of it is known.

    Raises ConfigurationError where the places do not fit the nodes.
    """
    known = dict(graph or {})
    edges = edges_of(known, len(names))
    stored = known.get(POSITIONS)
    places = layout(len(names), edges) if stored is None else np.asarray(stored, dtype=np.float64)
    if places.shape != (len(names), 2) or not np.isfinite(places).all():
        raise ConfigurationError(
            f"{POSITIONS} has shape {places.shape}; expected two numbers for each of {len(names)} "
            "nodes"
        )
    places = places / _unit(places, edges)
    return GraphShape(
        names=tuple(names),
        places=tuple((round(x, 3), round(y, 3)) for x, y in places.tolist()),
        edges=tuple((a, b) for a, b in edges.tolist()),
    )


def stored_shapes(
    plan: AuditPlan, outcomes: Mapping[str, ItemOutcome], names: Mapping[str, Sequence[str]]
) -> dict[str, GraphShape]:
    """Item -> its shape, from the plan's snapshot.

    None where the plan stores no texts, for a graph that is too large, and where the snapshot is
    gone: then its nodes are shown as words are.

    Args:
        plan: of the run.
        outcomes: item -> what is stored of it.
        names: item -> the names of its nodes.
    """
    if plan.dataset.modality != "nodes" or plan.privacy is not None:
        return {}
    from transexplain.data.shard_reader import graphs_of  # its formats take 25 MB

    drawn = {item: outcomes[item].index for item, of in names.items() if 0 < len(of) <= MOST_NODES}
    graphs = graphs_of(plan.dataset, drawn.values())
    return {
        item: shape_of(names[item], graphs[row]) for item, row in drawn.items() if row in graphs
    }


def layout(nodes: int, edges: NDArray[np.intp]) -> Points:
    """(T, 2) places whose distances are like the numbers of edges between nodes.

    Stress majorization (Gansner, Koren and North 2004, Eq. 5 and 6), begun from classical scaling:
    the same graph always has the same places. Parts that no path joins stand side by side.
    """
    if nodes < 2:
        return np.zeros((nodes, 2))
    lengths = _path_lengths(nodes, edges)
    places = _scaled(lengths)
    weights = np.where(lengths > 0, 1.0 / np.maximum(lengths, 1.0) ** 2, 0.0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    stress = stress_of(places, lengths)
    for _ in range(_ROUNDS):
        places = inverse @ (_pulled(places, lengths, weights) @ places)
        before, stress = stress, stress_of(places, lengths)
        if before - stress <= _STILL * before:
            break
    return places


def stress_of(places: Points, lengths: Points) -> float:
    """Measure how far distances of T `places` are from `lengths` (T, T), weighted by 1 / d^2."""
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    upper = np.triu_indices(len(places), 1)
    return float((((apart - lengths)[upper] / lengths[upper]) ** 2).sum())


def node_link(
    shape: GraphShape,
    relevance: Sequence[float],
    *,
    label: str,
    scale: float | None = None,
    palette: str = "blue-red",
    own: bool = False,
) -> Markup:
    """The graph as an SVG element; everything is escaped, and nothing else is needed to show it.

    Args:
        shape: of the graph.
        relevance: (T,) of its nodes.
        label: says what is drawn, to those who do not see it.
        scale: |relevance| that gets the full colour; None: the largest of these.
        palette: `blue-red`, or `green-red`.
        own: for a page that has `nodes_css` and lets its reader choose between `scale` and the
            graph's own.

    Raises ConfigurationError for an unknown palette or a bad scale.
    """
    values = np.asarray(relevance, dtype=np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    full = largest if scale is None else scale
    if not 0.0 <= full < math.inf:
        raise ConfigurationError(f"a colour scale must be a positive number, not {full}")
    points = np.asarray(shape.places, dtype=np.float64).reshape(-1, 2) * _LINK
    margin = _RADIUS + 3.0
    low = points.min(axis=0, initial=np.inf) if len(points) else np.zeros(2)
    high = points.max(axis=0, initial=-np.inf) if len(points) else np.zeros(2)
    points, size = points - low + margin, high - low + 2 * margin
    shared = f' style="--k:{largest / full:.3g}"' if own and full and largest else ""
    title = escape(f"{label}. {_strongest(shape, values)}")
    nodes = zip(shape.names, points.tolist(), values.tolist(), strict=True)
    drawn = "".join(
        _node(number, name, place, value, _paint(value, largest if own else full, palette, own))
        for number, (name, place, value) in enumerate(nodes)
    )
    width, height = (f"{side:.0f}" for side in size.tolist())
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" aria-label="{title}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" color="currentColor" '
        f'font-family="system-ui,sans-serif" text-anchor="middle"{shared}><title>{title}</title>'
        f'<path d="{_links(shape.edges, points)}" fill="none" stroke="currentColor" '
        'stroke-opacity=".45" stroke-width="1.4"/>'
        f'<g fill="currentColor" stroke-opacity=".6">{drawn}</g></svg>'
    )


def graph_html(
    attribution: Attribution, *, scale: float | None = None, palette: str = "blue-red"
) -> Markup | None:
    """The graph that an attribution knows, drawn; None: it knows none, or one that is too large.

    Raises as `node_link` and `nodes_of`.
    """
    known = attribution.picture
    if not isinstance(known, Mapping) or isinstance(attribution.features, PatchGrid):
        return None
    names, relevance = nodes_of(attribution)
    if not 0 < len(names) <= MOST_NODES:
        return None
    label = f"relevance of the nodes of {attribution.item_id} for {attribution.class_name}"
    shape = shape_of(names, known)
    return node_link(shape, relevance.tolist(), label=label, scale=scale, palette=palette)


def _paint(value: float, full: float, palette: str, by_class: bool) -> str:
    """The colour of a node: |relevance| as a share of `full`."""
    share = max(-1.0, min(1.0, value / full)) if full else 0.0
    if abs(share) < FAINTEST:
        return ' fill="none"'
    if by_class:
        return f' class="{"p" if share > 0 else "n"}" style="--v:{abs(share):.2f}"'
    red, green, blue = colour(math.copysign(DEEPEST, share), palette)
    return f' fill="rgb({red},{green},{blue})" fill-opacity="{MAX_OPACITY * abs(share):.3f}"'


def _node(number: int, name: str, place: Sequence[float], value: float, paint: str) -> str:
    x, y = (f"{coordinate:.1f}" for coordinate in place)
    shown = str(number) if name == numbered(number) else name
    size = 11.0 * min(1.0, _SHORT / max(1, len(shown)))
    text = (
        f'<text x="{x}" y="{y}" dy=".35em" font-size="{max(size, 5.0):.1f}">'
        f"{escape(shown[:8])}</text>"
    )
    title = escape(f"{name or 'node'} ({number}): {signed(value)}")
    return (
        f'<g><title>{title}</title><circle cx="{x}" cy="{y}" r="{_RADIUS:.0f}"'
        f' stroke="currentColor"{paint}/>{text}</g>'
    )


def _links(edges: Sequence[tuple[int, int]], points: Points) -> str:
    """Lines from the rim of one node to that of the other, so that none lies under a node."""
    parts = []
    for a, b in edges:
        step = points[b] - points[a]
        length = float(np.linalg.norm(step))
        if length > 2 * _RADIUS:
            rim = step * (_RADIUS / length)
            (x1, y1), (x2, y2) = (points[a] + rim).tolist(), (points[b] - rim).tolist()
            parts.append(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}")
    return "".join(parts)


def _strongest(shape: GraphShape, values: NDArray[np.float64]) -> str:
    """The size of the graph and its three strongest nodes, in words."""
    order = np.argsort(-np.abs(values), kind="stable")[:3].tolist()
    named = ", ".join(
        f"{shape.names[node] or 'node'} ({node}) {signed(float(values[node]))}" for node in order
    )
    return f"{len(values)} nodes, {len(shape.edges)} edges; strongest: {named}"


def _unit(places: Points, edges: NDArray[np.intp]) -> float:
    """The middle length of a link; of a graph without any, the way to the nearest node."""
    if len(edges):
        lengths = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    else:
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
        np.fill_diagonal(apart, np.inf)
        lengths = apart.min(axis=1, initial=np.inf)
    lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
    return float(np.median(lengths)) if len(lengths) else 1.0


def _path_lengths(nodes: int, edges: NDArray[np.intp]) -> Points:
    """(T, T) edges on the shortest path; of nodes that none joins, more than any of these."""
    from scipy.sparse import csr_array  # slow to import
    from scipy.sparse.csgraph import shortest_path

    links = csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    lengths = np.asarray(shortest_path(links, directed=False, unweighted=True), dtype=np.float64)
    near = np.isfinite(lengths)
    # nodes without any edge stand on a circle whose neighbours are about a link apart
    apart = float(lengths[near].max()) + 1.0 + (nodes / 6.0 if not len(edges) else 0.0)
    return np.where(near, lengths, apart)


def _scaled(lengths: Points) -> Points:
    """(T, 2) classical scaling: the two largest axes of the centred squared distances."""
    nodes = len(lengths)
    centre = np.eye(nodes) - 1.0 / nodes
    values, vectors = np.linalg.eigh(-0.5 * centre @ lengths**2 @ centre)
    axes = vectors[:, -1:-3:-1]
    # of either sign: the largest entry points to the right
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[largest, np.arange(axes.shape[1])])
    places = axes * np.sqrt(np.maximum(values[-1:-3:-1], 1e-9))
    # equal places would never part
    turn = np.arange(nodes, dtype=np.float64)
    turned: Points = places + 1e-3 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return turned


def _pulled(places: Points, lengths: Points, weights: Points) -> Points:
    """(T, T) the matrix of the majorizing form: -w d / |x_i - x_j|, rows summing to 0."""
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    pull = np.where(apart > 1e-12, weights * lengths / np.maximum(apart, 1e-12), 0.0)
    return np.diag(pull.sum(axis=1)) - pull
