"""Occlusion: how far a logit falls when a window of positions is absent."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import check_count
from transexplain.methods.batch_explanation import Array, BatchExplanation, Resolve
from transexplain.methods.presence import (
    Baseline,
    ItemEstimate,
    Masks,
    Over,
    Presence,
    explain_presence,
)
from transexplain.models.loaded_model import Batch, LoadedModel

#: windows x items x logits x windows that are absent at once: 128 MiB
CELLS_AT_ONCE = 2**24
Absent = NDArray[np.int64]  #: (N, W) 1 where a window is absent


def explain(
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
        model, batch, resolve, method: B items, and the name in the registry.
        window: positions of a text, or patches along each side of a square.
        stride: from one window to the next; at most `window`, so that none is left out.
        baseline: what absent positions are replaced by; see `presence.absence`.
        over: `tokens` (patches of a picture) or `words`.

    Returns relevance in logits. Raises ConfigurationError for wrong parameters.
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
