"""Computing those positions of the last block alone that the classifier reads.

A classifier that reads one position, such as the class token, lets relevance begin at that row of
the last block; all others are zeros until attention mixes them. Layers that work row by row need
not compute these zeros, and what the forward pass keeps for the backward pass is needed of that row
alone. A block's feed-forward layers and its output projection are three quarters of its products.

The backward part is rewritten from where the row is put among zeros (`select_backward`) downwards,
the forward part from where rows are read upwards. The numbers are the same but for rounding.
"""

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from transexplain.engine.traced import Traced, memory, module_of, targets

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
class PositionAxis:
    """Where the positions stand in a tensor."""

    dim: int
    flat: bool = False  #: the axis counts the positions of all items, B * T


def shape_of(node: Any) -> tuple[int, ...] | None:
    """Of a node that gives one tensor, and was traced."""
    shape = getattr(node.meta.get("tensor_meta"), "shape", None) if isinstance(node, Node) else None
    return None if shape is None else tuple(shape)


@dataclass(frozen=True, slots=True)
class Read:
    """Which row is read: position `place` of the `length` positions (T) of each of B items.

    And how the rows of an operator's result depend on the rows of its arguments.
    """

    items: int
    length: int
    place: int

    def after_view(
        self, before: Sequence[int], axis: PositionAxis, after: Sequence[int]
    ) -> PositionAxis | None:
        """Where the positions stand after (B, T, ...) became another shape, or the other way."""
        if axis.flat:
            unfolded = tuple(after[:2]) == (self.items, self.length)
            return PositionAxis(1) if unfolded else axis if after[:1] == before[:1] else None
        ahead = prod(before[: axis.dim])
        if after[0] == ahead * self.length and ahead == self.items and len(after) < 3:
            return PositionAxis(0, flat=True)
        for dim, size in enumerate(after):
            if size == self.length and prod(after[:dim]) == ahead:
                return PositionAxis(dim)
        return None

    def of_argument(self, node: Node, axis: PositionAxis, argument: Node) -> PositionAxis | None:
        """Return which axis of an argument has the rows that stand at `axis` of the result."""
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
        # broadcast to the result
        dim = axis.dim - (len(result) - len(own))
        return replace(axis, dim=dim) if dim >= 0 and own[dim] == result[axis.dim] else None

    def of_result(self, node: Node, axis: PositionAxis, argument: Node) -> PositionAxis | None:
        """Which axis of the result has the rows of an argument; None where they are mixed."""
        own, result = shape_of(argument), shape_of(node)
        if own is None or result is None:
            return None
        if node.target in VIEWS:
            moved = self.after_view(own, axis, result)
        elif node.target in REDUCTIONS:
            moved = _after_reduction(node, axis, len(own))
        else:
            moved = replace(axis, dim=axis.dim + len(result) - len(own))
        return moved if moved and self.of_argument(node, moved, argument) == axis else None

    def slice_of(self, graph: Graph, node: Node, axis: PositionAxis) -> Node:
        """The row that is read of a tensor with all of them."""
        args = (node, axis.dim, self.place, self.place + 1)
        if axis.flat:
            args = (node, axis.dim, self.place, sys.maxsize, self.length)  # type: ignore[assignment]
        return graph.call_function(_ATEN.slice.Tensor, args)

    def narrow_copy(
        self, graph: Graph, node: Node, axis: PositionAxis, arguments: Callable[[Node], Node]
    ) -> Node:
        """A copy of a node that gives the one row, at `axis`, of these arguments."""
        copy = graph.node_copy(node, arguments)
        copy.meta = {}
        if node.target in VIEWS:
            sizes = list(shape_of(node) or ())
            sizes[axis.dim] = self.items if axis.flat else 1
            copy.args = (copy.args[0], sizes)
        return copy

    def reads(self, node: Node) -> PositionAxis | None:
        """The axis of its argument at which a node takes the row out."""
        place, length = self.place, self.length
        shape = shape_of(node.args[0]) if node.args else None
        if shape is None:
            return None
        if node.target is _ATEN.select.int:
            dim, index = _numbers(node)
            whole = dim % len(shape) == 1 and shape[:2] == (self.items, length)
            return PositionAxis(1) if whole and index % length == place else None
        if node.target is _ATEN.slice.Tensor:
            rest = _numbers(node)
            if rest == (0, place, sys.maxsize, length):
                return PositionAxis(0, flat=True)
            if rest[1:] == (place, place + 1) and shape[rest[0]] == length:
                return PositionAxis(rest[0])
        return None


