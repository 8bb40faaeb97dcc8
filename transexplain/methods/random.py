"""Random relevance: the baseline that every method should beat."""

from collections.abc import Callable

import numpy as np
import torch

from transexplain.methods.at_input_layer import InputLayerForward, is_double
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
    generator_of,
)
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import own_positions


def explain(
    model: LoadedModel, batch: Batch, resolve: Resolve, *, method: str, seed: int = 0
) -> BatchExplanation:
    """Standard normal numbers, the same for every target of an item.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        seed: with the item's id it decides the numbers, whatever the batch.

    Returns:
        Relevance (T,) or (rows, cols) in `score`; 0 at special positions.
    """
    passed = InputLayerForward.of(model, batch, None)
    mark = CommonFields(method=method, at="inputs", unit="score", double=is_double(passed.start))
    return explain_targets(batch, passed.logits, resolve, _draws(batch, seed), mark)


def _draws(batch: Batch, seed: int) -> Callable[[Array, bool], SeedRelevance]:
    width = max(encoded.length for encoded in batch.encoded)
    positions = np.zeros((len(batch.encoded), width))
    for row, encoded in enumerate(batch.encoded):
        content = own_positions(encoded.features, width)
        draws = torch.randn(
            int(content.sum()),
            generator=generator_of(seed, encoded.item.id),
            dtype=torch.float64,
        )
        positions[row, content] = draws.numpy()
    return lambda _seed, _last: SeedRelevance(positions)
