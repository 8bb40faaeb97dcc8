"""Follows the item axis of carriers from operator to operator.

Reshapes keep the number of elements behind the item's coordinate; views and picks are run on a
probe that holds the item of each element and has its only stride along the item axis.
"""

import math
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.items import axis_of, place, placed
from transexplain.engine.operators import AxisMove, operator_of
from transexplain.engine.tensor_record import FIRST, ItemAxis, tensors_in

_MOST_CACHED = 4096


_views_seen: dict[tuple[Any, ...], tuple[ItemAxis | None, ...]] = {}


def follow(call: Call, out: Any, items: int) -> None:
    """Note the item axis of everything in `out` that has none yet."""
    move = operator_of(call.name).axis
    if call.func is torch.nn.functional.unfold:  # shares its name with the view `Tensor.unfold`
        move = "kept"
    if move == "scatter" and isinstance(out, Tensor):
        _after_scatter(call, out, items)
    fresh = [tensor for tensor in tensors_in(out) if not placed(tensor)]
    if not fresh:
        return
    # a broadcast partner has fewer axes, and they are aligned from the right
    carrier = max(call.carriers, key=lambda tensor: tensor.dim())
    axis = axis_of(carrier)
    if axis is None:
        axes: tuple[ItemAxis | None, ...] = (None,)
    elif move == "view":
        axes = _through_view(call, carrier, axis, items)
    else:
        axes = (_through(call, move, carrier, axis, fresh[0], items),)
    for index, tensor in enumerate(fresh):
        place(tensor, axes[min(index, len(axes) - 1)])


def _through(
    call: Call, move: AxisMove, carrier: Tensor, axis: ItemAxis, out: Tensor, items: int
) -> ItemAxis | None:
    if move == "kept":
        return axis if axis.axis == 0 and axis.fits(out.shape[0], items) else None
    if move == "reshape":
        return _reshaped(carrier, axis, out, items)
    if move == "contraction":
        return axis if call.name == "mv" and axis.axis == 0 and carrier.dim() == 2 else None
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
    if call.name in ("view_as_real", "view_as_complex"):  # these want the carrier's type
        probe = probe.to(carrier.dtype)
    if call.name == "as_strided":  # reads memory as the carrier lies there
        probe = torch.empty_strided(
            carrier.shape, carrier.stride(), dtype=probe.dtype, device=probe.device
        ).copy_(probe)
    seen = call.substituted({id(carrier): probe}).run()
    if call.name == "view_as_real":
        seen = seen[..., :1].expand(seen.shape)  # real and imaginary part are of one item
    found = tuple(_axis_from(part, axis, items) for part in tensors_in(seen))
    if plain and len(_views_seen) < _MOST_CACHED:
        _views_seen[key] = found
    return found


def _probe(carrier: Tensor, axis: ItemAxis, items: int) -> Tensor:
    """The item of every element of a carrier, without memory of its own."""
    size = carrier.shape[axis.axis]
    shape = [size if d == axis.axis else 1 for d in range(carrier.dim())]
    numbers = axis.numbers(size, items, carrier.device)
    return numbers.reshape(shape).expand(carrier.shape)


def _axis_from(probe: Tensor, before: ItemAxis, items: int) -> ItemAxis | None:
    """The axis along which alone the items of a probe change."""
    if before == FIRST and before.index is None and not probe.is_contiguous():
        moving = [d for d in range(probe.dim()) if probe.stride(d) and probe.shape[d] > 1]
        if len(moving) == 1:
            return ItemAxis(moving[0], 1)
    for axis, size in enumerate(probe.shape):
        rows = probe.movedim(axis, 0).reshape(size, -1)
        if probe.numel() and bool((rows == rows[:, :1]).all()):
            return _regular(rows[:, 0], axis, items)
    return None


def _regular(numbers: Tensor, axis: int, items: int) -> ItemAxis:
    """Items that repeat in even runs as such, any others row by row."""
    changes = numbers.diff().nonzero().flatten()
    inner = int(changes[0]) + 1 if len(changes) else 1
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
    old = axis_of(out) if placed(out) else None
    given = axis_of(source) if source.requires_grad else None
    if given is None or given.axis != dim:
        return
    numbers = index.new_full((out.shape[dim],), -1)
    if old is not None:
        if old.index is None:
            return
        numbers = old.index.clone()
    numbers[index] = given.numbers(source.shape[dim], items, index.device)
    place(out, _regular(numbers, dim, items))
