"""A step traced once: a flat graph of aten operators in the place of the model's Python code.

What Python reads from a tensor while a step is traced decides what comes next: whether a mask hides
anything, which axis counts the items. Each such reading that depends on the inputs is a *guard*. It
becomes an output of the graph, and a replay in which it reads otherwise is not valid. Nothing else
of the trace depends on values, so a replay whose guards hold computes what eager code would.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from transexplain.errors import EngineError


def behind(nodes: Iterable[Node]) -> dict[Node, None]:
    """Return what `nodes` are computed from, these included."""
    earlier: dict[Node, None] = {}
    ahead = list(nodes)
    while ahead:
        node = ahead.pop()
        if node not in earlier:
            earlier[node] = None
            ahead.extend(node.all_input_nodes)
    return earlier


def targets(node: Node) -> Iterator[Node]:
    """Return what an operator writes into."""
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
        _is_weight(graph, earlier) or (earlier.op == "placeholder" and _is_float(earlier))
        for earlier in behind([node])
    )


def _is_float(node: Node) -> bool:
    meta = node.meta.get("tensor_meta")  # of an operator with several outputs there is none
    return meta is not None and bool(meta.dtype.is_floating_point)


def _is_weight(graph: GraphModule, node: Node) -> bool:
    """Return whether a node is a tensor of the model, and no number in its code."""
    if node.op != "get_attr":
        return False
    value: Tensor = getattr(graph, str(node.target))
    return value.is_floating_point() and value.numel() > 1


def settle_shapes(graph: GraphModule) -> None:
    """Compute now what decides a shape and is the same in every replay, such as all places of ones.

    A device would have to be waited for each time, and no CUDA graph can hold that.
    """
    dynamic = torch.Tag.dynamic_output_shape
    written = [(node, memory(target)) for node in graph.graph.nodes for target in targets(node)]
    settled = []
    for node in graph.graph.nodes:
        if dynamic not in getattr(node.target, "tags", ()):
            continue
        needed = behind([node])
        places = {memory(place) for place in needed}
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
        name = f"_settled_{number}"
        graph.register_buffer(name, values[node])
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(name)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        graph.graph.erase_node(node)


def is_constant(node: Node) -> bool:
    """Whether a node is an operator whose result depends on what it is given, and on nothing else.

    Of weights and inputs it does not hold: their values may change from one replay to the next.
    """
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return node.op == "call_function" and not random


def module_of(origin: GraphModule, graph: Graph) -> GraphModule:
    """A graph that was made from that of `origin`, with its tensors, without dead code."""
    graph.eliminate_dead_code()
    graph.lint()
    return GraphModule(origin, graph)


Function = Callable[..., Sequence[Tensor]]


class UntraceableError(EngineError):
    """Why a step cannot be replayed: what in it depends on values, and not on shapes alone."""


class _Shapes(threading.local):
    fixed = False


_SHAPES = _Shapes()


def shapes_are_fixed() -> bool:
    """Whether values may not decide what is computed; what is merely faster for some stays out."""
    return _SHAPES.fixed


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Compute the same operators whatever the values are, as a trace has to."""
    before, _SHAPES.fixed = _SHAPES.fixed, True
    try:
        yield
    finally:
        _SHAPES.fixed = before


