"""The part of a gradient that is not all zero, so that products with zeros are left out.

Behind the last block only the pooled position has relevance, and a fused query-key-value layer
with constant attention weights has it at its values only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class NonZero:
    """Rows (N,) and columns of a gradient (..., O) that hold something; None: all rows."""

    rows: Tensor | None
    columns: slice

    def of(self, tensor: Tensor, *, columns: bool = True) -> Tensor:
        """These rows (and columns) of a tensor (..., O) -> (n, o)."""
        flat = tensor.reshape(-1, tensor.shape[-1])
        if self.rows is not None:
            flat = flat[self.rows]
        return flat[:, self.columns] if columns else flat

    def back(self, values: Tensor, like: Tensor) -> Tensor:
        """Values (n, I) of these rows to the shape of `like` (..., I), 0 elsewhere."""
        if self.rows is None:
            return values.view(like.shape)
        full = values.new_zeros(like.shape)
        full.view(-1, like.shape[-1])[self.rows] = values
        return full

    def sums(self, values: Tensor, like: Tensor) -> Tensor:
        """One number per row (n,) to the shape (...) of the rows of `like` (..., O)."""
        if self.rows is None:
            return values.view(like.shape[:-1])
        full = values.new_zeros(like.shape[:-1].numel())
        full[self.rows] = values
        return full.view(like.shape[:-1])

    def same(self, other: "NonZero") -> bool:
        """Whether both are the same part."""
        if self.columns != other.columns or (self.rows is None) != (other.rows is None):
            return False
        return self.rows is None or other.rows is None or torch.equal(self.rows, other.rows)


def nonzero_part(gradient: Tensor) -> NonZero:
    """What of a gradient (..., O) is not zero; on a device all of it, as looking would wait."""
    if gradient.device.type != "cpu" or gradient.dim() < 2:
        return NonZero(None, slice(None))
    flat = gradient.reshape(-1, gradient.shape[-1])
    rows = _nonzero_rows(flat)
    return NonZero(rows, _nonzero_columns(flat if rows is None else flat[rows]))


def _nonzero_rows(flat: Tensor) -> Tensor | None:
    # one column is cheap to read and nearly always tells
    if 2 * int(flat[:, 0].count_nonzero()) > flat.shape[0]:
        return None
    nonzero = flat.count_nonzero(dim=1).nonzero().flatten()
    return None if 2 * nonzero.shape[0] > flat.shape[0] else nonzero


def _nonzero_columns(rows: Tensor) -> slice:
    few = rows[:: max(1, rows.shape[0] // 8)]
    seen = few.count_nonzero(dim=0).nonzero().flatten()
    if not seen.numel():
        return slice(None)
    low, high = int(seen[0]), int(seen[-1]) + 1
    if 2 * (high - low) > rows.shape[1]:
        return slice(None)
    outside = rows[:, :low].count_nonzero() + rows[:, high:].count_nonzero()
    return slice(None) if int(outside) else slice(low, high)
