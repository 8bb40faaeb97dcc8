"""Tracks which axis of a tensor counts the items, for sums per item."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.operator_call import Call
from transexplain.engine.operators import AxisMove, operator_of
from transexplain.engine.tensor_record import FIRST, ItemAxis, record, recorded, tensors_in
from transexplain.errors import EngineError


def place(tensor: Tensor, axis: ItemAxis | None) -> None:
    """Note the item axis of a carrier."""
    known = record(tensor)
    known.axis, known.placed = axis, True


def per_item(values: Tensor, axis: ItemAxis | None, items: int, *, largest: bool = False) -> Tensor:
    """Sum (or the largest) of everything of an item: item axis `axis` -> (B,) in float64.

    Raises:
        EngineError: the item axis is not known.
    """
    if items == 1:
        axis = FIRST
        values = values.reshape(1, -1)
    values = values.reshape(1) if values.dim() == 0 else values
    if axis is None or values.dim() <= axis.axis or not axis.fits(values.shape[axis.axis], items):
        raise EngineError(
            f"an operator gave a tensor of shape {tuple(values.shape)} for {items} items, and "
            "which axis counts the items is not known. Explain such a model one item at a time "
            "(batch_tokens=1)"
        )
    if axis.index is not None:
        flat = values.movedim(axis.axis, 0).reshape(len(axis.index), -1)
        per_row = flat.amax(1).double() if largest else flat.sum(1, dtype=torch.float64)
        known = torch.where(axis.index >= 0, per_row, 0)
        out = torch.zeros(items, dtype=torch.float64, device=values.device)
        if largest:
            return out.scatter_reduce_(0, axis.index.clamp(min=0), known, "amax")
        return out.index_add_(0, axis.index.clamp(min=0), known)
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
    if like.dim() == 0:
        return values[axis.numbers(1, items, values.device).clamp(min=0)].reshape(())
    size = like.shape[axis.axis]
    index = axis.numbers(size, items, values.device).clamp(min=0)
    return values[index].reshape([size if d == axis.axis else 1 for d in range(like.dim())])


_MOST_CACHED = 4096
_views_seen: dict[tuple[Any, ...], tuple[ItemAxis | None, ...]] = {}


def follow(call: Call, out: Any, items: int) -> None:
    """Note the item axis of everything in `out` that has none yet."""
    move = operator_of(call.name).axis
    if call.func is torch.nn.functional.unfold:  # shares its name with the view `Tensor.unfold`
        move = "kept"
    if move == "scatter" and isinstance(out, Tensor):
        _after_scatter(call, out, items)
    fresh = [tensor for tensor in tensors_in(out) if not recorded(tensor).placed]
    if not fresh:
        return
    # a broadcast partner has fewer axes, and they are aligned from the right
    carrier = max(call.carriers, key=lambda tensor: tensor.dim())
    axis = recorded(carrier).axis
    axes: tuple[ItemAxis | None, ...] = (None,)
    if axis is not None and move == "view":
        axes = _through_view(call, carrier, axis, items)
    elif axis is not None and carrier.dim():
        axes = (_through(call, move, carrier, axis, fresh[0], items),)
    if operator_of(call.name).kind == "concat" and (axes[0] is None or axes[0].index is not None):
        axes = (_joined(call, axes[0], items),)
    alone = _of_one_item(call.carriers) if None in axes else None
    for index, tensor in enumerate(fresh):
        item_axis = axes[min(index, len(axes) - 1)]
        if item_axis is None and alone is not None:
            rows = tensor.shape[0] if tensor.dim() else 1
            item_axis = ItemAxis(0, 1, alone.expand(rows))
        place(tensor, item_axis)


def _of_one_item(carriers: Sequence[Tensor]) -> Tensor | None:
    """The number (1,) of the item that all carriers are of; None where there is no such item."""
    numbers = []
    for carrier in carriers:
        axis = recorded(carrier).axis
        if axis is None or axis.index is None:
            return None
        numbers.append(axis.index)
    every = torch.cat(numbers)
    return every[:1] if len(every) and bool((every == every[0]).all()) else None


def _joined(call: Call, moved: ItemAxis | None, items: int) -> ItemAxis | None:
    """The items of joined pieces, which may be of one item each; `moved` is that of the first."""
    pieces: Sequence[Tensor] = call.argument(0, "tensors", ())
    stacked = call.name == "stack"
    dim = int(call.argument(1, "dim", call.kwargs.get("axis", 0)))
    dim %= pieces[0].dim() + stacked
    numbers = []
    for piece in pieces:
        axis, width = recorded(piece).axis if piece.requires_grad else None, 1
        if not stacked:
            width = piece.shape[dim] if piece.dim() > dim else 0
        own = _of_one_item([piece])
        if not piece.requires_grad:
            numbers.append(torch.full((width,), -1, device=piece.device))
        elif own is not None:
            numbers.append(own.expand(width))
        elif axis is not None and axis.axis == dim and not stacked:
            numbers.append(axis.numbers(width, items, piece.device))
        else:
            return moved if _same_items(call.carriers) else None
    return _regular(torch.cat(numbers), dim, items)


def _same_items(carriers: Sequence[Tensor]) -> bool:
    """Return whether all carriers have the same items on the same axis."""
    first, *others = (recorded(carrier).axis for carrier in carriers)
    if first is None or first.index is None or any(other != first for other in others):
        return False
    indices = [other.index for other in others if other is not None and other.index is not None]
    return len(indices) == len(others) and all(torch.equal(first.index, index) for index in indices)


def _through(
    call: Call, move: AxisMove, carrier: Tensor, axis: ItemAxis, out: Tensor, items: int
) -> ItemAxis | None:
    if move == "kept":
        return axis if axis.axis == 0 and axis.fits(out.shape[0], items) else None
    if move == "reshape":
        return _reshaped(carrier, axis, out, items)
    if move == "contraction":
        return _contracted(call, axis)
    if move == "stack":
        dim = int(call.argument(1, "dim", call.kwargs.get("axis", 0))) % out.dim()
        return axis.moved(axis.axis + (dim <= axis.axis))
    if move == "einsum":
        return _through_einsum(call, carrier, axis)
    if move == "reduction" and out.dim() < carrier.dim():
        return _reduced(call, carrier, axis)
    if out.dim() >= carrier.dim():  # elementwise, matrix products: aligned from the right
        moved = axis.moved(axis.axis + out.dim() - carrier.dim())
        return moved if moved.fits(out.shape[moved.axis], items) else None
    return _reshaped(carrier, axis, out, items)


def _reshaped(carrier: Tensor, axis: ItemAxis, out: Tensor, items: int) -> ItemAxis | None:
    if axis.index is not None:
        return _axis_from(_probe(carrier, axis, items).reshape(out.shape), axis, items)
    # elements behind one step of the item's coordinate: a reshape does not change that
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
    return axis.moved(axis.axis - sum(d < axis.axis for d in gone))


_OPERANDS = {
    "mv": ("input", "vec"),
    "dot": ("input", "tensor"),
    "inner": ("input", "other"),
    "outer": ("input", "vec2"),
    "tensordot": ("a", "b"),
}


def _contracted(call: Call, axis: ItemAxis) -> ItemAxis | None:
    """The axes of the first operand that stay, then those of the second; two carriers mix items."""
    operands = [call.argument(at, name, None) for at, name in enumerate(_OPERANDS[call.name])]
    carried = [operand.requires_grad for operand in operands]
    if sum(carried) != 1:
        return None
    gone = _summed_axes(call, *operands)
    place_ = carried.index(True)
    if axis.axis in gone[place_]:
        return None
    before = operands[0].dim() - len(gone[0]) if place_ else 0
    return axis.moved(before + axis.axis - sum(d < axis.axis for d in gone[place_]))


def _summed_axes(call: Call, left: Tensor, right: Tensor) -> tuple[list[int], list[int]]:
    """The axes of both operands that a contraction sums over."""
    if call.name == "outer":
        return [], []
    if call.name == "tensordot":
        dims = call.argument(2, "dims", 2)
        if isinstance(dims, int):
            return list(range(left.dim() - dims, left.dim())), list(range(dims))
        return [d % left.dim() for d in dims[0]], [d % right.dim() for d in dims[1]]
    # over the last axis of the left; `mv` and `dot` have a vector on the right, `inner` any tensor
    return [left.dim() - 1], [right.dim() - 1]


def _through_einsum(call: Call, carrier: Tensor, axis: ItemAxis) -> ItemAxis | None:
    equation, operands = call.args[0], call.args[1:]
    if not isinstance(equation, str) or "->" not in equation or "..." in equation:
        return axis  # the sublist form and ellipses keep their leading axes
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    left, right = equation.replace(" ", "").split("->")
    place_ = next(i for i, operand in enumerate(operands) if operand is carrier)
    letter = left.split(",")[place_][axis.axis]
    return axis.moved(right.index(letter)) if letter in right else None


def _through_view(
    call: Call, carrier: Tensor, axis: ItemAxis, items: int
) -> tuple[ItemAxis | None, ...]:
    """The same view of a probe that holds each element's item number, and one stride only."""
    plain = axis.index is None and not any(
        True for _ in tensors_in((call.args[1:], tuple(call.kwargs.values())))
    )
    key = (call.name, carrier.shape, axis, items, repr(call.args[1:]), repr(call.kwargs))
    if plain and key in _views_seen:
        return _views_seen[key]
    probe = _probe(carrier, axis, items)
    if call.name in ("view_as_real", "view_as_complex"):  # these need the carrier's type
        probe = probe.to(carrier.dtype)
    if call.name == "as_strided":  # depends on the memory layout of the carrier
        probe = torch.empty_strided(
            carrier.shape, carrier.stride(), dtype=probe.dtype, device=probe.device
        ).copy_(probe)
    seen = call.substituted({id(carrier): probe}).run()
    if call.name == "view_as_real":
        seen = seen[..., :1].expand(seen.shape)  # real and imaginary part are of one item
    axes = tuple(_axis_from(part, axis, items) for part in tensors_in(seen))
    if plain and len(_views_seen) < _MOST_CACHED:
        _views_seen[key] = axes
    return axes


