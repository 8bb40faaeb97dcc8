"""Which axis of a carrier counts the items: not always the first, so it is followed op by op.

`nn.MultiheadAttention`, XLNet and Longformer work on (T, B, D), heads are folded into the batch,
windows too. Element i of the item axis belongs to item (i // inner) % B; everything per item (the
ledger, sums that normalise) asks here. Reshapes keep the number of elements behind the item's
coordinate; views are run on a probe whose only stride lies along the item axis.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.call import Call
from transexplain.errors import EngineError

_TAG = "_transexplain_items"


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_RESHAPES = _names(
    "reshape reshape_as view view_as flatten unflatten ravel squeeze unsqueeze contiguous"
)
_REDUCTIONS = _names(
    """
    mean sum std var norm vector_norm linalg_vector_norm amax amin max min argmax argmin logsumexp
    prod all any count_nonzero
    """
)
_VIEWS = _names(
    """
    transpose permute movedim moveaxis swapaxes swapdims t T mT H mH adjoint __getitem__ narrow
    select split split_with_sizes tensor_split chunk unbind expand expand_as broadcast_to unfold
    diagonal as_strided gather index_select take_along_dim repeat repeat_interleave tile
    view_as_real view_as_complex
    """
)
_CONTRACTIONS = _names("mv dot inner outer tensordot")
_MOST_CACHED = 4096


@dataclass(frozen=True, slots=True)
class ItemAxis:
    """Element i of axis `axis` belongs to item (i // inner) % B."""

    axis: int = 0
    inner: int = 1


FIRST = ItemAxis()
_views_seen: dict[tuple[Any, ...], tuple[ItemAxis | None, ...]] = {}


def axis_of(tensor: Tensor) -> ItemAxis | None:
    """The item axis of a carrier; None where it is not known."""
    found: ItemAxis | None = getattr(tensor, _TAG, FIRST)
    return found


def place(tensor: Tensor, axis: ItemAxis | None) -> None:
    """Note the item axis of a carrier."""
    setattr(tensor, _TAG, axis)


def placed(tensor: Tensor) -> bool:
    """Whether the item axis of a tensor was noted already."""
    return hasattr(tensor, _TAG)


def per_item(values: Tensor, axis: ItemAxis | None, items: int, *, largest: bool = False) -> Tensor:
    """Sum (or the largest) of everything of an item: item axis `axis` -> (B,) in float64.

    Raises:
        EngineError: the item axis is not known.
    """
    if items == 1:
        axis = FIRST
        values = values.reshape(1, -1)
    if axis is None or values.dim() <= axis.axis or values.shape[axis.axis] % (items * axis.inner):
        raise EngineError(
            f"an operator gave a tensor of shape {tuple(values.shape)} for {items} items, and "
            "which axis counts the items cannot be told. Explain such a model one item at a time "
            "(batch_tokens=1)"
        )
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
    index = torch.arange(size, device=values.device).div(axis.inner, rounding_mode="floor") % items
    return values[index].reshape([size if d == axis.axis else 1 for d in range(like.dim())])


def follow(call: Call, out: Any, items: int) -> None:
    """Note the item axis of everything in `out` that has none yet."""
    fresh = [tensor for tensor in _tensors(out) if not placed(tensor)]
    if not fresh:
        return
    carrier = max(call.carriers, key=lambda tensor: tensor.dim())
    axis = axis_of(carrier)
    if axis is None:
        axes: tuple[ItemAxis | None, ...] = (None,)
    elif call.name in _VIEWS:
        axes = _through_view(call, carrier, axis, items)
    else:
        axes = (_through(call, carrier, axis, fresh[0], items),)
    for index, tensor in enumerate(fresh):
        place(tensor, axes[min(index, len(axes) - 1)])


def _through(
    call: Call, carrier: Tensor, axis: ItemAxis, out: Tensor, items: int
) -> ItemAxis | None:
    if call.name in _RESHAPES:
        return _reshaped(carrier, axis, out, items)
    if call.name in _CONTRACTIONS:
        return axis if call.name == "mv" and axis.axis == 0 and carrier.dim() == 2 else None
    if call.name == "stack":
        dim = int(call.argument(1, "dim", call.kwargs.get("axis", 0))) % out.dim()
        return ItemAxis(axis.axis + (dim <= axis.axis), axis.inner)
    if call.name == "einsum":
        return _through_einsum(call, carrier, axis)
    if call.name in _REDUCTIONS and out.dim() < carrier.dim():
        return _reduced(call, carrier, axis)
    if out.dim() >= carrier.dim():  # elementwise, matrix products: aligned from the right
        moved = ItemAxis(axis.axis + out.dim() - carrier.dim(), axis.inner)
        return moved if out.shape[moved.axis] % (items * axis.inner) == 0 else None
    return _reshaped(carrier, axis, out, items)


def _reshaped(carrier: Tensor, axis: ItemAxis, out: Tensor, items: int) -> ItemAxis | None:
    behind = axis.inner * math.prod(carrier.shape[axis.axis + 1 :])
    after = 1
    for place_, size in reversed(list(enumerate(out.shape))):
        if behind % after == 0 and size % (items * (behind // after)) == 0:
            return ItemAxis(place_, behind // after)
        after *= size
    return None


def _reduced(call: Call, carrier: Tensor, axis: ItemAxis) -> ItemAxis | None:
    position = 2 if call.name in ("norm", "vector_norm", "linalg_vector_norm") else 1
    dims = call.argument(position, "dim", call.kwargs.get("axis"))
    if dims is None:
        return None
    gone = {int(d) % carrier.dim() for d in ([dims] if isinstance(dims, int) else dims)}
    if axis.axis in gone:
        return None
    return ItemAxis(axis.axis - sum(d < axis.axis for d in gone), axis.inner)


def _through_einsum(call: Call, carrier: Tensor, axis: ItemAxis) -> ItemAxis | None:
    equation, operands = call.args[0], call.args[1:]
    if not isinstance(equation, str) or "->" not in equation or "..." in equation:
        return axis  # the sublist form and ellipses keep their leading axes
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    left, right = equation.replace(" ", "").split("->")
    place_ = next(i for i, operand in enumerate(operands) if operand is carrier)
    letter = left.split(",")[place_][axis.axis]
    return ItemAxis(right.index(letter), axis.inner) if letter in right else None


def _through_view(
    call: Call, carrier: Tensor, axis: ItemAxis, items: int
) -> tuple[ItemAxis | None, ...]:
    """The same view of a probe that holds each element's item number, and one stride only."""
    plain = not any(True for _ in _tensors((call.args[1:], tuple(call.kwargs.values()))))
    key = (call.name, carrier.shape, axis, items, repr(call.args[1:]), repr(call.kwargs))
    if plain and key in _views_seen:
        return _views_seen[key]
    size = carrier.shape[axis.axis]
    numbers = torch.arange(size, device=carrier.device).div(axis.inner, rounding_mode="floor")
    shape = [size if d == axis.axis else 1 for d in range(carrier.dim())]
    probe = (numbers % items).reshape(shape).expand(carrier.shape)
    if call.name == "as_strided":  # reads memory as the carrier lies there
        probe = torch.empty_strided(
            carrier.shape, carrier.stride(), dtype=probe.dtype, device=probe.device
        ).copy_(probe)
    seen = call.substituted({id(carrier): probe}).run()
    found = tuple(_axis_from(part, axis, items) for part in _tensors(seen))
    if plain and len(_views_seen) < _MOST_CACHED:
        _views_seen[key] = found
    return found


def _axis_from(probe: Tensor, before: ItemAxis, items: int) -> ItemAxis | None:
    if before.inner == 1 and not probe.is_contiguous():
        moving = [d for d in range(probe.dim()) if probe.stride(d) and probe.shape[d] > 1]
        if len(moving) == 1:
            return ItemAxis(moving[0], 1)
    for axis, size in enumerate(probe.shape):
        if size % items or not probe.numel():
            continue
        line = probe.movedim(axis, 0).reshape(size, -1)[:, 0]
        changes = line.diff().nonzero().flatten()
        inner = int(changes[0]) + 1 if len(changes) else 0
        if inner and size % (items * inner) == 0:
            return ItemAxis(axis, inner)
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
