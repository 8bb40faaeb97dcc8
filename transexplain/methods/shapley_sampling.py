"""Shapley values by sampled permutations: what a position adds to those before it."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.methods.at_input_layer import check_count
from transexplain.methods.batch_explanation import Array, BatchExplanation, Resolve, generator_of
from transexplain.methods.presence import (
    Baseline,
    ItemEstimate,
    Masks,
    Over,
    Presence,
    explain_presence,
)
from transexplain.models.loaded_model import Batch, LoadedModel

Permutations = NDArray[np.int64]


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    samples: int = 25,
    antithetic: bool = False,
    seed: int = 0,
    baseline: Baseline = "auto",
    over: Over = "tokens",
) -> BatchExplanation:
    """The mean gain of a position over random orders (Castro et al. 2009, ApproShapley).

    The same as Strumbelj & Kononenko 2010, Algorithm 1, with one order for all positions. The
    relevance sums to the logit minus the logit with every position absent, exactly. It is the
    Shapley value itself where the orders are so few that all are walked.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        samples: orders of each item.
        antithetic: every second order is the reverse of the one before (Mitchell et al. 2022):
            exact where no more than two positions interact.
        seed: with the item's id it decides the orders, whatever the batch.
        baseline: what absent positions are replaced by; see `presence.absence`.
        over: `tokens` (patches of a picture) or `words`.

    Returns relevance in logits. Raises ConfigurationError for wrong parameters.
    """
    check_count("samples", samples)

    def estimates(presence: Presence) -> Iterator[ItemEstimate]:
        for items in presence.groups(samples * (max(presence.features) + 1)):
            orders = [
                permutations(
                    presence.features[row],
                    samples,
                    generator_of(seed, presence.batch.encoded[row].item.id, method),
                    antithetic=antithetic,
                )
                for row in items
            ]
            answers = presence.logits_of(items, [prefixes(order) for order in orders])
            for order, answer in zip(orders, answers, strict=True):
                yield ItemEstimate(gains(order, answer), answer[0])

    return explain_presence(
        model, batch, resolve, estimates, method=method, baseline=baseline, over=over
    )


def permutations(
    features: int, samples: int, generator: torch.Generator, *, antithetic: bool = False
) -> Permutations:
    """(S, F) orders of the features: random ones, or all where they are no more than `samples`."""
    if math.factorial(min(features, 20)) <= samples:
        return np.array(list(itertools.permutations(range(features))), dtype=np.int64)
    drawn = -(-samples // 2) if antithetic else samples
    keys = torch.rand(drawn, features, generator=generator, dtype=torch.float64)
    orders: Permutations = keys.argsort(dim=1).numpy()
    if antithetic:
        orders = np.stack([orders, orders[:, ::-1]], axis=1).reshape(-1, features)[:samples]
    return orders


def prefixes(orders: Permutations) -> Masks:
    """(S * (F + 1), F) the first 0, 1, ... F features of each order (S, F)."""
    samples, features = orders.shape
    place = orders.argsort(axis=1)
    present: Masks = place[:, None, :] < np.arange(features + 1)[None, :, None]
    return present.reshape(samples * (features + 1), features)


def gains(orders: Permutations, logits: Array) -> Array:
    """(F, K) the mean over orders (S, F) of what a feature adds to `logits` (S * (F + 1), K)."""
    samples, features = orders.shape
    steps = np.diff(logits.reshape(samples, features + 1, -1), axis=1)
    place = orders.argsort(axis=1)[:, :, None]
    gains: Array = np.take_along_axis(steps, place, axis=1).mean(axis=0)
    return gains
