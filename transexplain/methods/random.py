"""Random relevance: the floor that every method must stand above."""

from collections.abc import Callable

import numpy as np
import torch

from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.methods.leaf_forward import LeafForward, is_double
from transexplain.methods.records import Array, Mark, SeedRelevance, explain_targets
from transexplain.methods.seeds import generator_of
from transexplain.models.base import Batch, LoadedModel
from transexplain.types import own_positions


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
    passed = LeafForward.of(model, batch, None)
    mark = Mark(method=method, at="inputs", unit="score", double=is_double(passed.start))
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