def _numbers(node: Node) -> tuple[int, ...]:
    """The arguments behind the first, of an operator that takes numbers there."""
    return tuple(argument for argument in node.args[1:] if isinstance(argument, int))


def reduced_dims(node: Node, rank: int) -> list[int]:
    """The axes that a reduction of a tensor of `rank` axes takes away."""
    dims: Iterable[int] = node.args[1]  # type: ignore[assignment]
    return sorted(dim % rank for dim in dims)


def keeps_dims(node: Node) -> bool:
    """Return whether a reduction leaves axes of length 1."""
    return bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))


def _after_reduction(node: Node, axis: PositionAxis, rank: int) -> PositionAxis | None:
    dims = reduced_dims(node, rank)
    if axis.dim in dims:
        return None
    gone = 0 if keeps_dims(node) else sum(dim < axis.dim for dim in dims)
    return replace(axis, dim=axis.dim - gone)


def _before_reduction(node: Node, axis: PositionAxis, rank: int) -> PositionAxis | None:
    for dim in range(rank):
        if _after_reduction(node, replace(axis, dim=dim), rank) == axis:
            return replace(axis, dim=dim)
    return None


_SUMS = frozenset({_ATEN.add.Tensor, _ATEN.sub.Tensor})


def with_read_rows(traced: Traced) -> Traced:
    """The same, computing the row that is read where no other is needed.

    As it is where the backward pass begins at several rows, or at all of them.
    """
    first, second = traced.first, traced.second
    if not isinstance(first, GraphModule) or not isinstance(second, GraphModule):
        return traced
    read = _read(second)
    if (
        read is None
        or read.length == 1
        or any(True for node in second.graph.nodes for _ in targets(node))
    ):
        return traced
    backward = _Backward(read)
    graph, given = backward.rewritten(second.graph)
    places = {place + len(traced.early): axis for place, axis in given.items()}
    return replace(
        traced,
        first=module_of(first, _forward(first, read, places)),
        second=module_of(second, graph),
    )


def _read(second: GraphModule) -> Read | None:
    """The one row that relevance begins at."""
    axes = set()
    for node in second.graph.nodes:
        if _puts_a_row(node):
            _, sizes, _, place = node.args
            axes.add(Read(sizes[0], sizes[1], place % sizes[1]))
    return axes.pop() if len(axes) == 1 else None


def _puts_a_row(node: Node) -> bool:
    """Return whether it puts a row (B, D) among zeros (B, T, D)."""
    if node.target is not _ATEN.select_backward.default:
        return False
    given: tuple[Any, ...] = node.args
    return len(given[1]) == 3 and bool(given[2] == 1)


