"""Methods that run the model with parts of an item absent.

Parameters of several methods: `samples` is counted for each item; `seed` with the item's id decides
what is drawn, whatever the batch; `baseline` replaces absent positions, see `presence.absence`;
`over` is `tokens` (patches of a picture) or `words`. All give relevance in logits and raise
ConfigurationError for wrong parameters.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
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


def explain_kernel_shap(
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
        samples: coalitions of each item, besides all and none; default: 25 for each position, as
            many as `shapley-sampling` asks for, but at least 512.
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


Permutations = NDArray[np.int64]


def explain_shapley_sampling(  # noqa: PLR0913 - each parameter of a method is a keyword
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
        samples: orders of each item.
        antithetic: every second order is the reverse of the one before (Mitchell et al. 2022):
            exact where no more than two positions interact.
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


def explain_lime(  # noqa: PLR0913 - each parameter of a method is a keyword
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
        samples: neighbours of each item, besides itself; more than its positions.
        kernel_width: w; the authors' code has 0.25.
        ridge: penalty on squared slopes, which shrinks them; the authors' code has 1.
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
                slopes, certain = slopes_of(present, logits, near, ridge)
                yield ItemEstimate(slopes, note="" if certain else _SMALLEST)

    return explain_presence(
        model, batch, resolve, estimates, method=method, baseline=baseline, over=over
    )


_SMALLEST = "too few samples for one answer: of all regressions that fit, the smallest was taken"


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


def slopes_of(masks: Masks, logits: Array, near: Array, ridge: float) -> tuple[Array, bool]:
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


#: windows x items x logits x windows that are absent at once: 128 MiB
CELLS_AT_ONCE = 2**24
Absent = NDArray[np.int64]  #: (N, W) 1 where a window is absent


def explain_occlusion(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    window: int = 1,
    stride: int = 1,
    baseline: Baseline = "auto",
    over: Over = "tokens",
) -> BatchExplanation:
    """The logit minus the logit without a window (Zeiler & Fergus 2014, section 4.2).

    A position in several windows has their mean. With windows of more than one position
    relevance does not add up: each position has the fall of its whole window.

    Args:
        window: positions of a text, or patches along each side of a square.
        stride: from one window to the next; at most `window`, so that none is left out.
    """
    check_count("window", window)
    if check_count("stride", stride) > window:
        raise ConfigurationError(
            f"stride={stride} leaves positions between windows of {window} out; use at most "
            f"{window}"
        )
    estimator = partial(_estimates, window=window, stride=stride)
    return explain_presence(
        model, batch, resolve, estimator, method=method, baseline=baseline, over=over
    )


def windows(shape: tuple[int, ...], window: int, stride: int) -> Masks:
    """(W, F) the features of every window over a line (F,) or a grid (rows, cols).

    The last window along a side may be smaller, one larger than the side is cut to it.
    """
    lines: list[Masks] = []
    for side in shape:
        begins = stride * np.arange(-(-max(0, side - window) // stride) + 1)[:, None]
        places = np.arange(side)[None]
        lines.append((places >= begins) & (places < begins + window))
    if len(lines) == 1:
        return lines[0]
    down, across = lines
    squares = down[:, None, :, None] & across[None, :, None, :]
    return squares.reshape(len(down) * len(across), -1)


def _estimates(presence: Presence, *, window: int, stride: int) -> list[ItemEstimate]:
    covered = [windows(presence.shape(row), window, stride) for row in range(len(presence.owners))]
    falls = _falls(presence, covered)
    estimates = []
    for row, over in enumerate(covered):
        fall = falls[row, :, : len(over)].T
        counts = np.maximum(over.sum(axis=0), 1)
        estimates.append(ItemEstimate(over.T.astype(float) @ fall / counts[:, None]))
    return estimates


def _falls(presence: Presence, covered: list[Masks]) -> Array:
    """(B, K, W) the fall of every logit for every window; 0 beyond an item's own windows."""
    items, most = len(covered), max(len(over) for over in covered)
    cells = items * most * max(1, len(presence.classes))
    at_once = min(most, max(1, CELLS_AT_ONCE // cells))
    nothing = [np.zeros((1, len(over)), dtype=np.int64) for over in covered]
    whole = _logits(presence, covered, nothing)
    lost = [np.eye(most, len(over), dtype=np.int64) for over in covered]
    parts = [
        whole - _logits(presence, covered, [hidden[first : first + at_once] for hidden in lost])
        for first in range(0, most, at_once)
    ]
    return np.concatenate(parts, axis=1).transpose(0, 2, 1)


def _logits(presence: Presence, covered: list[Masks], lost: Sequence[Absent]) -> Array:
    """(B, N, K) the logits of B items, each with the windows `lost` (N, W of the item) absent."""
    masks = [~(row @ over).astype(bool) for row, over in zip(lost, covered, strict=True)]
    return np.stack(presence.logits_of(range(len(covered)), masks))
