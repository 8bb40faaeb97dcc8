"""What a traced step need not compute, taken out before it is compiled; numbers stay the same but
for rounding.

Where attention weights are constant, relevance goes to the values alone. Two things follow:

- A layer that makes queries, keys and values by one matrix product receives zeros for two of the
  three. Its backward product needs the columns of the values only (`without_zero_columns`).
- The fused backward kernel of attention computes gradients of queries, keys and values. That of
  the values alone is dV_j = sum_i exp(s k_j q_i + m_ij - L_i) g_i, with s the scale, m the mask and
  L the log of the softmax's denominator, which the forward kernel gives. This is itself an
  attention, in which queries and keys change places, times its own denominator
  (`with_value_gradients`).

A classifier that reads one position, such as the class token, lets relevance begin at that row of
the last block; all others are zeros until attention mixes them. Layers that work row by row need
not compute these zeros, and what the forward pass keeps for the backward pass is needed of that row
alone (`with_read_rows`). A block's feed-forward layers and its output projection are three quarters
of its products.
"""

import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from transexplain.engine.traced import Traced, behind, is_constant, memory, module_of, targets

_ATEN = torch.ops.aten
#: operators that move elements and change none
_MOVING = frozenset(
    {_ATEN.view, _ATEN.reshape, _ATEN._unsafe_view, _ATEN.permute, _ATEN.transpose, _ATEN.t}
    | {_ATEN.clone, _ATEN.contiguous, _ATEN.alias, _ATEN.detach, _ATEN.unsqueeze, _ATEN.squeeze}
)
_JOINING = frozenset({_ATEN.cat.default, _ATEN.stack.default})
_ZEROS = frozenset({_ATEN.zeros, _ATEN.zeros_like, _ATEN.new_zeros})


def without_zero_columns(traced: Traced) -> Traced:
    """The same with matrix products over those columns of a gradient that can be other than 0."""
    second = traced.second
    if not isinstance(second, GraphModule):
        return traced
    graph, copies = _copied(second)
    for node in second.graph.find_nodes(op="call_function", target=_ATEN.mm.default):
        columns = _columns(node.args[0])
        if columns is None:
            continue
        product, (first, last) = copies[node], columns
        gradient, weight = product.args
        with graph.inserting_before(product):
            product.args = (
                graph.call_function(_ATEN.slice.Tensor, (gradient, 1, first, last)),
                graph.call_function(_ATEN.slice.Tensor, (weight, 0, first, last)),
            )
    return replace(traced, second=module_of(second, graph))


def _columns(gradient: Any) -> tuple[int, int] | None:
    """First and last (exclusive) column that can be other than 0; None where all can.

    A gradient (N, K) that is joined from parts, some of them zeros by how they are made.
    """
    moved, node = [], gradient
    while getattr(node.target, "overloadpacket", None) in _MOVING:
        moved.append(node)
        node = node.args[0]
    if node.target not in _JOINING:
        return None
    parts = node.args[0]
    if not any(map(_is_zeros, parts)):
        return None
    marks = [
        torch.full(
            part.meta["tensor_meta"].shape,
            not _is_zeros(part),
            dtype=torch.bool,
            device=part.meta["val"].device,
        )
        for part in parts
    ]
    rows = node.target(marks, *node.args[1:], **node.kwargs)
    for view in reversed(moved):
        rows = view.target(rows, *view.args[1:], **view.kwargs)
    places = rows.any(dim=0).nonzero().flatten().tolist()
    if not places or len(places) == rows.shape[1] or places[-1] - places[0] >= len(places):
        return None  # nothing to leave out, or in several pieces
    return places[0], places[-1] + 1


def _is_zeros(node: Node) -> bool:
    """Return whether a node is made of zeros: created so, and moved or expanded at most."""
    needed = behind([node])
    kinds = {getattr(user.target, "overloadpacket", None) for user in needed}
    return all(map(is_constant, needed)) and kinds <= _ZEROS | _MOVING | {_ATEN.expand}


#: of these the exchanged kernel is faster; of others the fused one is
_HALF = frozenset({torch.bfloat16, torch.float16})
#: the place of the values' gradient among what a backward kernel of attention gives
_VALUES = 2
_KERNELS = frozenset(
    getattr(_ATEN, f"_scaled_dot_product_{kind}_backward").default
    for kind in ("flash_attention", "efficient_attention", "cudnn_attention")
) | {_ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default}


def with_value_gradients(traced: Traced, types: Collection[torch.dtype] = _HALF) -> Traced | None:
    """The same with an operator for the values' gradient alone, where no other is read.

    None where there is no such place with values of one of these types.
    """
    second = traced.second
    if not isinstance(second, GraphModule):
        return None
    graph, copies = _copied(second)
    changed = False
    for node in second.graph.nodes:
        if node.target in _KERNELS and _reads_values_only(node, types):
            changed |= _put_value_gradient(graph, node, copies)
    return replace(traced, second=module_of(second, graph)) if changed else None


def _reads_values_only(node: Node, types: Collection[torch.dtype]) -> bool:
    return bool(node.users) and all(
        user.target is operator.getitem
        and user.args[1] == _VALUES
        and user.meta["tensor_meta"].dtype in types
        for user in node.users
    )


