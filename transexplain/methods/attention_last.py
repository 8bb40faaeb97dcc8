"""Attention of one layer, by default the last, as an explanation: a common baseline."""

from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.global_maps import (
    Readout,
    Variant,
    explain_by_maps,
    mean_heads,
    only,
    padded,
    without_first,
)
from transexplain.methods.map_passes import MapMethod
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
    authors = variant == "authors"
    recipe = MapMethod(
        key=(method, layer, readout, variant),
        layers=only(layer),
        compute=mean_heads,
        reads=not authors and readout == "token",
        of_item=without_first if authors else None,
        length=padded_length,
    )
    return explain_by_maps(model, batch, resolve, recipe, name=method, readout=readout)