Part = Callable[..., Sequence[Tensor]]  #: of a graph: its inputs -> its outputs


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced function in parts, cut where its last input is first needed.

    The last input of a step is the seed: the first part is the forward pass, and the second the
    backward pass, which may be called for several seeds.
    """

    check: Part  #: inputs but the last -> what the guards read
    first: Part  #: inputs but the last -> outputs and what `second` needs
    second: Part  #: what it needs and the last input -> outputs
    early: tuple[int, ...]  #: places of the outputs that `first` gives
    late: tuple[int, ...]  #: and of those that `second` gives
    guards: tuple[Tensor, ...]  #: what was read while it was traced
    operators: int  #: that a replay calls
    kind: Literal["replayed", "compiled"] = "replayed"

    def applies(self, *inputs: Tensor) -> bool:
        """Return whether every guard reads what it read while this was traced."""
        if not self.guards:
            return True
        with torch.no_grad():
            return all(map(torch.equal, self.check(*inputs), self.guards))

    def begin(self, *inputs: Tensor) -> "Begun":
        """Run the first part; only for inputs that it `applies` to."""
        with torch.no_grad():
            found = self.first(*inputs)
        outputs = dict(zip(self.early, found[: len(self.early)], strict=True))
        return Begun(self, outputs, tuple(found[len(self.early) :]))


@dataclass(frozen=True, slots=True)
class Begun:
    """A replay after its first part."""

    traced: Traced
    outputs: Mapping[int, Tensor]  #: by place, those that are known already
    needed: tuple[Tensor, ...]

    def end(self, last: Tensor) -> tuple[Tensor, ...]:
        """All outputs, for one value of the last input."""
        with torch.no_grad():
            outputs = self.traced.second(*self.needed, last)
        every = {**self.outputs, **dict(zip(self.traced.late, outputs, strict=True))}
        return tuple(every[place] for place in sorted(every))


#: torch traces and compiles with state of the whole process: one thread at a time does either
ONE_AT_A_TIME = threading.RLock()


def traced(function: Function, inputs: Sequence[Tensor]) -> Traced:
    """Trace `function`, which gives tensors, on these inputs.

    What it closes over (weights) is part of the graph by reference; it must not change any of it.

    It waits for whatever is traced or compiled in another thread. Raises UntraceableError where a
    shape depends on values.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    # what decides the course of the function, in the order of its reading
    values: list[Tensor] = []  # that Python reads
    shaping: list[Tensor] = []  # masks that decide a size

    def whole(*given: Tensor) -> list[Tensor]:
        values.clear()
        shaping.clear()
        with fixed_shapes(), _ReadByPython(values), _Read(values, shaping):
            outputs = list(function(*given))
        return [*outputs, *values, *shaping]

    with ONE_AT_A_TIME:
        graph = make_fx(whole, tracing_mode="real")(*inputs)
        settle_shapes(graph)
        graph.graph.eliminate_dead_code()
        return _parted(graph, values, shaping)


