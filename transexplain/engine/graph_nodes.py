"""Questions about the nodes of a traced graph, and what of it need not be computed again."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg


def behind(nodes: Iterable[Node]) -> dict[Node, None]:
    """What `nodes` are computed from, these included."""
    found: dict[Node, None] = {}
    ahead = list(nodes)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found[node] = None
            ahead.extend(node.all_input_nodes)
    return found


def targets(node: Node) -> Iterator[Node]:
    """What an operator writes into."""
    schema = getattr(node.target, "_schema", None)
    for place, argument in enumerate(schema.arguments if schema else ()):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, Node):
            yield value


def memory(node: Node) -> Node:
    """The node whose memory a view, or what was written in place, is of."""
    schema = getattr(node.target, "_schema", None)
    first = node.args[0] if node.args else None
    shares = bool(schema and schema.arguments and schema.arguments[0].alias_info)
    return memory(first) if shares and isinstance(first, Node) else node


def is_computed_number(graph: GraphModule, node: Node) -> bool:
    """Whether a node is computed from weights or from pixels: a mask in floats is from neither."""
    return _is_float(node) and any(
        _is_weight(graph, one) or (one.op == "placeholder" and _is_float(one))
        for one in behind([node])
    )


def _is_float(node: Node) -> bool:
    meta = node.meta.get("tensor_meta")  # of an operator with several outputs there is none
    return meta is not None and bool(meta.dtype.is_floating_point)


def _is_weight(graph: GraphModule, node: Node) -> bool:
    """Whether a node is a tensor of the model, and no number in its code."""
    if node.op != "get_attr":
        return False
    value: Tensor = getattr(graph, str(node.target))
    return value.is_floating_point() and value.numel() > 1


def settle_shapes(graph: GraphModule) -> None:
    """Compute now what decides a shape and is the same in every replay, such as all places of ones.

    A device would have to be waited for each time, and no CUDA graph can hold that.
    """
    deciding = [node for node in graph.graph.nodes if _decides(node)]
    written = [(node, memory(one)) for node in graph.graph.nodes for one in targets(node)]
    settled = []
    for node in deciding:
        needed = behind([node])
        places = {memory(one) for one in needed}
        # somebody else may write into what it is computed from
        alone = all(place not in places or writer in needed for writer, place in written)
        if alone and all(map(is_constant, needed)):
            settled.append(node)
    values: dict[Node, Any] = {}
    needed = behind(settled)
    for node in graph.graph.nodes:
        if node in needed:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    for number, node in enumerate(settled):
        _replace(graph, node, f"_settled_{number}", values[node])


def _decides(node: Node) -> bool:
    return torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ())


def is_constant(node: Node) -> bool:
    """Whether a node is an operator whose result depends on what it is given, and on nothing else.

    Of weights and inputs it does not hold: their values may change from one replay to the next.
    """
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return node.op == "call_function" and not random


def _replace(graph: GraphModule, node: Node, name: str, value: Tensor) -> None:
    graph.register_buffer(name, value)
    with graph.graph.inserting_before(node):
        constant = graph.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
    graph.graph.erase_node(node)


def module_of(origin: GraphModule, graph: Graph) -> GraphModule:
    """A graph that was made from that of `origin`, with its tensors, without dead code."""
    graph.eliminate_dead_code()
    graph.lint()
    return GraphModule(origin, graph)
