"""Generic attention explainability of encoders: Chefer et al. 2021b."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.global_maps import (
    GlobalMaps,
    Variant,
    item_by_item,
    layers_from,
    padded,
    read,
)
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
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
        model, batch, resolve, method: of every method; see `batch_explanation`.
        start_layer: the first layer, counted from 0.
        variant: `paper` takes the identity that R begins with off again, so that the position
            that is read has only what it attends to; `authors` leaves it, and reads position 0.
        padded_length: T of the authors' code.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`.

    Raises:
        EngineError: a model without such maps, or whose classifier pools its positions.
    """
    batch = padded(model, batch, padded_length, variant)
    maps = GlobalMaps.of(model, batch)
    layers = layers_from(maps.layers, start_layer)
    rows = None if variant == "authors" else maps.rows_read()

    def take(seed: Array, last: bool) -> SeedRelevance:
        gradients = maps.gradients(seed, layers, last=last)
        found = [
            (gradient * maps.weights(layer)).clamp(min=0).mean(dim=1)
            for gradient, layer in zip(gradients, layers, strict=True)
        ]
        if rows is None:
            return SeedRelevance(_authors(batch, found, padded_length))
        return SeedRelevance(read(accumulated(found), rows))

    mark = CommonFields(method, "attention", "score", double=maps.weights(0).dtype == torch.float64)
    return explain_targets(batch, maps.logits, resolve, take, mark)


def accumulated(layers: Sequence[Tensor]) -> Tensor:
    """(B, T, T) the product of I + layer, the last at the left, without the identity.

    (I + A) (I + S) - I = A + A S + S: what is added needs no difference of large numbers.
    """
    total = layers[0]
    for layer in layers[1:]:
        total = layer + layer @ total + total
    return total


def _authors(batch: Batch, layers: Sequence[Tensor], length: int | None) -> Array:
    def of_item(row: int, size: int) -> Tensor:
        found = accumulated([layer[row, :size, :size] for layer in layers])[0].clone()
        found[0] += 1
        return found

    return item_by_item(batch, length, layers[0].shape[-1], of_item)