def _probe(carrier: Tensor, axis: ItemAxis, items: int) -> Tensor:
    """The item of every element of a carrier, without memory of its own."""
    if carrier.dim() == 0:
        return axis.numbers(1, items, carrier.device).reshape(())
    size = carrier.shape[axis.axis]
    shape = [size if d == axis.axis else 1 for d in range(carrier.dim())]
    numbers = axis.numbers(size, items, carrier.device)
    return numbers.reshape(shape).expand(carrier.shape)


def _axis_from(probe: Tensor, before: ItemAxis, items: int) -> ItemAxis | None:
    """The axis along which alone the items of a probe change."""
    if probe.dim() == 0:
        return ItemAxis(0, 1, probe.reshape(1))
    if not probe.numel() and before.axis < probe.dim() and probe.shape[before.axis]:
        # such as the unrotated part of a head where all of it is rotated; no item is lost
        return before if before.fits(probe.shape[before.axis], items) else None
    if before == FIRST and before.index is None and not probe.is_contiguous():
        moving = [d for d in range(probe.dim()) if probe.stride(d) and probe.shape[d] > 1]
        if len(moving) == 1:
            return ItemAxis(moving[0], 1)
    for axis, size in enumerate(probe.shape):
        rows = probe.movedim(axis, 0).reshape(size, -1)
        if bool((rows == rows[:, :1]).all()):
            return _regular(rows[:, 0], axis, items)
    return None


