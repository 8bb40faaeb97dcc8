"""Attention of one layer, by default the last, as an explanation: a common baseline."""

import torch
from torch import Tensor

from transexplain.methods.batch_explanation import (
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.global_maps import (
    GlobalMaps,
    Readout,
    Variant,
    item_by_item,
    layer_at,
    padded,
    read,
    rows_of,
)
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
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
        model, batch, resolve, method: of every method; see `batch_explanation`.
        layer: counted from 0, or from the end where negative.
        readout: `token` is the row of the position that the classifier reads, `all` the sum over
            rows (A-Last of Ali et al. 2022).
        variant: `authors` is Chefer's baseline: the row of position 0, whose own entry is 0.
        padded_length: T of the authors' code.

    Returns:
        Relevance (T,) or (rows, cols) in `score`; with the special positions it sums to 1.

    Raises:
        EngineError: a model without such maps, or whose classifier pools its positions.
    """
    batch = padded(model, batch, padded_length, variant)
    maps = GlobalMaps.of(model, batch)
    mean = maps.weights(layer_at(maps.layers, layer)).mean(dim=1)

    def of_item(row: int, size: int) -> Tensor:
        found = mean[row, 0, :size].clone()
        found[0] = 0
        return found

    if variant == "authors":
        positions = item_by_item(batch, padded_length, mean.shape[-1], of_item)
    else:
        positions = read(mean, rows_of(maps, readout))
    mark = CommonFields(method, "attention", "score", double=mean.dtype == torch.float64)
    return explain_targets(
        batch, maps.logits, resolve, lambda _seed, _last: SeedRelevance(positions), mark
    )