def _put_value_gradient(graph: Graph, node: Node, copies: Mapping[Node, Node]) -> bool:
    schema = node.target._schema  # type: ignore[union-attr]
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given["dropout_p"]:
        return False
    mask = given.get("attn_bias", given.get("attn_mask"))
    for user in node.users:
        meta = user.meta["tensor_meta"]
        args = (
            given["query"],
            given["key"],
            given.get("grad_out", given.get("grad_out_")),
            given["logsumexp"],
            mask,
            bool(given.get("is_causal", False)),
            given.get("scale"),
            list(meta.stride),
        )
        with graph.inserting_before(copies[user]):
            alone = graph.call_function(
                torch.ops.transexplain.value_gradient.default,
                map_arg(args, copies.__getitem__),
            )
        alone.meta = dict(user.meta)
        copies[user].replace_all_uses_with(alone)
    return True


@torch.library.custom_op("transexplain::value_gradient", mutates_args=())
def value_gradient(
    query: Tensor,
    key: Tensor,
    gradient: Tensor,
    logsumexp: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    strides: list[int],
) -> Tensor:
    """dV (B, H', S, E) of attention whose weights are constant.

    Args:
        query, key: (B, H, T, D), (B, H', S, D); H is a multiple of H' where heads share values.
        gradient: of what attention gave, (B, H, T, E).
        logsumexp: of the scores over the keys, (B, H, T); a kernel may give more rows, or an axis
            of length 1 behind.
        mask: added to the scores, broadcast to (B, H, T, S); None: nothing is.
        causal: whether position i sees none behind it.
        scale: of the scores; default: 1 / sqrt(D).
        strides: of the result.
    """
    lse = logsumexp.flatten(2)[..., : query.shape[2]]
    lse = torch.where(lse.isfinite(), lse, torch.inf)  # a row that sees nothing gives nothing
    compute = _by_kernel if query.is_cuda else _written_out
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    items, heads, length, _ = key.shape
    shared = query.shape[1] // heads
    if shared > 1:
        key = key.repeat_interleave(shared, 1)
    mask = None if mask is None else mask.expand(*query.shape[:3], length)
    gradients = compute(query, key, gradient, lse, mask, causal, scale)
    if shared > 1:
        gradients = gradients.view(items, heads, shared, length, -1).sum(dim=2)
    if list(gradients.stride()) == strides:
        return gradients
    out = torch.empty_strided(
        gradients.shape, strides, dtype=gradients.dtype, device=gradients.device
    )
    return out.copy_(gradients)


@value_gradient.register_fake
def _like_values(_query: Tensor, key: Tensor, gradient: Tensor, *others: Any) -> Tensor:
    *_, strides = others
    shape = (*key.shape[:-1], gradient.shape[-1])
    return torch.empty_strided(shape, strides, dtype=gradient.dtype, device=gradient.device)


def _written_out(
    query: Tensor,
    key: Tensor,
    gradient: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> Tensor:
    scores = (query.to(lse.dtype) @ key.to(lse.dtype).transpose(-1, -2)) * scale
    if mask is not None:
        scores = scores + mask
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = (scores - lse.unsqueeze(-1)).exp()
    return (weights.transpose(-1, -2) @ gradient.to(lse.dtype)).to(gradient.dtype)


def _by_kernel(
    query: Tensor,
    key: Tensor,
    gradient: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> Tensor:
    blocks = _seen_from_behind(key.shape[2], query.shape[2], query.device) if causal else None
    with torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=4096):
        gradients: Tensor = _compiled()(query, key, gradient, lse, mask, scale, blocks)
    return gradients


def exchanged(
    query: Tensor,
    key: Tensor,
    gradient: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    scale: float,
    blocks: Any = None,
) -> Tensor:
    """dV by an attention with queries and keys exchanged; see the module's formula."""
    from torch.nn.attention.flex_attention import flex_attention

    def score(value: Tensor, b: Tensor, h: Tensor, j: Tensor, i: Tensor) -> Tensor:
        value = value - lse[b, h, i]
        return value if mask is None else value + mask[b, h, i, j]

    out, total = flex_attention(
        key, query, gradient, score_mod=score, block_mask=blocks, scale=scale, return_lse=True
    )
    return out * total.exp().unsqueeze(-1).to(out.dtype)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(exchanged, fullgraph=True, dynamic=False)


@cache
def _seen_from_behind(keys: int, queries: int, device: torch.device) -> Any:
    """Return which positions i see position j, in blocks: those that are not before it."""
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(_b: Tensor, _h: Tensor, j: Tensor, i: Tensor) -> Tensor:
        return i >= j

    return create_block_mask(sees, None, None, keys, queries, device=str(device))


def _copied(module: GraphModule) -> tuple[Graph, dict[Node, Node]]:
    """A copy of the graph, and each node's place in it."""
    copies: dict[Node, Node] = {}
    graph = Graph()
    output = graph.graph_copy(module.graph, copies)
    graph.output(output)
    return graph, copies


#: operators that keep rows as they are
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

    The backward part is rewritten from where the row is put among zeros (`select_backward`)
    downwards, the forward part from where rows are read upwards. As it is where the backward pass
    begins at several rows, or at all of them.
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
