"""Attention flow (Abnar & Zuidema 2020), by igraph's maximum flow."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.global_maps import (
    Readout,
    Variant,
    layers_from,
    mean_heads,
    padded,
    rows_of,
)
from transexplain.methods.map_passes import MapMethod, global_maps
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    start_layer: int = 0,
    stop_layer: int | None = None,
    readout: Readout = "token",
    variant: Variant = "paper",
) -> BatchExplanation:
    """The largest flow from the position that is read to each input, with attention as capacity.

    Abnar & Zuidema 2020, section 3: nodes are the positions of every layer, edges have the
    capacity (A + I) / 2, A the mean over heads. The same for every target.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        start_layer, stop_layer: layers from 0, the last exclusive; default: all.
        readout: `token` is the position that the classifier reads, `all` the sum over all (Ali
            et al. 2022).
        variant: `authors` scales the flows from every position that is read to sum to 1.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`. T flows through L T^2 edges
        are found for every position that is read: seconds for a picture of 197 positions.

    Raises:
        EngineError: a model without such maps, or whose classifier pools its positions.
    """
    batch = padded(model, batch, None, variant)
    recipe = MapMethod(
        key=(method, start_layer, stop_layer, readout),
        layers=partial(layers_from, start=start_layer, stop=stop_layer),
        compute=mean_heads,
        reads=readout == "token",
    )
    with global_maps(model, batch, recipe) as maps:
        rows = rows_of(maps, readout).double().cpu().numpy()
        means = maps.results(np.zeros_like(maps.logits), last=True)
        positions = np.zeros(rows.shape)
        for item, encoded in enumerate(batch.encoded):
            size = encoded.length
            capacities = []
            for mean in means:
                with_residual = mean[item, :size, :size].double().cpu().numpy() + np.eye(size)
                capacities.append(with_residual / with_residual.sum(axis=1, keepdims=True))
            scaled = variant == "authors"
            positions[item, :size] = _flows(capacities, rows[item, :size], scaled=scaled)
        mark = CommonFields(method, "attention", "score", double=maps.double)
        return explain_targets(
            batch, maps.logits, resolve, lambda _seed, _last: SeedRelevance(positions), mark
        )


def _flows(layers: Sequence[Array], weights: Array, *, scaled: bool) -> Array:
    """(T,) flows to every input, summed over the positions that are read by their weights."""
    size = len(weights)
    graph, capacities = _graph(layers)
    flow = np.zeros(size)
    for source in np.flatnonzero(weights):
        top = len(layers) * size + int(source)
        flows = np.array(
            [graph.maxflow_value(top, sink, capacity=capacities) for sink in range(size)]
        )
        flow += weights[source] * (flows / flows.sum() if scaled else flows)
    return flow


def _graph(layers: Sequence[Array]) -> tuple[Any, list[float]]:
    """The layered graph, node l * T + t for position t below layer l, and its capacities."""
    import igraph

    size = layers[0].shape[0]
    edges, capacities = [], []
    for number, layer in enumerate(layers):
        queries, keys = np.nonzero(layer)
        edges.append(np.stack([(number + 1) * size + queries, number * size + keys], axis=1))
        capacities.append(layer[queries, keys])
    graph = igraph.Graph(
        n=(len(layers) + 1) * size, edges=np.concatenate(edges).tolist(), directed=True
    )
    return graph, np.concatenate(capacities).tolist()
