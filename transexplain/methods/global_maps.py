"""Methods that explain by attention maps, and how these are read: layers, rows, authors' readouts.

Parameters of several methods: `layer` is counted from 0, or from the end where negative;
`start_layer` and `stop_layer` are counted from 0, the last exclusive, default: all; `readout` is
`token`, the row of the position that the classifier reads, or `all`, the sum over rows; `variant`
is `paper` or `authors`, and `padded_length` the T of the authors' code. All raise EngineError for
a model without such maps, or whose classifier pools its positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.map_passes import GlobalMaps, MapMethod, Maps, global_maps
from transexplain.methods.relevance import chefer_rules
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.models.text_encoder import TextEncoder
from transexplain.types.items import Unit

#: `token`: the row of the position that the classifier reads; `all`: the sum over all rows
Readout = Literal["token", "all"]
Variant = Literal["paper", "authors"]


def mean_heads(maps: Maps) -> list[Tensor]:
    """(B, T, T) the attention of each layer, mean over heads."""
    return [weights.mean(dim=1) for weights in maps.weights]


def layers_from(count: int, start: int, stop: int | None = None) -> range:
    """Indices of the layers `start` to `stop` (exclusive) of L; ConfigurationError."""
    end = count if stop is None else stop
    if not 0 <= start < end <= count:
        raise ConfigurationError(
            f"layers {start} to {end} (exclusive) were asked for; the model has {count}, counted "
            "from 0, and the first must come before the end"
        )
    return range(start, end)


def layer_at(count: int, layer: int) -> int:
    """The index of one layer of L, counted from the end where negative; ConfigurationError."""
    if not -count <= layer < count:
        raise ConfigurationError(f"layer {layer} was asked for; the model has 0 to {count - 1}")
    return layer % count


def only(layer: int) -> Callable[[int], range]:
    """The choice of one layer, counted from the end where negative; see `layer_at`."""

    def chosen(count: int) -> range:
        index = layer_at(count, layer)
        return range(index, index + 1)

    return chosen


def read(matrix: Tensor, rows: Tensor) -> Array:
    """(B, T) the rows of a matrix (B, T, T), weighted by `rows` (B, T)."""
    read: Array = torch.einsum("bq,bqk->bk", rows.to(matrix), matrix).double().cpu().numpy()
    return read


def rows_of(maps: GlobalMaps, readout: str) -> Tensor:
    """(B, T) the weight of every row, by a readout; raises ConfigurationError, EngineError."""
    if readout == "all":
        return maps.own
    if readout != "token":
        raise ConfigurationError(f"readout is 'token' or 'all', not {readout!r}")
    return maps.rows_read()


def explain_by_maps(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    method: MapMethod,
    *,
    name: str,
    unit: Unit = "score",
    readout: Readout = "token",
) -> BatchExplanation:
    """Explain every item of a batch by a method of attention maps.

    Args:
        model, batch, resolve: of every method; see `batch_explanation`.
        method: what is computed of the maps.
        name, unit: what is recorded of every attribution.
        readout: which rows of the first result (B, T, T) are the relevance, without `of_item`.

    Raises:
        ConfigurationError: a layer or a readout that does not exist.
        EngineError: a model without maps over all positions, or, for the readout `token`, one whose
            classifier pools its positions.
    """
    method = replace(method, reads=method.of_item is None and readout == "token")
    with global_maps(model, batch, method) as maps:
        rows = rows_of(maps, readout) if method.of_item is None else None

        def take(seed: Array, last: bool) -> SeedRelevance:
            results = maps.results(seed, last=last)
            if rows is not None:
                return SeedRelevance(read(results[0], rows))
            assert method.of_item is not None
            positions = np.zeros((len(batch.encoded), results[0].shape[-1]))
            for row, encoded in enumerate(batch.encoded):
                size = encoded.length if method.length is None else method.length
                positions[row, :size] = method.of_item(results, row, size).double().cpu().numpy()
            return SeedRelevance(positions)

        mark = CommonFields(name, "attention", unit, double=maps.double)
        if method.gradients or method.rules is not None:
            return explain_targets(batch, maps.logits, resolve, take, mark)
        same = take(np.zeros_like(maps.logits), True)
        return explain_targets(batch, maps.logits, resolve, lambda _seed, _last: same, mark)


def padded(model: LoadedModel, batch: Batch, length: int | None, variant: str) -> Batch:
    """The batch, at least `length` positions wide.

    Raises ConfigurationError for a variant that does not exist, and where a length is given to
    the paper's variant, to pictures, or is too small.
    """
    if variant not in ("paper", "authors"):
        raise ConfigurationError(f"variant is 'paper' or 'authors', not {variant!r}")
    if length is None:
        return batch
    if variant != "authors":
        raise ConfigurationError("padded_length changes the result of variant='authors' only")
    if not isinstance(model.encoder, TextEncoder):
        raise ConfigurationError("padded_length is for texts; nothing else is padded")
    longest = int(batch.lengths.max())
    if length < longest:
        raise ConfigurationError(
            f"padded_length {length} is less than the {longest} positions of an item"
        )
    return model.encoder.widened(batch, length)


def without_first(means: Sequence[Tensor], row: int, size: int) -> Tensor:
    """(T,) the first row of one map (B, T, T), its first entry 0: the authors' readout."""
    first = means[0][row, 0, :size].clone()
    first[0] = 0
    return first