class _Read(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every number that leaves a tensor, and every tensor that decides a shape."""

    def __init__(self, values: list[Tensor], shaping: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values, self.shaping = values, shaping

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.dynamic_output_shape in func.tags:
            self.shaping.extend(_deciding(func, args))
        if func not in _READING:
            return func(*args, **(kwargs or {}))
        from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

        self.values.extend(args)
        with disable_proxy_modes_tracing():
            return func(*args, **(kwargs or {}))


def _deciding(func: Any, args: tuple[Any, ...]) -> list[Tensor]:
    """The arguments whose values decide the shape of what `func` gives."""
    if func is not torch.ops.aten.index.Tensor:
        return [argument for argument in args if isinstance(argument, Tensor)]
    masks = (torch.bool, torch.uint8)  # as many as there are indices, whatever these are
    return [index for index in args[1] if index is not None and index.dtype in masks]


_READING = frozenset({torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default})
_READ_WHOLE = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__})


class _ReadByPython(TorchFunctionMode):
    """The same for what takes a tensor's memory as it is, past every dispatcher."""

    def __init__(self, values: list[Tensor]) -> None:
        super().__init__()
        self.values = values

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _READ_WHOLE:
            self.values.append(args[0].detach())
        return func(*args, **(kwargs or {}))


def _depending(graph: GraphModule, on: Sequence[Node]) -> dict[Node, None]:
    """The nodes that are computed from `on`, these included, in order."""
    dependent = dict.fromkeys(on)
    for node in graph.graph.nodes:
        if any(argument in dependent for argument in node.all_input_nodes):
            dependent[node] = None
    return dependent


def _parted(graph: GraphModule, values: Sequence[Tensor], shaping: Sequence[Tensor]) -> Traced:
    *_, last = inputs = list(graph.graph.find_nodes(op="placeholder"))
    (end,) = graph.graph.find_nodes(op="output")
    read = [*values, *shaping]
    results = list(end.args[0])
    given, guards = results[: len(results) - len(read)], results[len(results) - len(read) :]
    moving, late = _depending(graph, inputs), _depending(graph, [last])
    if any(guard in late for guard in guards):
        raise UntraceableError("what is computed depends on numbers that are read from the seed")
    _refuse_shapes_of_numbers(graph, guards[len(values) :], moving)
    kept = [(guard, value) for guard, value in zip(guards, read, strict=True) if guard in moving]
    after = [node for node in late if node not in (last, end)]
    needed = dict.fromkeys(
        argument for node in after for argument in node.all_input_nodes if argument not in late
    )
    again = _made_again(graph, needed)
    needed = {node: None for node in needed if node not in again}
    after = [*again, *after]
    early = [place for place, output in enumerate(given) if output not in late]
    afterwards = [place for place, output in enumerate(given) if output in late]
    before = [node for node in graph.graph.nodes if node not in late and node is not end]
    read_again = [kept_node for kept_node, _ in kept]
    return Traced(
        check=_part(graph, [], _needed_for(read_again, inputs[:-1], before), read_again),
        first=_part(graph, [], before, [*(given[place] for place in early), *needed]),
        second=_part(
            graph,
            [*needed, last],
            after,
            [given[place] for place in afterwards],
            _written(after, needed),
        ),
        early=tuple(early),
        late=tuple(afterwards),
        guards=tuple(value.detach().clone() for _, value in kept),
        operators=sum(node.op == "call_function" for node in graph.graph.nodes),
    )


def _made_again(graph: GraphModule, needed: Collection[Node]) -> dict[Node, None]:
    """Constants among `needed`, such as zeros, and what they are made from.

    The second part makes them itself: they would be stored in full between the parts.
    """
    written = {memory(target) for node in graph.graph.nodes for target in targets(node)}
    constants: dict[Node, None] = {}
    for node in needed:
        own = behind([node])
        if all(map(is_constant, own)) and not any(memory(argument) in written for argument in own):
            constants.update(own)
    return {node: None for node in graph.graph.nodes if node in constants}


def _needed_for(
    wanted: Sequence[Node], inputs: Sequence[Node], nodes: Sequence[Node]
) -> list[Node]:
    """Those of `nodes` that `wanted` are computed from, and all inputs, in order."""
    needed = dict.fromkeys([*inputs, *behind(wanted)])
    places = {memory(node) for node in needed}
    if any(memory(target) in places for node in nodes for target in targets(node)):
        return list(nodes)  # what is written in place is needed where nobody names it
    return [node for node in nodes if node in needed]


def _refuse_shapes_of_numbers(
    graph: GraphModule,
    masks: Sequence[Node],
    moving: Mapping[Node, None],
) -> None:
    """Masks of the inputs (padding, separators) are alike in many batches; routing never is."""
    for node in behind(mask for mask in masks if mask in moving):
        if node in moving and is_computed_number(graph, node):
            raise UntraceableError(
                f"how large a tensor is depends on numbers that the model computes ({node})"
            )


def _written(nodes: Sequence[Node], given: Mapping[Node, None]) -> list[Node]:
    """Those of `given` that `nodes` write into; raises where another would see it."""
    reached = dict.fromkeys(target for node in nodes for target in targets(node) if target in given)
    for one in reached:
        if any(other is not one and memory(other) is memory(one) for other in given):
            raise UntraceableError(f"the backward pass writes into a view of {one}")
    return list(reached)


def _part(
    graph: GraphModule,
    given: Sequence[Node],
    nodes: Sequence[Node],
    results: Sequence[Node],
    written: Collection[Node] = (),
) -> GraphModule:
    """These nodes as a graph of their own; `given` become its inputs, `written` ones copied."""
    part = Graph()
    copies = {node: part.placeholder(node.name) for node in given}
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    for node in written:  # the next call needs them as they are
        copies[node] = part.call_function(torch.ops.aten.clone.default, (copies[node],))
    for node in nodes:
        copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(tuple(copies[result] for result in results))
    part.eliminate_dead_code()  # such as what only a guard needed that always holds
    part.lint()
    return GraphModule(graph, part)
