"""What the authors' code does with one item, for the padded length that it was given."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods.records import Array
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.text import TextEncoder

Variant = Literal["paper", "authors"]
#: row of the batch, and its length with padding -> (T,)
OfItem = Callable[[int, int], Tensor]


def padded(model: LoadedModel, batch: Batch, length: int | None, variant: str) -> Batch:
    """The batch, at least `length` positions wide.

    Raises ConfigurationError for a variant that does not exist, and where a length is given to
    the paper's variant, to pictures, or is too small.
    """
    if variant not in ("paper", "authors"):
        raise ConfigurationError(f"variant is 'paper' or 'authors', not {variant!r}")
    if length is None:
        return batch
    if variant != "authors":
        raise ConfigurationError("padded_length changes the result of variant='authors' only")
    if not isinstance(model.encoder, TextEncoder):
        raise ConfigurationError("padded_length is for texts; nothing else is padded")
    longest = int(batch.lengths.max())
    if length < longest:
        raise ConfigurationError(
            f"padded_length {length} is less than the {longest} positions of an item"
        )
    return model.encoder.widened(batch, length)


def item_by_item(batch: Batch, length: int | None, width: int, compute: OfItem) -> Array:
    """(B, T) from one computation for each item at its own length, or at `length`."""
    found = np.zeros((len(batch.encoded), width))
    for row, encoded in enumerate(batch.encoded):
        size = encoded.length if length is None else length
        values = compute(row, size).double().cpu().numpy()
        found[row, :size] = values
    return found


def min_max(values: Tensor) -> Tensor:
    """Values from 0 to 1, as the authors scale; zeros where all are equal (they have NaN)."""
    span = values.max() - values.min()
    return torch.zeros_like(values) if span == 0 else (values - values.min()) / span
