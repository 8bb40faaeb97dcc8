"""Grad-CAM over the hidden units behind one layer of a transformer.

Selvaraju et al. 2017, Eq. 1 and 2, with hidden units as feature maps. With h (T, D) the output of
the layer and y the explained sum of logits, hidden unit d weighs a_d = mean over t of dy/dh[t, d],
and the relevance of position t is ReLU(sum_d a_d h[t, d]). The mean runs over all positions of
the item, special ones included (a class token carries the whole gradient where only it is read),
and never over padding.

With `weights="local"` it is the Grad-CAM of Hou and Castanon 2023, equation 1: ReLU(sum_d
dy/dh[t, d] h[t, d]), every position with its own gradient. `layer="embeddings"` is their layer 0,
and their layer l is `layer` l - 1 here. With `weights="lrp"` the gradient is that of the composite
`lrp`, so that position t has the relevance which LRP gives it behind the layer.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from transexplain.engine.composites import composite
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import as_array, is_double
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.models.hidden_states import (
    EMBEDDINGS,
    LayerName,
    Layers,
    named,
    run_layers,
)
from transexplain.models.input_layer import Taps
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import own_positions

Weights = Literal["pooled", "local", "lrp"]


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: LayerName = None,
    weights: Weights = "pooled",
    relu: bool = True,
) -> BatchExplanation:
    """Grad-CAM at one layer; see the module.

    Args:
        model, batch, resolve, method: a model with a repeated layer list, B items.
        layer: 0..L-1, or from the end with -1 the last; `embeddings`: what the first layer takes.
            Default: the last but one (with one layer, that), for most classifiers read the output
            of the last at the class token alone, so what it holds elsewhere has no part in the
            logits.
        weights: `pooled`, `local` or `lrp`, as above; relevance of the last two is 0 where the
            model reads nothing behind the layer.
        relu: False keeps what the definition leaves out: evidence against the target.

    Returns relevance (T,) or (rows, cols) in `score`. Raises ConfigurationError for a layer that
    is not there or has other positions than the item.
    """
    layers, gradient_of = layers_with(model, batch, weights)
    index = layers.index(layer)

    def take(seed: Array, last: bool) -> SeedRelevance:
        gradient = gradient_of(index, torch.from_numpy(seed), last=last)
        scores = class_activation(layers, index, gradient, weights=weights)
        positions = scores.clamp(min=0) if relu else scores
        return SeedRelevance(
            positions.cpu().numpy(), notes=layer_notes(batch, gradient, scores, index)
        )

    mark = mark_of(layers, index, method)
    return explain_targets(batch, as_array(layers.logits), resolve, take, mark)


def mark_of(layers: Layers, layer: int, method: str) -> CommonFields:
    """The common fields of the attributions of a pass by layers."""
    at = "encoder" if layer == EMBEDDINGS else named(layer)
    return CommonFields(method=method, at=at, unit="score", double=is_double(layers.logits))


def layers_with(
    model: LoadedModel, batch: Batch, weights: Weights
) -> tuple[Layers, Callable[..., Tensor]]:
    """One forward pass, and what gives the gradient of `weights`: see `Layers.gradient`.

    Raises ConfigurationError for a word that is none of the weightings, EngineError where `lrp`
    meets an operator without a rule.
    """
    if weights not in get_args(Weights):
        raise ConfigurationError(
            f"weights is {' or '.join(map(repr, get_args(Weights)))}, not {weights!r}"
        )
    if weights != "lrp":
        layers = run_layers(model, batch)
        return layers, layers.gradient
    passed: list[Propagation] = []

    def run(forward: Callable[[Taps], Tensor]) -> Tensor:
        items = len(batch.encoded)
        passed.append(propagate(forward, composite("lrp"), items, module=model.module))
        return passed[0].logits

    layers = run_layers(model, batch, run)

    def gradient(layer: int, seed: Tensor, *, last: bool = False) -> Tensor:
        passed[0].book.start(keep=False)  # the ledger is of the input layer alone
        return layers.gradient(layer, seed, last=last)

    return layers, gradient


def class_activation(
    layers: Layers, layer: int, gradient: Tensor, *, weights: Weights = "pooled"
) -> Tensor:
    """(B, T) float64, signed: hidden vectors times the weights that `gradient` (B, T, D) gives."""
    hidden, slope = layers.hidden(layer).double(), gradient.double()
    if weights != "pooled":
        return (slope * hidden).sum(dim=-1)
    lengths = layers.batch.lengths.to(slope.device)
    own = torch.arange(slope.shape[1], device=slope.device) < lengths[:, None]
    pooled = (slope * own[:, :, None]).sum(dim=1) / lengths[:, None]
    return torch.einsum("btd,bd->bt", hidden, pooled)


def layer_notes(
    batch: Batch, gradient: Tensor, scores: Tensor, layer: int
) -> list[tuple[str, ...]]:
    """Per item, notes on a map without relevance; see `gradient` (B, T, D), `scores` (B, T).

    That no gradient stands at its content behind the layer; that no score is above 0.
    """
    moved, above = ((part > 0).cpu().numpy() for part in (gradient.abs().amax(dim=-1), scores))
    notes = []
    for row, encoded in enumerate(batch.encoded):
        of_item = []
        if not np.any(moved[row, own_positions(encoded.features, moved.shape[1])]):
            of_item.append(f"the logits read {named(layer)} at special positions only")
        if not np.any(above[row, : encoded.length]):
            of_item.append(f"no position of {named(layer)} speaks for the target")
        notes.append(tuple(of_item))
    return notes
