"""Where the input layer of a graph model is: the first graph that it is given shows it.

A module does not say how wide its nodes are or which inputs it needs, so nothing can be probed
before there is a graph.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transexplain.errors import ItemError
from transexplain.models.call import Caller
from transexplain.models.leaves import Layout, Sites
from transexplain.models.node_items import changed
from transexplain.models.sites import FORWARD_ERRORS, Probe, first_sites, sites_of_blocks

#: a position reacts when it moves by more than this share of the most moved one
_REACTS = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSites:
    """The input layers of one graph model, and what stands before its nodes there."""

    sites: Sites
    prefix: int = 0  #: positions before the first node at `encoder`: virtual nodes
    width: int | None = None  #: F; None: no graph was seen yet


class NodeProbe:
    """Finds the input layer `encoder` of one module at the first graph, once for all threads."""

    def __init__(self, module: nn.Module, caller: Caller) -> None:
        self._module, self._caller = module, caller
        self._lock = threading.Lock()
        self._found: NodeSites | None = None

    def sites(self) -> Sites:
        """The input layers; before the first graph, the most likely ones."""
        found = self._found
        return first_sites(self._module, ()) if found is None else found.sites

    def of(self, inputs: Mapping[str, Tensor]) -> NodeSites:
        """What the model shows for one graph: `inputs` (1, ...) each, on its device.

        Raises ItemError `model-error` where the model fails on it; the next graph is then tried.
        """
        with self._lock:
            if self._found is None:
                try:
                    self._found = self._measured(inputs)
                except FORWARD_ERRORS as error:
                    raise ItemError(
                        "model-error", f"the model failed on it: {type(error).__name__}: {error}"
                    ) from error
            return self._found

    def _measured(self, inputs: Mapping[str, Tensor]) -> NodeSites:
        """The first layer list that reads one vector per node, and nothing else of the nodes."""
        main = self._caller.main
        graph = {name: values[0] for name, values in inputs.items()}
        other = {name: values[None] for name, values in changed(graph, main).items()}
        probe = Probe(
            module=self._module, caller=self._caller, inputs=dict(inputs), others=dict(other)
        )
        swapped = replace(probe, inputs=probe.others, others=probe.inputs)
        _, nodes, width = inputs[main].shape
        probe.run()  # a graph that the model fails on shows nothing
        for sites in sites_of_blocks(self._module):
            first, second = (
                probe.input_layer(sites, "encoder"),
                swapped.input_layer(sites, "encoder"),
            )
            if first is None or second is None or first.shape != second.shape:
                continue
            layout = _layout(first)
            prefix = None if layout is None else _prefix(_moved(first, second, layout), nodes)
            if layout is None or prefix is None:
                continue
            found = replace(sites, layout=layout)
            if probe.is_cut(found, "encoder"):
                return NodeSites(sites=found, prefix=prefix, width=width)
        return NodeSites(sites=Sites(block=None), width=width)


def _layout(input_layer: Tensor) -> Layout | None:
    if input_layer.ndim != 3 or 1 not in input_layer.shape[:2]:
        return None
    return "sequence" if input_layer.shape[0] == 1 else "positions_first"


def _moved(first: Tensor, second: Tensor, layout: Layout) -> Tensor:
    """(T,) how far each position of the input layer moved from one graph to the other."""
    moved = (first.double() - second.double()).abs().amax(-1)
    return moved[0] if layout == "sequence" else moved[:, 0]


def _prefix(moved: Tensor, nodes: int) -> int | None:
    """Positions before the nodes, which do not react to the nodes; None: not known."""
    prefix = moved.shape[0] - nodes
    if prefix <= 0:
        return prefix if prefix == 0 else None
    reacts = moved > _REACTS * moved.max()
    before, after = reacts[:prefix], reacts[prefix:]
    return prefix if bool(after.any()) and not bool(before.any()) else None


def one_row(inputs: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A batch of one graph, real numbers in the model's number type."""
    return {
        name: (values.to(dtype) if values.is_floating_point() else values)[None]
        for name, values in inputs.items()
    }
