"""Saliency: the size of the gradient at every position, without its direction."""

from typing import Literal

import torch
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import InputLayerForward, explain_at_input_layer, several
from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.relevance import InputLayer
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    norm: Literal["l2", "l1"] = "l2",
) -> BatchExplanation:
    """The norm of the gradient over the hidden axis (Simonyan et al. 2014, section 3).

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        at: the input layer; default: the input of the first block, where there is one.
        norm: `l2`, or `l1`: the sum of sizes. (The paper takes the largest colour channel.)

    Returns:
        Relevance (T,) or (rows, cols), not negative, in `score`.

    Raises:
        ConfigurationError: an unknown norm.
    """
    if norm not in ("l2", "l1"):
        raise ConfigurationError(f"norm is 'l2' or 'l1', not {norm!r}")
    passed = InputLayerForward.of(model, batch, at)

    def sizes(seed: Tensor) -> Tensor:
        rows, found = several(passed, 1), torch.zeros_like(passed.start, dtype=torch.float64)
        for part in passed.chunks(rows):
            gradients = passed.gradients(passed.start[rows[part]], rows[part], seed).double()
            found[rows[part]] = gradients.square() if norm == "l2" else gradients.abs()
        return found

    finish = torch.sqrt if norm == "l2" else None
    return explain_at_input_layer(
        passed, resolve, sizes, method=method, unit="score", finish=finish
    )
