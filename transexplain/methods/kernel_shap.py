"""Kernel SHAP: Shapley values as the weights of one constrained linear regression."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch

from transexplain.methods.at_input_layer import check_count
from transexplain.methods.batch_explanation import Array, BatchExplanation, Resolve, generator_of
from transexplain.methods.method_table import default_samples
from transexplain.methods.presence import (
    Baseline,
    ItemEstimate,
    Masks,
    Over,
    Presence,
    explain_presence,
)
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    samples: int | None = None,
    seed: int = 0,
    baseline: Baseline = "auto",
    over: Over = "tokens",
) -> BatchExplanation:
    """Shapley values by weighted least squares (Lundberg & Lee 2017, Theorem 2).

    The two coalitions of infinite weight are constraints: relevance sums to the logit minus the
    logit with every position absent, exactly. Sizes of coalitions are taken whole from the
    smallest and largest inwards while the samples last, the rest is drawn with its complements.
    Where the samples hold all coalitions the result is the Shapley value itself.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        samples: coalitions of each item, besides all and none; default: 25 for each position, as
            many as `shapley-sampling` asks for, but at least 512.
        seed: with the item's id it decides the coalitions, whatever the batch.
        baseline: what absent positions are replaced by; see `presence.absence`.
        over: `tokens` (patches of a picture) or `words`.

    Returns relevance in logits. Raises ConfigurationError for wrong parameters.
    """
    if samples is not None:
        check_count("samples", samples)

    def estimates(presence: Presence) -> Iterator[ItemEstimate]:
        features = presence.features
        for items in presence.groups((samples or default_samples(max(features))) + 1):
            chosen = [
                coalitions(
                    features[row],
                    samples or default_samples(features[row]),
                    generator_of(seed, presence.batch.encoded[row].item.id, method),
                )
                for row in items
            ]
            masks_and_nothing = [np.insert(masks, 0, False, axis=0) for masks, _ in chosen]
            for row, (masks, kernel), answer in zip(
                items, chosen, presence.logits_of(items, masks_and_nothing), strict=True
            ):
                nothing = answer[0]
                total = presence.logits[row] - nothing
                weights, certain = regression(masks, answer[1:] - nothing, kernel, total)
                yield ItemEstimate(weights, nothing, "" if certain else _FEW)

    return explain_presence(
        model, batch, resolve, estimates, method=method, baseline=baseline, over=over
    )


_FEW = "too few samples for one answer: of all regressions that fit, the evenest was taken"


def coalitions(features: int, samples: int, generator: torch.Generator) -> tuple[Masks, Array]:
    """Coalitions (N, F) and their weights (N,), neither all nor none among them.

    N is `samples`, or all 2^F - 2 where they are fewer.
    """
    masks, weights = np.zeros((0, features), dtype=bool), np.zeros(0)
    size, left = 1, samples
    masses = _masses(features)
    while masses:
        whole = math.comb(features, size) * (1 if 2 * size == features else 2)
        if left * masses[0] < whole * sum(masses):
            drawn = _drawn(features, size, left, generator)
            each = np.full(len(drawn), sum(masses) / max(1, len(drawn)))
            return np.concatenate([masks, drawn]), np.concatenate([weights, each])
        taken = _all_of(features, size)
        masks = np.concatenate([masks, taken])
        weights = np.concatenate([weights, np.full(whole, masses.pop(0) / whole)])
        size, left = size + 1, left - whole
    return masks, weights


def _masses(features: int) -> list[float]:
    """Return what all coalitions of size s or F - s weigh together, for s = 1 to F / 2."""
    return [
        (features - 1) / (size * (features - size)) * (1 if 2 * size == features else 2)
        for size in range(1, features // 2 + 1)
    ]


def _all_of(features: int, size: int) -> Masks:
    """Every coalition of `size` features, and every one that lacks as many."""
    chosen = np.array(list(itertools.combinations(range(features), size)))
    masks = np.zeros((len(chosen), features), dtype=bool)
    np.put_along_axis(masks, chosen, True, axis=1)
    return masks if 2 * size == features else np.concatenate([masks, ~masks])


def _drawn(features: int, smallest: int, samples: int, generator: torch.Generator) -> Masks:
    """(`samples`, F) coalitions of `smallest` to F / 2 features, each before its complement."""
    chances = torch.tensor(_masses(features)[smallest - 1 :], dtype=torch.float64)
    pairs = -(-samples // 2)
    sizes = smallest + torch.multinomial(chances, pairs, replacement=True, generator=generator)
    keys = torch.rand(pairs, features, generator=generator, dtype=torch.float64)
    some = (keys.argsort(dim=1).argsort(dim=1) < sizes[:, None]).numpy()
    masks: Masks = np.stack([some, ~some], axis=1).reshape(-1, features)[:samples]
    return masks


def regression(masks: Masks, rise: Array, kernel: Array, total: Array) -> tuple[Array, bool]:
    """Weights (F, K) that sum to `total` (K,), and whether they are the only ones.

    They explain `rise` (N, K) by `masks` (N, F), weighted by `kernel` (N,), in float64. The even
    share of `total` is taken out first; what is left sums to 0, as its smallest solution does.
    """
    features = masks.shape[1]
    even = np.repeat(total[None] / max(1, features), features, axis=0)
    if features < 2:
        return even, True
    design = masks - masks.mean(axis=1, keepdims=True)
    root = np.sqrt(kernel)[:, None]
    rest, _, rank, _ = np.linalg.lstsq(root * design, root * (rise - masks @ even), rcond=None)
    return even + rest, bool(rank == features - 1)
