"""How explanations are read off attention maps: layers, rows, the authors' readouts."""

from collections.abc import Callable, Sequence
from typing import Literal

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
