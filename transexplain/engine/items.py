"""Which axis of a carrier counts the items, and sums per item.

`nn.MultiheadAttention`, XLNet and Longformer work on (T, B, D), heads are folded into the batch,
windows too, and a mixture of experts picks rows: not always is the first axis the item axis.
Everything per item (the ledger, sums that normalise) uses these; `item_tracking` follows the axis
from operator to operator.
"""

import math

import torch
from torch import Tensor

from transexplain.engine.tensor_record import FIRST, ItemAxis, record, recorded
from transexplain.errors import EngineError


def axis_of(tensor: Tensor) -> ItemAxis | None:
    """The item axis of a carrier; None where it is not known."""
    return recorded(tensor).axis


def place(tensor: Tensor, axis: ItemAxis | None) -> None:
    """Note the item axis of a carrier."""
    known = record(tensor)
    known.axis, known.placed = axis, True


def placed(tensor: Tensor) -> bool:
    """Whether the item axis of a tensor was noted already."""
    return recorded(tensor).placed


def per_item(values: Tensor, axis: ItemAxis | None, items: int, *, largest: bool = False) -> Tensor:
    """Sum (or the largest) of everything of an item: item axis `axis` -> (B,) in float64.

    Raises:
        EngineError: the item axis is not known.
    """
    if items == 1:
        axis = FIRST
        values = values.reshape(1, -1)
    if axis is None or values.dim() <= axis.axis or not axis.fits(values.shape[axis.axis], items):
        raise EngineError(
            f"an operator gave a tensor of shape {tuple(values.shape)} for {items} items, and "
            "which axis counts the items is not known. Explain such a model one item at a time "
            "(batch_tokens=1)"
        )
    if axis.index is not None:
        return _of_rows(values.movedim(axis.axis, 0), axis.index, items, largest=largest)
    before = math.prod(values.shape[: axis.axis])
    outer = before * values.shape[axis.axis] // (items * axis.inner)
    grouped = values.reshape(outer, items, -1)
    if largest:
        return grouped.amax(dim=(0, 2)).double()
    return grouped.sum(dim=(0, 2), dtype=torch.float64)


def spread(values: Tensor, like: Tensor, axis: ItemAxis | None, items: int) -> Tensor:
    """One number per item (B,) to a tensor that broadcasts over `like`."""
    if items == 1 or axis is None:
        return values.reshape([1] * like.dim())
    size = like.shape[axis.axis]
    index = axis.numbers(size, items, values.device).clamp(min=0)
    return values[index].reshape([size if d == axis.axis else 1 for d in range(like.dim())])


def _of_rows(rows: Tensor, index: Tensor, items: int, *, largest: bool) -> Tensor:
    flat = rows.reshape(len(index), -1)
    per_row = flat.amax(1).double() if largest else flat.sum(1, dtype=torch.float64)
    known = torch.where(index >= 0, per_row, 0)
    out = torch.zeros(items, dtype=torch.float64, device=rows.device)
    if largest:
        return out.scatter_reduce_(0, index.clamp(min=0), known, "amax")
    return out.index_add_(0, index.clamp(min=0), known)
