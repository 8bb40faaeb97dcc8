"""Encodes graphs as model inputs, and finds the nodes at the input layer."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.assemble import Origin, device_of, dtype_of, ref_of
from transexplain.models.calling import Caller
from transexplain.models.graph_inputs import MASK, changed, names_of, read_graph
from transexplain.models.input_layer import (
    FORWARD_ERRORS,
    Layout,
    Probe,
    Sites,
    first_sites,
    sites_of_blocks,
)
from transexplain.models.loaded_model import (
    Batch,
    Encoded,
    LoadedModel,
    LongText,
    Padded,
    encode_each,
)
from transexplain.types.items import Item, ItemFailure
from transexplain.types.tokens import Token

#: a position reacts when it moves by more than this share of the most moved one
_REACTS = 1e-4


class NodeProbe:
    """Finds the input layer `encoder` of one module at the first graph, once for all threads."""

    def __init__(self, module: nn.Module, caller: Caller) -> None:
        self._module, self._caller = module, caller
        self._lock = threading.Lock()
        self._measured: tuple[Sites, int, int] | None = None

    def sites(self) -> Sites:
        """The input layers; before the first graph, the most likely ones."""
        measured = self._measured
        return first_sites(self._module, ()) if measured is None else measured[0]

    def prefix_and_width(self, inputs: Mapping[str, Tensor]) -> tuple[int, int]:
        """The positions before the first node at `encoder` (virtual nodes), and F.

        As the first graph shows them: `inputs` (1, ...) each, on its device. Raises ItemError
        `model-error` where the model fails on it; the next graph is then tried.
        """
        with self._lock:
            if self._measured is None:
                try:
                    self._measured = self._measure(inputs)
                except FORWARD_ERRORS as error:
                    raise ItemError(
                        "model-error", f"the model failed on it: {type(error).__name__}: {error}"
                    ) from error
            return self._measured[1:]

    def _measure(self, inputs: Mapping[str, Tensor]) -> tuple[Sites, int, int]:
        """The first layer list that reads one vector per node, and nothing else of the nodes."""
        main = self._caller.main
        graph = {name: values[0] for name, values in inputs.items()}
        other = {name: values[None] for name, values in changed(graph, main).items()}
        probe = Probe(
            module=self._module, caller=self._caller, inputs=dict(inputs), others=dict(other)
        )
        swapped = replace(probe, inputs=probe.others, others=probe.inputs)
        _, nodes, width = inputs[main].shape
        probe.run()  # a graph on which the model fails gives no information
        for sites in sites_of_blocks(self._module):
            first, second = (run.input_layer(sites, "encoder") for run in (probe, swapped))
            if first is None or second is None or first.shape != second.shape:
                continue
            if first.ndim != 3 or 1 not in first.shape[:2]:
                continue
            layout: Layout = "sequence" if first.shape[0] == 1 else "positions_first"
            # (T,) how far each position moved from one graph to the other
            moved = (first.double() - second.double()).abs().amax(-1).flatten()
            prefix = _prefix(moved, nodes)
            if prefix is None:
                continue
            improved = replace(sites, layout=layout)
            if probe.is_cut(improved, "encoder"):
                return improved, prefix, int(width)
        return Sites(block=None), 0, int(width)


def _prefix(moved: Tensor, nodes: int) -> int | None:
    """The number of positions before the nodes, which do not react to them; None: not known."""
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


class NodeEncoder:
    """Encodes graphs `{main: (T, F), ...}`; see `graph_inputs.read_graph` for what they hold."""

    def __init__(
        self,
        *,
        main: str,
        takes: Callable[[str], bool],
        probe: NodeProbe,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.main = main  #: name of the input that holds the features of the nodes
        self.takes = takes  #: whether the model has a place for an input of this name
        self.probe = probe
        self.dtype, self.device = dtype, device

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Inputs and nodes of each item, in order; the text parameters do not apply."""
        del long_text, max_length
        return encode_each(items, self._one)

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """Pad nodes on the right with 0 to the most of the batch: features (B, T, F).

        A model that takes `attention_mask` (B, T) gets zeros where nodes are padding; for
        others `invariance_of` finds out whether graphs of several sizes may share a batch.
        """
        if not encoded:
            raise ConfigurationError("a batch needs at least one encoded item")
        names = {name: None for entry in encoded for name in entry.inputs}
        inputs = {name: self._stacked(encoded, name) for name in names}
        lengths = torch.tensor([entry.length for entry in encoded])

        def moved() -> Batch:
            there = {name: values.to(self.device) for name, values in inputs.items()}
            return Batch(encoded=tuple(encoded), inputs=there, lengths=lengths.to(self.device))

        return moved

    def _one(self, item: Item) -> Encoded:
        inputs = read_graph(item.content, self.main, self.takes)
        nodes, width = inputs[self.main].shape
        if not self.takes(MASK):
            inputs.pop(MASK, None)
        elif MASK not in inputs:
            inputs[MASK] = torch.ones(nodes, dtype=torch.long)
        row = one_row(inputs, self.dtype)
        prefix, takes = self.probe.prefix_and_width(
            {name: values.to(self.device) for name, values in row.items()}
        )
        if takes != width:
            raise ItemError("bad-input", f"{self.main} has width {width}; the model takes {takes}")
        names = ["[graph]"] if prefix == 1 else [f"[graph {number}]" for number in range(prefix)]
        tokens = (
            *(Token(text=name, start=0, end=0, special=True) for name in names),
            *(
                Token(text=name, start=0, end=0, word=number)
                for number, name in enumerate(names_of(item.content, nodes))
            ),
        )
        return Encoded(
            item=item, inputs=inputs, features=tokens, length=len(tokens), truncated=False
        )

    def _stacked(self, encoded: Sequence[Encoded], name: str) -> Tensor:
        given = [entry.inputs.get(name) for entry in encoded]
        rows = [values for values in given if values is not None]
        if len(rows) < len(given):
            missing = encoded[given.index(None)].item.id
            raise ConfigurationError(f"item {missing} has no {name!r}, others do")
        nodes = [entry.inputs[self.main].shape[0] for entry in encoded]
        most = max(nodes)
        axes = _growing(rows, nodes)
        real = any(values.is_floating_point() for values in rows)
        padded = [_padded(values.to(self.dtype) if real else values, axes, most) for values in rows]
        return torch.stack(padded)


