"""What a traced backward pass need not compute, taken out before it is compiled.

Where attention weights are constant, relevance goes to the values alone. Two things follow:

- A layer that makes queries, keys and values by one matrix product receives zeros for two of the
  three. Its backward product needs the columns of the values only (`without_zero_columns`).
- The fused backward kernel of attention computes gradients of queries, keys and values. That of
  the values alone is dV_j = sum_i exp(s k_j q_i + m_ij - L_i) g_i, with s the scale, m the mask and
  L the log of the softmax's denominator, which the forward kernel gives. This is itself an
  attention, in which queries and keys change places, times its own denominator
  (`with_value_gradients`).

Both give the same numbers but for rounding.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from transexplain.engine.traced import Traced, behind, is_constant, module_of

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
