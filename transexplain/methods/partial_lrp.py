"""Partial LRP: the relevance of one layer's attention (Voita et al. 2019)."""

from functools import partial

from torch import Tensor

from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.global_maps import (
    Variant,
    explain_by_maps,
    only,
    padded,
    without_first,
)
from transexplain.methods.map_passes import MapMethod, Maps
from transexplain.methods.relevance import chefer_rules
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
    authors = variant == "authors"
    rules = chefer_rules("chefer-lrp", model.default_at, variant=variant, baseline=True)
    recipe = MapMethod(
        key=(method, layer, gradient, variant),
        layers=only(layer),
        compute=partial(_mean, positive=authors),
        gradients=gradient,
        rules=rules,
        reads=not authors,
        of_item=without_first if authors else None,
        length=padded_length,
    )
    return explain_by_maps(
        model, batch, resolve, recipe, name=method, unit="score" if gradient else "unit_relevance"
    )


def _mean(maps: Maps, *, positive: bool) -> list[Tensor]:
    """(B, T, T) the relevance of one layer, mean over heads."""
    (relevance,) = maps.relevance
    if maps.gradients:
        relevance = relevance * maps.gradients[0]
    return [(relevance.clamp(min=0) if positive else relevance).mean(dim=1)]