def min_max(values: Tensor) -> Tensor:
    """Values from 0 to 1, as the authors scale; zeros where all are equal (they have NaN)."""
    span = values.max() - values.min()
    return torch.zeros_like(values) if span == 0 else (values - values.min()) / span


def explain_last(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: int = -1,
    readout: Readout = "token",
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """The mean over heads of one layer's attention, read at the classifier's row.

    Args:
        readout: `all` is A-Last of Ali et al. 2022.
        variant: `authors` is Chefer's baseline: the row of position 0, whose own entry is 0.

    Returns:
        Relevance (T,) or (rows, cols) in `score`; with the special positions it sums to 1.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, layer, readout, variant),
        layers=only(layer),
        compute=mean_heads,
        of_item=without_first if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method, readout=readout)


def explain_rollout(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    start_layer: int = 0,
    stop_layer: int | None = None,
    readout: Readout = "token",
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """The product over layers of (A + I) / 2, A the mean over heads; the same for every target.

    Abnar & Zuidema 2020, Eq. 1 (their 0.5 W + 0.5 I is what row normalisation of A + I gives).

    Args:
        variant: `authors` is Chefer's baseline: the row of position 0, whose own entry is 0.

    Returns:
        Relevance (T,) or (rows, cols) in `score`; with the special positions it sums to 1.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, start_layer, stop_layer, readout, variant),
        layers=partial(layers_from, start=start_layer, stop=stop_layer),
        compute=mean_heads if authors else lambda m: [rolled(mean_heads(m), normalise=True)],
        of_item=_rollout_of_authors if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method, readout=readout)


def rolled(layers: Sequence[Tensor], *, normalise: bool) -> Tensor:
    """(B, T, T) the product of I + layer, the last at the left; rows may be made to sum to 1."""
    identity = torch.eye(layers[0].shape[-1], dtype=layers[0].dtype, device=layers[0].device)
    joint: Tensor | None = None
    for layer in layers:
        step = layer + identity
        if normalise:
            step = step / step.sum(dim=-1, keepdim=True)
        joint = step if joint is None else step @ joint
    assert joint is not None, "at least one layer"
    return joint


def _rollout_of_authors(means: Sequence[Tensor], row: int, size: int) -> Tensor:
    own = [mean[row : row + 1, :size, :size] for mean in means]
    first = rolled(own, normalise=True)[0, 0].clone()
    first[0] = 0
    return first