@dataclass(slots=True)
class _Backward:
    """Rewrites a graph in which one row is put among zeros."""

    read: Read
    graph: Graph = field(default_factory=Graph)
    whole: dict[Node, Node] = field(default_factory=dict)  #: tensors with all rows
    rows: dict[Node, tuple[Node, PositionAxis]] = field(default_factory=dict)  #: with the one row
    _slices: dict[tuple[Node, PositionAxis], Node] = field(default_factory=dict)

    def rewritten(self, origin: Graph) -> tuple[Graph, dict[int, PositionAxis]]:
        """The new graph, and which of its inputs are given with the one row alone."""
        given: list[Node] = []
        for node in origin.nodes:
            if not self._restrict(node):
                copy = self.graph.node_copy(node, self._with_all_rows)
                self.whole[node] = copy
                if node.op == "placeholder":
                    given.append(copy)
        self.graph.eliminate_dead_code()
        slices = {}
        for place, node in enumerate(given):
            axis = self._read_alone(node)
            if axis is not None:
                slices[place] = axis
        return self.graph, slices

    def _read_alone(self, node: Node) -> PositionAxis | None:
        """The axis at which all users of an input take the row; they read the input then."""
        (user, *others) = node.users or [node]
        axes = {axis for (source, axis), made in self._slices.items() if made is user}
        if others or len(axes) != 1:
            return None
        user.replace_all_uses_with(node)
        self.graph.erase_node(user)
        return axes.pop()

    def _restrict(self, node: Node) -> bool:
        if _puts_a_row(node):
            row = self._with_all_rows(node.args[0])
            made = self.graph.call_function(_ATEN.unsqueeze.default, (row, 1))
            self.rows[node] = made, PositionAxis(1)
            return True
        arguments = [argument for argument in node.all_input_nodes if argument in self.rows]
        if node.op != "call_function" or not arguments or not self._keeps_zeros(node, arguments):
            return False
        axes = {self.read.of_result(node, self.rows[a][1], a) for a in arguments}
        if len(axes) != 1:
            return False
        (axis,) = axes
        if axis is None:
            return self._sum_over_rows(node, arguments)
        self.rows[node] = self._copy(node, axis), axis
        return True

    def _keeps_zeros(self, node: Node, arguments: Sequence[Node]) -> bool:
        tensors = node.all_input_nodes
        if node.target in _SUMS:
            return len(arguments) == len(tensors) and len(node.args) == 2
        if node.target is _ATEN.mul.Tensor:
            return True
        if node.target in PRODUCTS:
            place = PRODUCTS[node.target]
            return place == 0 and arguments == [node.args[0]] and self.rows[arguments[0]][1].flat
        first = arguments == [node.args[0]]
        alone = {_ATEN.div.Tensor, _ATEN.neg.default} | SAME | VIEWS | REDUCTIONS
        return first and node.target in alone

    def _sum_over_rows(self, node: Node, arguments: Sequence[Node]) -> bool:
        """A sum over the rows is that of the one row, for the others are zeros."""
        own, axis = self.rows[arguments[0]]
        rank = len(shape_of(arguments[0]) or ())
        if node.target is not _ATEN.sum.dim_IntList or axis.dim not in reduced_dims(node, rank):
            return False
        if axis.flat or keeps_dims(node):
            return False
        copy = self.graph.node_copy(
            node, lambda argument: own if argument is arguments[0] else argument
        )
        self.whole[node] = copy
        return True

    def _copy(self, node: Node, axis: PositionAxis) -> Node:
        def given(argument: Node) -> Node:
            if argument in self.rows:
                return self.rows[argument][0]
            own = self.read.of_argument(node, axis, argument)
            full = self._with_all_rows(argument)
            if own is None:
                return full
            if (full, own) not in self._slices:
                self._slices[full, own] = self.read.slice_of(self.graph, full, own)
            return self._slices[full, own]

        return self.read.narrow_copy(self.graph, node, axis, given)

    def _with_all_rows(self, node: Any) -> Node:
        if node not in self.whole:
            row, axis = self.rows[node]
            shape = shape_of(node)
            assert shape is not None
            sizes = list(shape)
            if axis.flat:
                sizes = [self.read.items, self.read.length, *shape[1:]]
                row = self.graph.call_function(_ATEN.unsqueeze.default, (row, 1))
            dim = 1 if axis.flat else axis.dim
            row = self.graph.call_function(_ATEN.select.int, (row, dim, 0))
            args = (row, sizes, dim, self.read.place)
            made = self.graph.call_function(_ATEN.select_backward.default, args)
            if axis.flat:
                made = self.graph.call_function(_ATEN.view.default, (made, list(shape)))
            made.meta = dict(node.meta)
            self.whole[node] = made
        return self.whole[node]


