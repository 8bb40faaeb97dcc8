"""LIME: the coefficients of a linear model fitted around the item."""

from collections.abc import Iterator

import numpy as np
import torch

from transexplain.errors import ConfigurationError
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


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    samples: int = 512,
    kernel_width: float = 0.25,
    ridge: float = 0.0,
    seed: int = 0,
    baseline: Baseline = "auto",
    over: Over = "tokens",
) -> BatchExplanation:
    """The slopes of a weighted linear regression on presence (Ribeiro et al. 2016, Eq. 2).

    Neighbours lack a number of positions drawn from 1 to F, and count by exp(-d^2 / (2 w^2)),
    where d is the cosine distance to the item. All positions are kept (no K-Lasso), so that every
    target is explained by one regression.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        samples: neighbours of each item, besides itself; more than its positions.
        kernel_width: w; the authors' code has 0.25.
        ridge: penalty on squared slopes, which shrinks them; the authors' code has 1.
        seed: with the item's id it decides the neighbours, whatever the batch.
        baseline: what absent positions are replaced by; see `presence.absence`.
        over: `tokens` (patches of a picture) or `words`.

    Returns relevance in logits. Raises ConfigurationError for wrong parameters.
    """
    check_count("samples", samples)
    if not kernel_width > 0 or not ridge >= 0:
        raise ConfigurationError(
            f"kernel_width is above 0 and ridge at least 0, not {kernel_width} and {ridge}"
        )

    def estimates(presence: Presence) -> Iterator[ItemEstimate]:
        for items in presence.groups(samples + 1):
            masks = [
                neighbours(
                    presence.features[row],
                    samples,
                    generator_of(seed, presence.batch.encoded[row].item.id, method),
                )
                for row in items
            ]
            for present, logits in zip(masks, presence.logits_of(items, masks), strict=True):
                near = nearness(present, kernel_width)
                slopes, certain = regression(present, logits, near, ridge)
                yield ItemEstimate(slopes, note="" if certain else _FEW)

    return explain_presence(
        model, batch, resolve, estimates, method=method, baseline=baseline, over=over
    )


_FEW = "too few samples for one answer: of all regressions that fit, the smallest was taken"


def neighbours(features: int, samples: int, generator: torch.Generator) -> Masks:
    """(1 + N, F) the item itself, then neighbours that lack 1 to F features."""
    if not features:
        return np.ones((1, 0), dtype=bool)
    lacking = torch.randint(1, features + 1, (samples, 1), generator=generator)
    keys = torch.rand(samples, features, generator=generator, dtype=torch.float64)
    place = keys.argsort(dim=1).argsort(dim=1)
    itself = torch.ones(1, features, dtype=torch.bool)
    present: Masks = torch.cat([itself, place >= lacking]).numpy()
    return present


def nearness(masks: Masks, kernel_width: float) -> Array:
    """(N,) the weight of every neighbour (N, F) by its cosine distance to the whole item."""
    # between ones and a mask of s ones the cosine is sqrt(s / F)
    cosine = np.sqrt(masks.mean(axis=1)) if masks.shape[1] else np.ones(len(masks))
    near: Array = np.exp(-((1 - cosine) ** 2) / (2 * kernel_width**2))
    return near


def regression(masks: Masks, logits: Array, near: Array, ridge: float) -> tuple[Array, bool]:
    """Slopes (F, K) of `logits` (N, K) on `masks` (N, F), and whether they are the only ones.

    Weighted by `near` (N,), with a free intercept, in float64. Where too few neighbours leave
    slopes open the smallest are taken.
    """
    share = near[:, None] / near.sum()
    design = masks - (share * masks).sum(axis=0)
    heard = logits - (share * logits).sum(axis=0)
    root = np.sqrt(near)[:, None]
    features = masks.shape[1]
    penalty = np.sqrt(ridge) * np.eye(features)
    left = np.concatenate([root * design, penalty])
    right = np.concatenate([root * heard, np.zeros((features, logits.shape[1]))])
    slopes, _, rank, _ = np.linalg.lstsq(left, right, rcond=None)
    return slopes, bool(rank == features)
