"""Transformer attribution: Chefer et al. 2021a, Transformer Interpretability Beyond Attention."""

from collections.abc import Sequence

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
from transexplain.methods.gae import accumulated
from transexplain.methods.global_maps import (
    GlobalMaps,
    RelevanceMaps,
    Variant,
    item_by_item,
    layer_at,
    layers_from,
    padded,
    read,
)
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
        gradient: False leaves dA out.
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
    maps = GlobalMaps.of(model, batch)
    relevance = RelevanceMaps.of(model, batch, maps, variant=variant, baseline=False)
    layers = _chosen(maps.layers, start_layer, only_block)
    rows = None if variant == "authors" else maps.rows_read()

    def take(seed: Array, last: bool) -> SeedRelevance:
        found = relevance.relevance(seed, layers, last=last)
        if gradient:
            found = [
                r * g for r, g in zip(found, maps.gradients(seed, layers, last=last), strict=True)
            ]
        means = [of_layer.clamp(min=0).mean(dim=1) for of_layer in found]
        if rows is None:
            normalise = model.modality == "text"
            return SeedRelevance(_authors(batch, means, padded_length, normalise=normalise))
        return SeedRelevance(read(accumulated(means), rows))

    mark = CommonFields(method, "attention", "score", double=maps.weights(0).dtype == torch.float64)
    return explain_targets(batch, maps.logits, resolve, take, mark)


def _chosen(count: int, start: int, only: int | None) -> range:
    if only is None:
        return layers_from(count, start)
    if start:
        raise ConfigurationError("only_block is one block; leave start_layer out")
    block = layer_at(count, only)
    return range(block, block + 1)


def _authors(
    batch: Batch, means: Sequence[Tensor], length: int | None, *, normalise: bool
) -> Array:
    def of_item(row: int, size: int) -> Tensor:
        own = [mean[row : row + 1, :size, :size] for mean in means]
        found = rolled(own, normalise=normalise)[0, 0].clone()
        found[0] = found.min()
        return found

    return item_by_item(batch, length, means[0].shape[-1], of_item)