def _growing(rows: Sequence[Tensor], nodes: Sequence[int]) -> list[int]:
    """The axes that run over the nodes in every graph of a batch.

    Where graphs differ in size no other axis can follow them all; where none differs nothing is
    padded.
    """
    return [
        axis
        for axis in range(rows[0].ndim)
        if all(
            row.ndim == rows[0].ndim and row.shape[axis] == count
            for row, count in zip(rows, nodes, strict=True)
        )
    ]


def _padded(values: Tensor, axes: Sequence[int], most: int) -> Tensor:
    missing = [most - size if axis in axes else 0 for axis, size in enumerate(values.shape)]
    # pad() counts from the last axis, each with what comes before and after
    return F.pad(values, [amount for missed in reversed(missing) for amount in (0, missed)])


def assemble_nodes(module: nn.Module, *, classes: Sequence[str], origin: Origin) -> LoadedModel:
    """A graph model; its first graph will show where the nodes are at the input layer `encoder`."""
    caller = Caller.of(module, "nodes")
    probe = NodeProbe(module, caller)
    return LoadedModel(
        module=module,
        modality="nodes",
        classes=tuple(classes),
        ref=ref_of(module, "nodes", classes, origin),
        encoder=NodeEncoder(
            main=caller.main,
            takes=caller.takes,
            probe=probe,
            dtype=dtype_of(module),
            device=device_of(module),
        ),
        caller=caller,
        located=probe.sites,
    )
