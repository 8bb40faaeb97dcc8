"""Partial LRP: the relevance of one layer's attention (Voita et al. 2019)."""

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
    RelevanceMaps,
    Variant,
    item_by_item,
    layer_at,
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
    layer: int = -1,
    gradient: bool = False,
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """The relevance of the last attention map, mean over heads, at the classifier's row.

    Voita et al. 2019, section 5.1, as the baseline of Chefer et al. 2021a: LRP with z+ whose
    sums are not rescaled, stopped at the map.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        layer: counted from 0, or from the end where negative.
        gradient: multiply by the gradient of the map (an ablation in the authors' code).
        variant: `authors` keeps the positive part only, and leaves position 0 out.
        padded_length: T of the authors' code.

    Returns:
        Relevance (T,) or (rows, cols) in `unit_relevance`; with the gradient, in `score`.

    Raises:
        EngineError: an operator without a rule, a model without such maps, or one whose
            classifier pools its positions.
    """
    batch = padded(model, batch, padded_length, variant)
    maps = GlobalMaps.of(model, batch)
    relevance = RelevanceMaps.of(model, batch, maps, variant=variant, baseline=True)
    chosen = layer_at(maps.layers, layer)
    rows = None if variant == "authors" else maps.rows_read()

    def take(seed: Array, last: bool) -> SeedRelevance:
        (found,) = relevance.relevance(seed, [chosen], last=last)
        if gradient:
            found = found * maps.gradients(seed, [chosen], last=last)[0]
        if rows is None:
            return SeedRelevance(_authors(batch, found.clamp(min=0).mean(dim=1), padded_length))
        return SeedRelevance(read(found.mean(dim=1), rows))

    double = maps.weights(0).dtype == torch.float64
    mark = CommonFields(
        method, "attention", "score" if gradient else "unit_relevance", double=double
    )
    return explain_targets(batch, maps.logits, resolve, take, mark)


def _authors(batch: Batch, mean: Tensor, length: int | None) -> Array:
    def of_item(row: int, size: int) -> Tensor:
        found = mean[row, 0, :size].clone()
        found[0] = 0
        return found

    return item_by_item(batch, length, mean.shape[-1], of_item)
