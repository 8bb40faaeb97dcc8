"""Grad-CAM over the attention heads of one layer: a baseline of Chefer et al. 2021a."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.global_maps import (
    Variant,
    explain_by_maps,
    min_max,
    only,
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
    layer: int = -1,
    variant: Variant = "paper",
    padded_length: int | None = None,
) -> BatchExplanation:
    """ReLU of the mean over heads of w_h A_h, w_h the mean gradient of head h.

    Selvaraju et al. 2017, Eq. 1-2. The channels are the heads of the last layer, the feature map
    is the row that the classifier reads (of the class token) without that token's own column
    (Chefer et al. 2021a, section 4 and appendix A), which gets no relevance.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        layer: counted from 0, or from the end where negative.
        variant: `authors` takes the weights of texts over the whole map, scales the map from 0 to 1
            and leaves position 0 out; where all entries are equal their code gives NaN, and this 0.
        padded_length: T of the authors' code.

    Returns:
        Relevance (T,) or (rows, cols), none negative, in `score`.

    Raises:
        EngineError: a model without such maps, or whose classifier pools its positions.
    """
    batch = padded(model, batch, padded_length, variant)
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, layer, variant),
        layers=only(layer),
        compute=(lambda maps: [maps.weights[0], maps.gradients[0]]) if authors else _cam,
        gradients=True,
        reads=not authors,
        of_item=partial(_authors, pictures=model.modality == "image") if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method)


def _cam(maps: Maps) -> list[Tensor]:
    """(B, T, T) whose row q is the map of position q over each item's other own positions."""
    (weights,), (gradient,) = maps.weights, maps.gradients
    own = maps.own.to(gradient)
    others = own[:, None] * (1 - torch.eye(own.shape[1]).to(gradient))
    # attention to padding is 0, but has a gradient
    share = (gradient * others[:, None]).sum(dim=-1) / others.sum(dim=-1).clamp(min=1)[:, None]
    return [(weights * share[..., None]).mean(dim=1).clamp(min=0) * others]


def _authors(maps: Sequence[Tensor], row: int, size: int, *, pictures: bool) -> Tensor:
    weights, gradient = (map_[row, :, :size, :size] for map_ in maps)
    if pictures:  # over the patches alone
        weights, gradient = weights[:, :1, 1:], gradient[:, :1, 1:]
    share = gradient.mean(dim=(1, 2), keepdim=True)
    scaled = min_max((weights * share).mean(dim=0).clamp(min=0))[0]
    scaled = scaled if pictures else scaled[1:]
    return torch.cat([scaled.new_zeros(1), scaled])