def _regular(numbers: Tensor, axis: int, items: int) -> ItemAxis:
    """Items that repeat in even runs as such, any others row by row."""
    inner = int((numbers != numbers[0]).int().argmax()) or 1  # the first that differs
    even = ItemAxis(axis, inner)
    size = len(numbers)
    if even.fits(size, items) and bool(
        (even.numbers(size, items, numbers.device) == numbers).all()
    ):
        return even
    return ItemAxis(axis, 1, numbers)


def _after_scatter(call: Call, out: Tensor, items: int) -> None:
    """Rows added to chosen places: each place belongs to the item of its rows."""
    dim, index = int(call.argument(1, "dim", 0)) % out.dim(), call.argument(2, "index", None)
    source = call.argument(3, "source", None)
    # in relevance form the call is made out of place: `out` is new, and x is what it starts from
    base = out if recorded(out).placed else call.argument(0, "input", None)
    old = recorded(base).axis if recorded(base).placed else None
    given = recorded(source).axis if source.requires_grad else None
    if given is None or given.axis != dim:
        return
    numbers = index.new_full((out.shape[dim],), -1)
    if old is not None:
        if old.index is None:  # every place has its item already
            place(out, old)
            return
        numbers = old.index.clone()
    numbers[index] = given.numbers(source.shape[dim], items, index.device)
    place(out, _regular(numbers, dim, items))
