"""Attention rollout: Abnar & Zuidema 2020."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.global_maps import (
    Readout,
    Variant,
    explain_by_maps,
    layers_from,
    mean_heads,
    padded,
)
from transexplain.methods.map_passes import MapMethod, Maps
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
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
        model, batch, resolve, method: of every method; see `batch_explanation`.
        start_layer, stop_layer: layers from 0, the last exclusive; default: all.
        readout: `token` is the row of the position that the classifier reads, `all` the sum over
            rows (Ali et al. 2022).
        variant: `authors` is Chefer's baseline: the row of position 0, whose own entry is 0.
        padded_length: T of the authors' code.

    Returns:
        Relevance (T,) or (rows, cols) in `score`; with the special positions it sums to 1.

    Raises:
        EngineError: a model without such maps, or whose classifier pools its positions.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, start_layer, stop_layer, readout, variant),
        layers=partial(layers_from, start=start_layer, stop=stop_layer),
        compute=mean_heads if authors else _rolled,
        reads=not authors and readout == "token",
        of_item=_authors if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method, readout=readout)


def _rolled(maps: Maps) -> list[Tensor]:
    return [rolled(mean_heads(maps), normalise=True)]


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


def _authors(means: Sequence[Tensor], row: int, size: int) -> Tensor:
    own = [mean[row : row + 1, :size, :size] for mean in means]
    first = rolled(own, normalise=True)[0, 0].clone()
    first[0] = 0
    return first
