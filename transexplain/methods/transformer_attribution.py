"""Transformer attribution: Chefer et al. 2021a, Transformer Interpretability Beyond Attention."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.gae import accumulated
from transexplain.methods.global_maps import (
    Variant,
    explain_by_maps,
    layers_from,
    only,
    padded,
)
from transexplain.methods.map_passes import MapMethod, Maps
from transexplain.methods.relevance import chefer_rules
from transexplain.methods.rollout import rolled
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
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
        model, batch, resolve, method: of every method; see `batch_explanation`.
        start_layer: the first block, counted from 0 (their experiments on pictures use 1).
        gradient: False is their ablation without gradients: A in the place of dA. Under `authors`
            R stands alone, as in their released code.
        only_block: one block instead of the product; -1 is their block 1 (nearest to the output),
            1 their block B-1.
        variant: `paper` takes off the identity of the product; `authors` leaves it, normalises
            the rows of texts, and reads position 0, whose own entry they overwrite.
        padded_length: T of the authors' code.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`.

    Raises:
        EngineError: an operator without a rule, a model without such maps, or one whose
            classifier pools its positions.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    if only_block is not None and start_layer:
        raise ConfigurationError("only_block is one block; leave start_layer out")
    recipe = MapMethod(
        key=(method, start_layer, gradient, only_block, variant),
        layers=partial(layers_from, start=start_layer) if only_block is None else only(only_block),
        compute=_means if authors else _product,
        gradients=gradient,
        rules=chefer_rules("chefer-lrp", model.default_at, variant=variant),
        reads=not authors,
        of_item=partial(_authors, normalise=model.modality == "text") if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method)


def _means(maps: Maps) -> list[Tensor]:
    """(B, T, T) of each layer, E_h[(dA * R)^+]; without gradients E_h[R^+]."""
    maps_by_layer = list(maps.relevance)
    if maps.gradients:
        maps_by_layer = [r * g for r, g in zip(maps_by_layer, maps.gradients, strict=True)]
    return [of_layer.clamp(min=0).mean(dim=1) for of_layer in maps_by_layer]


def _product(maps: Maps) -> list[Tensor]:
    factors = maps if maps.gradients else replace(maps, gradients=maps.weights)
    return [accumulated(_means(factors))]


def _authors(means: Sequence[Tensor], row: int, size: int, *, normalise: bool) -> Tensor:
    own = [mean[row : row + 1, :size, :size] for mean in means]
    first = rolled(own, normalise=normalise)[0, 0].clone()
    first[0] = first.min()
    return first
