"""The model as a function of its input layer: for methods that run it at many points."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.models.base import Batch, LoadedModel

#: positions that one forward pass holds at once, where a method runs many points
POSITIONS_AT_ONCE = 4096


class _Swap:
    """Taps that note what stands at the input layer, and put something else there."""

    def __init__(self, values: Tensor | None) -> None:
        self.values, self.found = values, torch.empty(0)

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.found = tensor.detach()
        return tensor if self.values is None else self.values.to(tensor.dtype)

    def encoder_begins(self) -> None:
        """Nothing depends on where the encoder begins."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafForward:
    """Logits as a function of the tensor at an input layer, for rows of one batch."""

    model: LoadedModel
    batch: Batch
    at: str
    start: Tensor  #: (B, T, D) at `encoder` and `words`, (B, 3, H, W) at `pixels`
    logits: NDArray[np.float64]  #: (B, C) of the batch as it is

    @classmethod
    def of(cls, model: LoadedModel, batch: Batch, at: str | None) -> Self:
        """One forward pass that reads the input layer."""
        taps, input_layer = _Swap(None), at or model.default_at
        with torch.no_grad():
            logits = model.run(batch, at=input_layer, taps=taps)
        return cls(model, batch, input_layer, taps.found, as_array(logits))

    def __call__(self, values: Tensor, rows: Tensor) -> Tensor:
        """Logits (N, C) with `values` (N, ...) in the place of the items `rows` (N,) of the batch.

        The graph is recorded where the caller has gradients on.
        """
        return self.model.run(repeated(self.batch, rows), at=self.at, taps=_Swap(values))

    def explained(self, values: Tensor, rows: Tensor, seed: Tensor) -> Tensor:
        """(N,) the seeded sum of logits, for a seed (B, C)."""
        logits = self(values, rows)
        return (logits * seed.to(logits)[rows]).sum(dim=1)

    def gradients(self, values: Tensor, rows: Tensor, seed: Tensor) -> Tensor:
        """(N, ...) the gradient of the seeded sum of logits at `values`."""
        with torch.enable_grad():
            points = values.detach().requires_grad_(True)
            total = self.explained(points, rows, seed).sum()
            return torch.autograd.grad(total, points)[0].detach()

    def chunks(self, rows: Tensor) -> Iterator[slice]:
        """Slices of `rows` (N,) that are few enough for one pass."""
        width = int(self.batch.lengths.max())
        step = max(1, POSITIONS_AT_ONCE // width)
        if not self.model.invariance(self.batch.encoded[0], ragged=False).batch:
            step = 1
        for begin in range(0, rows.shape[0], step):
            yield slice(begin, min(begin + step, rows.shape[0]))


def repeated(batch: Batch, rows: Tensor) -> Batch:
    """A batch of the items `rows` (N,), each as often as it is named, padded as before."""
    return Batch(
        encoded=tuple(batch.encoded[row] for row in rows.tolist()),
        inputs={name: values[rows] for name, values in batch.inputs.items()},
        lengths=batch.lengths[rows],
    )


def as_array(logits: Tensor) -> NDArray[np.float64]:
    """(B, C) logits as float64 numbers."""
    found: NDArray[np.float64] = logits.detach().double().cpu().numpy()
    return found


def is_double(values: Any) -> bool:
    """Whether a tensor is of float64: relevance is kept so then."""
    return bool(values.dtype == torch.float64)
