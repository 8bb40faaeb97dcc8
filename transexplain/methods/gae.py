"""Generic attention explainability of encoders: Chefer et al. 2021b."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.global_maps import (
    Variant,
    explain_by_maps,
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
        of_item=_authors if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method)


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


def _authors(layers: Sequence[Tensor], row: int, size: int) -> Tensor:
    first = accumulated([layer[row, :size, :size] for layer in layers])[0].clone()
    first[0] += 1
    return first
