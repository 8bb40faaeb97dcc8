"""Random relevance: the baseline that every method should beat."""

from dataclasses import replace

import numpy as np
import torch

from transexplain.methods.at_input_layer import InputLayerForward, is_double
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Features,
    Resolve,
    SeedRelevance,
    explain_targets,
    generator_of,
    split,
)
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import Attribution, own_positions


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
    width = max(encoded.length for encoded in batch.encoded)
    rows = [_drawn(entry.features, width, seed, entry.item.id) for entry in batch.encoded]
    same = SeedRelevance(np.stack(rows))
    return explain_targets(batch, passed.logits, resolve, lambda _seed, _last: same, mark)


def _drawn(features: Features, width: int, seed: int, item_id: str) -> Array:
    """(`width`,) the numbers of one item; 0 at special positions."""
    positions = np.zeros(width)
    content = own_positions(features, width)
    generator = generator_of(seed, item_id)
    drawn = torch.randn(int(content.sum()), generator=generator, dtype=torch.float64)
    positions[content] = drawn.numpy()
    return positions


def redrawn(attribution: Attribution, seed: int) -> Attribution:
    """What `explain` gives in the place of `one`, an attribution of its own, for another seed.

    No forward pass is needed for it. A text in windows: see `redrawn_in_windows`.
    """
    features = attribution.features
    length = attribution.relevance.size + len(attribution.prefix_relevance)
    positions = _drawn(features, length, seed, attribution.item_id).astype(
        attribution.relevance.dtype
    )
    return replace(attribution, relevance=split(positions, features)[0].copy())
