"""Generic attention explainability of encoders: Chefer et al. 2021b."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from transexplain.methods.batch_explanation import Array, BatchExplanation, Resolve
from transexplain.methods.global_maps import (
    Variant,
    explain_by_maps,
    item_by_item,
    layers_from,
    padded,
)
from transexplain.methods.map_passes import MapMethod, Maps
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
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, start_layer, variant),
        layers=partial(layers_from, start=start_layer),
        compute=_means if authors else _product,
        gradients=True,
        reads=not authors,
    )
    finish = partial(_authors, batch, length=padded_length) if authors else None
    return explain_by_maps(model, batch, resolve, recipe, name=method, finish=finish)


def _means(maps: Maps) -> list[Tensor]:
    """(B, T, T) of each layer, E_h[(dA * A)^+]."""
    return [
        (gradient * weights).clamp(min=0).mean(dim=1)
        for gradient, weights in zip(maps.gradients, maps.weights, strict=True)
    ]


def _product(maps: Maps) -> list[Tensor]:
    return [accumulated(_means(maps))]


def accumulated(layers: Sequence[Tensor]) -> Tensor:
    """(B, T, T) the product of I + layer, the last at the left, without the identity.

    (I + A) (I + S) - I = A + A S + S: what is added needs no difference of large numbers.
    """
    total = layers[0]
    for layer in layers[1:]:
        total = layer + layer @ total + total
    return total


def _authors(batch: Batch, layers: Sequence[Tensor], *, length: int | None) -> Array:
    def of_item(row: int, size: int) -> Tensor:
        authors = accumulated([layer[row, :size, :size] for layer in layers])[0].clone()
        authors[0] += 1
        return authors

    return item_by_item(batch, length, layers[0].shape[-1], of_item)
