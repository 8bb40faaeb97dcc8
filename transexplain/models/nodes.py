"""Graphs to node features with what the model asks besides, and the nodes their positions are.

Graph transformers (Ali et al. 2022, section 5.1) read one vector per node; the structure of the
graph reaches them as a bias on the attention scores or as integers that they look one up by.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.base import Batch, Encoded, LongText, failure
from transexplain.models.node_items import MASK, names_of, read_graph
from transexplain.models.node_sites import NodeProbe, one_row
from transexplain.types import Item, ItemFailure, Token


class NodeEncoder:
    """Encodes graphs `{main: (T, F), ...}`; see `node_items.read_graph` for what they hold."""

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
        results: list[Encoded | ItemFailure] = []
        for item in items:
            try:
                results.append(self._one(item))
            except ItemError as error:
                results.append(failure(item, error))
        return results

    def collate(self, encoded: Sequence[Encoded]) -> Batch:
        """Pad nodes on the right with 0 to the most of the batch: features (B, T, F).

        A model that takes `attention_mask` (B, T) gets zeros where nodes are padding; for
        others `LoadedModel.invariance` finds out whether graphs of several sizes may share a batch.
        """
        if not encoded:
            raise ConfigurationError("a batch needs at least one encoded item")
        names = {name: None for one in encoded for name in one.inputs}
        inputs = {name: self._stacked(encoded, name) for name in names}
        lengths = torch.tensor([one.length for one in encoded], device=self.device)
        return Batch(encoded=tuple(encoded), inputs=inputs, lengths=lengths)

    def _one(self, item: Item) -> Encoded:
        inputs = read_graph(item.content, self.main, self.takes)
        nodes, width = inputs[self.main].shape
        if not self.takes(MASK):
            inputs.pop(MASK, None)
        elif MASK not in inputs:
            inputs[MASK] = torch.ones(nodes, dtype=torch.long)
        row = one_row(inputs, self.dtype)
        found = self.probe.of({name: values.to(self.device) for name, values in row.items()})
        if found.width not in (None, width):
            raise ItemError(
                "bad-input", f"{self.main} has width {width}; the model takes {found.width}"
            )
        tokens = _virtual(found.prefix) + _nodes(names_of(item.content, nodes))
        return Encoded(
            item=item, inputs=inputs, features=tokens, length=len(tokens), truncated=False
        )

    def _stacked(self, encoded: Sequence[Encoded], name: str) -> Tensor:
        given = [one.inputs.get(name) for one in encoded]
        rows = [values for values in given if values is not None]
        if len(rows) < len(given):
            missing = encoded[given.index(None)].item.id
            raise ConfigurationError(f"item {missing} has no {name!r}, others do")
        nodes = [one.inputs[self.main].shape[0] for one in encoded]
        most = max(nodes)
        axes = _growing(rows, nodes)
        real = any(values.is_floating_point() for values in rows)
        padded = [_padded(values.to(self.dtype) if real else values, axes, most) for values in rows]
        return torch.stack(padded).to(self.device)


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


def _virtual(count: int) -> tuple[Token, ...]:
    names = ["[graph]"] if count == 1 else [f"[graph {number}]" for number in range(count)]
    return tuple(Token(text=name, start=0, end=0, special=True) for name in names)


def _nodes(names: Sequence[str]) -> tuple[Token, ...]:
    return tuple(Token(text=name, start=0, end=0, word=number) for number, name in enumerate(names))