def _forward(first: GraphModule, read: Read, places: Mapping[int, PositionAxis]) -> Graph:
    """The forward part, with those outputs restricted to the row, and what leads to them."""
    origin = Graph()
    outputs: Any = origin.graph_copy(first.graph, {})
    rows_alone = (
        read.slice_of(origin, output, places[place]) if place in places else output
        for place, output in enumerate(outputs)
    )
    origin.output(tuple(rows_alone))
    _write_elsewhere(origin)
    rows = _needed_of_one_row(origin, read)
    graph = Graph()
    whole: dict[Node, Node] = {}
    narrow: dict[Node, Node] = {}
    for node in origin.nodes:
        if node in rows:
            narrow[node] = _narrowed(graph, node, rows, whole, narrow, read)
        elif node.op == "call_function" and node.args and node.args[0] in narrow:
            own = narrow[node.args[0]]  # it takes the row out
            if node.target is _ATEN.select.int:
                own = graph.call_function(_ATEN.select.int, (own, node.args[1], 0))
            whole[node] = own
        else:
            whole[node] = graph.node_copy(node, whole.__getitem__)
    return graph


def _write_elsewhere(graph: Graph) -> None:
    """Operators that write into a tensor nobody else reads afterwards give a new one instead."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        written = list(targets(node))
        if len(written) != 1 or memory(written[0]) is not written[0]:
            continue
        own = written[0]
        packet = getattr(node.target, "overloadpacket", None)
        other = getattr(_ATEN, str(packet).rpartition(".")[2].removesuffix("_"), None)
        fresh = own.op == "call_function" and own is node.args[0]
        later = [user for user in own.users if order[user] > order[node]]
        if packet is not None and other is not None and fresh and not later:
            node.target = getattr(other, node.target._overloadname)


def _needed_of_one_row(graph: Graph, read: Read) -> dict[Node, PositionAxis]:
    """The nodes of which nobody needs more than the row, and where it stands."""
    needed: dict[Node, PositionAxis] = {}
    for node in reversed(graph.nodes):
        axes = {_needed_by(user, node, needed, read) for user in node.users}
        if len(axes) == 1 and None not in axes and _row_by_row(node):
            (axis,) = axes
            assert axis is not None
            # its rows are made from the same rows of an argument
            if any(read.of_argument(node, axis, argument) for argument in node.all_input_nodes):
                needed[node] = axis
    # of a norm that is needed in full, what it gives is made in full
    return {
        node: axis
        for node, axis in needed.items()
        if node.target is not operator.getitem or node.args[0] in needed
    }


def _needed_by(
    user: Node, node: Node, needed: Mapping[Node, PositionAxis], read: Read
) -> PositionAxis | None:
    if user in needed:
        return read.of_argument(user, needed[user], node)
    return read.reads(user) if user.args and user.args[0] is node else None


def _row_by_row(node: Node) -> bool:
    if node.op != "call_function" or any(True for _ in targets(node)):
        return False
    if node.target is operator.getitem:
        made: Any = node.args[0]
        return made.target is NORM
    known = node.target in {NORM, *PRODUCTS} | SAME | VIEWS | REDUCTIONS
    return known or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _narrowed(
    graph: Graph,
    node: Node,
    rows: Mapping[Node, PositionAxis],
    whole: Mapping[Node, Node],
    narrow: Mapping[Node, Node],
    read: Read,
) -> Node:
    axis = rows[node]

    def given(argument: Node) -> Node:
        own = read.of_argument(node, axis, argument)
        if own is None:
            return whole[argument]
        return (
            narrow[argument] if argument in narrow else read.slice_of(graph, whole[argument], own)
        )

    return read.narrow_copy(graph, node, axis, given)
