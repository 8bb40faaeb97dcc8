"""Which rows of its arguments an operator's rows are made from, where it works row by row."""

import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

_ATEN = torch.ops.aten
SAME = frozenset(  # a trace by torch 2.11 has `detach` where one by 2.15 has `alias`
    {_ATEN.alias.default, _ATEN.detach.default, _ATEN.clone.default, _ATEN._to_copy.default}
)
VIEWS = frozenset({_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default})
REDUCTIONS = frozenset({_ATEN.mean.dim, _ATEN.sum.dim_IntList})
#: the argument with the rows (B * T, K), of products with a matrix or a vector
PRODUCTS: Mapping[Any, int] = {
    _ATEN.mm.default: 0,
    _ATEN.mv.default: 0,
    _ATEN.addmm.default: 1,
}
NORM = _ATEN.native_layer_norm.default


@dataclass(frozen=True, slots=True)
class Read:
    """Which row is read: position `place` of the `length` positions (T) of each of B items."""

    items: int
    length: int
    place: int


@dataclass(frozen=True, slots=True)
class Axis:
    """Where the positions stand in a tensor."""

    dim: int
    flat: bool = False  #: the axis counts the positions of all items, B * T


def shape_of(node: Any) -> tuple[int, ...] | None:
    """Of a node that gives one tensor, and was traced."""
    shape = getattr(node.meta.get("tensor_meta"), "shape", None) if _is_node(node) else None
    return None if shape is None else tuple(shape)


def _is_node(value: Any) -> bool:
    return isinstance(value, Node)


@dataclass(frozen=True, slots=True)
class RowRules:
    """How the rows of an operator's result depend on the rows of its arguments."""

    read: Read

    def after_view(self, before: Sequence[int], axis: Axis, after: Sequence[int]) -> Axis | None:
        """Where the positions stand after (B, T, ...) became another shape, or the other way."""
        if axis.flat:
            unfolded = tuple(after[:2]) == (self.read.items, self.read.length)
            return Axis(1) if unfolded else axis if after[:1] == before[:1] else None
        ahead = prod(before[: axis.dim])
        if after[0] == ahead * self.read.length and ahead == self.read.items and len(after) < 3:
            return Axis(0, flat=True)
        for dim, size in enumerate(after):
            if size == self.read.length and prod(after[:dim]) == ahead:
                return Axis(dim)
        return None

    def of_argument(self, node: Node, axis: Axis, argument: Node) -> Axis | None:
        """Which axis of an argument has the rows that stand at `axis` of the result."""
        own, result = shape_of(argument), shape_of(node)
        if node.target is operator.getitem:
            return axis
        if own is None:
            return None
        if node.target is NORM:
            inside = axis.dim < len(own) - len(node.args[1])  # type: ignore[arg-type]
            return axis if argument is node.args[0] and inside else None
        if result is None:
            return None
        if node.target in PRODUCTS:
            rows = argument is node.args[PRODUCTS[node.target]]
            return axis if rows and axis.flat else None
        if node.target in VIEWS:
            return self.after_view(result, axis, own)
        if node.target in REDUCTIONS:
            return _before_reduction(node, axis, len(own))
        return self._aligned(own, result, axis)

    def _aligned(self, own: Sequence[int], result: Sequence[int], axis: Axis) -> Axis | None:
        """Of an argument that is broadcast to the result."""
        dim = axis.dim - (len(result) - len(own))
        return replace(axis, dim=dim) if dim >= 0 and own[dim] == result[axis.dim] else None

    def of_result(self, node: Node, axis: Axis, argument: Node) -> Axis | None:
        """Which axis of the result has the rows of an argument; None where they are mixed."""
        own, result = shape_of(argument), shape_of(node)
        if own is None or result is None:
            return None
        if node.target in VIEWS:
            found = self.after_view(own, axis, result)
        elif node.target in REDUCTIONS:
            found = _after_reduction(node, axis, len(own))
        else:
            found = replace(axis, dim=axis.dim + len(result) - len(own))
        return found if found and self.of_argument(node, found, argument) == axis else None

    def slice_of(self, graph: Graph, node: Node, axis: Axis) -> Node:
        """The row that is read of a tensor with all of them."""
        place, length = self.read.place, self.read.length
        args = (node, axis.dim, place, place + 1)
        if axis.flat:
            args = (node, axis.dim, place, sys.maxsize, length)  # type: ignore[assignment]
        return graph.call_function(_ATEN.slice.Tensor, args)

    def reads(self, node: Node) -> Axis | None:
        """The axis of its argument at which a node takes the row out."""
        place, length = self.read.place, self.read.length
        shape = shape_of(node.args[0]) if node.args else None
        if shape is None:
            return None
        if node.target is _ATEN.select.int:
            dim, index = _numbers(node)
            whole = dim % len(shape) == 1 and shape[:2] == (self.read.items, length)
            return Axis(1) if whole and index % length == place else None
        if node.target is _ATEN.slice.Tensor:
            rest = _numbers(node)
            if rest == (0, place, sys.maxsize, length):
                return Axis(0, flat=True)
            if rest[1:] == (place, place + 1) and shape[rest[0]] == length:
                return Axis(rest[0])
        return None


def _numbers(node: Node) -> tuple[int, ...]:
    """The arguments behind the first, of an operator that takes numbers there."""
    return tuple(one for one in node.args[1:] if isinstance(one, int))


def reduced_dims(node: Node, rank: int) -> list[int]:
    """The axes that a reduction of a tensor of `rank` axes takes away."""
    dims: Iterable[int] = node.args[1]  # type: ignore[assignment]
    return sorted(dim % rank for dim in dims)


def keeps_dims(node: Node) -> bool:
    """Whether a reduction leaves axes of length 1."""
    return bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))


def _after_reduction(node: Node, axis: Axis, rank: int) -> Axis | None:
    dims = reduced_dims(node, rank)
    if axis.dim in dims:
        return None
    gone = 0 if keeps_dims(node) else sum(dim < axis.dim for dim in dims)
    return replace(axis, dim=axis.dim - gone)


def _before_reduction(node: Node, axis: Axis, rank: int) -> Axis | None:
    for dim in range(rank):
        if _after_reduction(node, replace(axis, dim=dim), rank) == axis:
            return replace(axis, dim=dim)
    return None


def sizes_of_row(node: Node, axis: Axis, read: Read) -> list[int]:
    """The shape that a view gives for the one row."""
    sizes = list(shape_of(node) or ())
    sizes[axis.dim] = read.items if axis.flat else 1
    return sizes