def explain_gae(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    start_layer: int = 0,
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """R <- R + E_h[(dA * A)^+] R over the layers, from R = I (Chefer et al. 2021b, Eq. 5-6).

    Args:
        variant: `paper` takes the identity that R begins with off again, so that the position
            that is read has only what it attends to; `authors` leaves it, and reads position 0.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, start_layer, variant),
        layers=partial(layers_from, start=start_layer),
        compute=_gradient_means if authors else lambda m: [accumulated(_gradient_means(m))],
        gradients=True,
        of_item=_gae_of_authors if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method)


def _gradient_means(maps: Maps) -> list[Tensor]:
    """(B, T, T) of each layer, E_h[(dA * A)^+]."""
    return [
        (gradient * weights).clamp(min=0).mean(dim=1)
        for gradient, weights in zip(maps.gradients, maps.weights, strict=True)
    ]


def accumulated(layers: Sequence[Tensor]) -> Tensor:
    """(B, T, T) the product of I + layer, the last at the left, without the identity.

    (I + A) (I + S) - I = A + A S + S: what is added needs no difference of large numbers.
    """
    total = layers[0]
    for layer in layers[1:]:
        total = layer + layer @ total + total
    return total


def _gae_of_authors(layers: Sequence[Tensor], row: int, size: int) -> Tensor:
    first = accumulated([layer[row, :size, :size] for layer in layers])[0].clone()
    first[0] += 1
    return first


def explain_transformer_attribution(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    start_layer: int = 0,
    gradient: bool = True,
    only_block: int | None = None,
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """The product over blocks of I + E_h[(dA * R)^+], R the relevance of A by Chefer's rules.

    Chefer et al. 2021a, Eq. 13-14; their ablations (Table 3) are parameters.

    Args:
        start_layer: the first block, counted from 0 (their experiments on pictures use 1).
        gradient: False is their ablation without gradients: A in the place of dA. Under `authors`
            R stands alone, as in their released code.
        only_block: one block instead of the product; -1 is their block 1 (nearest to the output),
            1 their block B-1.
        variant: `paper` takes off the identity of the product; `authors` leaves it, normalises
            the rows of texts, and reads position 0, whose own entry they overwrite.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`.

    Raises:
        EngineError: an operator without a rule, and as every method of maps.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    if only_block is not None and start_layer:
        raise ConfigurationError("only_block is one block; leave start_layer out")
    recipe = MapMethod(
        key=(method, start_layer, gradient, only_block, variant),
        layers=partial(layers_from, start=start_layer) if only_block is None else only(only_block),
        compute=_relevance_means if authors else _attribution,
        gradients=gradient,
        rules=chefer_rules("chefer-lrp", model.default_at, variant=variant),
        of_item=partial(_last_of_rolled, normalise=model.modality == "text") if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method)


def _relevance_means(maps: Maps) -> list[Tensor]:
    """(B, T, T) of each layer, E_h[(dA * R)^+]; without gradients E_h[R^+]."""
    maps_by_layer = list(maps.relevance)
    if maps.gradients:
        maps_by_layer = [r * g for r, g in zip(maps_by_layer, maps.gradients, strict=True)]
    return [of_layer.clamp(min=0).mean(dim=1) for of_layer in maps_by_layer]


def _attribution(maps: Maps) -> list[Tensor]:
    factors = maps if maps.gradients else replace(maps, gradients=maps.weights)
    return [accumulated(_relevance_means(factors))]


def _last_of_rolled(means: Sequence[Tensor], row: int, size: int, *, normalise: bool) -> Tensor:
    own = [mean[row : row + 1, :size, :size] for mean in means]
    first = rolled(own, normalise=normalise)[0, 0].clone()
    first[0] = first.min()
    return first


def explain_partial_lrp(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: int = -1,
    gradient: bool = False,
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """The relevance of the last attention map, mean over heads, at the classifier's row.

    Voita et al. 2019, section 5.1, as the baseline of Chefer et al. 2021a: LRP with z+ whose
    sums are not rescaled, stopped at the map.

    Args:
        gradient: multiply by the gradient of the map (an ablation in the authors' code).
        variant: `authors` keeps the positive part only, and leaves position 0 out.

    Returns:
        Relevance (T,) or (rows, cols) in `unit_relevance`; with the gradient, in `score`.

    Raises:
        EngineError: an operator without a rule, and as every method of maps.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    rules = chefer_rules("chefer-lrp", model.default_at, variant=variant, baseline=True)
    recipe = MapMethod(
        key=(method, layer, gradient, variant),
        layers=only(layer),
        compute=partial(_relevance_mean, positive=authors),
        gradients=gradient,
        rules=rules,
        of_item=without_first if authors else None,
        length=padded_length,
    )
    return explain_by_maps(
        model, batch, resolve, recipe, name=method, unit="score" if gradient else "unit_relevance"
    )


def _relevance_mean(maps: Maps, *, positive: bool) -> list[Tensor]:
    """(B, T, T) the relevance of one layer, mean over heads."""
    (relevance,) = maps.relevance
    if maps.gradients:
        relevance = relevance * maps.gradients[0]
    return [(relevance.clamp(min=0) if positive else relevance).mean(dim=1)]


def explain_gradcam(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: int = -1,
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """ReLU of the mean over heads of w_h A_h, w_h the mean gradient of head h.

    Selvaraju et al. 2017, Eq. 1-2. The channels are the heads of the last layer, the feature map
    is the row that the classifier reads (of the class token) without that token's own column
    (Chefer et al. 2021a, section 4 and appendix A), which gets no relevance.

    Args:
        variant: `authors` takes the weights of texts over the whole map, scales the map from 0 to 1
            and leaves position 0 out; where all entries are equal their code gives NaN, and this 0.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, layer, variant),
        layers=only(layer),
        compute=(lambda maps: [maps.weights[0], maps.gradients[0]]) if authors else _cam,
        gradients=True,
        of_item=partial(_scaled_cam, pictures=model.modality == "image") if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method)


def _cam(maps: Maps) -> list[Tensor]:
    """(B, T, T) whose row q is the map of position q over each item's other own positions."""
    (weights,), (gradient,) = maps.weights, maps.gradients
    own = maps.own.to(gradient)
    others = own[:, None] * (1 - torch.eye(own.shape[1]).to(gradient))
    # attention to padding is 0, but has a gradient
    share = (gradient * others[:, None]).sum(dim=-1) / others.sum(dim=-1).clamp(min=1)[:, None]
    return [(weights * share[..., None]).mean(dim=1).clamp(min=0) * others]


def _scaled_cam(maps: Sequence[Tensor], row: int, size: int, *, pictures: bool) -> Tensor:
    weights, gradient = (map_[row, :, :size, :size] for map_ in maps)
    if pictures:  # over the patches alone
        weights, gradient = weights[:, :1, 1:], gradient[:, :1, 1:]
    share = gradient.mean(dim=(1, 2), keepdim=True)
    scaled = min_max((weights * share).mean(dim=0).clamp(min=0))[0]
    scaled = scaled if pictures else scaled[1:]
    return torch.cat([scaled.new_zeros(1), scaled])


def explain_flow(
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
