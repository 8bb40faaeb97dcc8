"""Shared parts of methods at the input layer: the model as a function of it, relevance per
position, completeness.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.engine.replay import TensorFunction
from transexplain.engine.steps import Steps, bucket_of
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Features,
    Resolve,
    SeedRelevance,
    explain_targets,
    sum_of_item,
)
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.models.text_encoder import TextEncoder
from transexplain.settings import step_policy
from transexplain.types.items import PatchGrid, Unit

#: positions that one forward pass holds at once, where a method runs many points
POSITIONS_AT_ONCE = 4096


class _Swap:
    """Taps that record the tensor at the input layer, and replace it."""

    def __init__(self, values: Tensor | None) -> None:
        self.values, self.found = values, torch.empty(0)

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.found = tensor.detach()
        return tensor if self.values is None else self.values.to(tensor.dtype)

    def encoder_begins(self) -> None:
        """Nothing depends on where the encoder begins."""


_MAKING = threading.Lock()


def steps_of(model: LoadedModel) -> Steps:
    """The recurring steps of `model`, kept as long as it.

    Raises ConfigurationError for a value of `TRANSEXPLAIN_STEPS` that is not known.
    """
    with _MAKING:
        steps: Steps | None = model.steps.get("steps")
        if steps is None:
            steps = model.steps["steps"] = Steps(step_policy())
        return steps


def in_bucket(model: LoadedModel, batch: Batch) -> tuple[Batch, int | None]:
    """The batch, padded to the length of a bucket, and the rows that it may be filled up to.

    Only where batches shall come in few shapes, and the model's logits were measured to depend on
    neither; else as it is, and None.
    """
    if not steps_of(model).buckets(model.ref.device):
        return batch, None
    invariance = invariance_of(model, max(batch.encoded, key=lambda entry: entry.length))
    encoder = model.encoder
    if invariance.padding and isinstance(encoder, TextEncoder):
        wide = bucket_of(width := next(iter(batch.inputs.values())).shape[1])
        wide = wide if encoder.limit is None else max(width, min(wide, encoder.limit))
        batch = encoder.widened(batch, wide)
    rows = bucket_of(len(batch.encoded), apart=1) if invariance.batch else None
    return batch, rows


def filled(batch: Batch, rows: int | None) -> Batch:
    """The batch with its first item repeated until there are `rows`; None: as it is."""
    items = len(batch.encoded)
    more = (rows or items) - items
    return repeated(batch, torch.tensor([*range(items), *[0] * more])) if more else batch


def logits_again(model: LoadedModel, batch: Batch) -> Tensor:
    """Logits (B, C) of a plain forward pass, replayed where batches of this shape recur."""
    items = len(batch.encoded)
    batch = filled(*in_bucket(model, batch))
    names = list(batch.inputs)

    def function(*tensors: Tensor) -> list[Tensor]:
        given = dict(zip(names, tensors, strict=False))
        return [model.logits(dataclasses.replace(batch, inputs=given))]

    # nothing of a forward pass waits for a last input
    examples = [*batch.inputs.values(), torch.zeros(1, device=batch.lengths.device)]
    work = TensorFunction(
        function=function, examples=examples, module=model.module, at=("logits", *names)
    )
    with torch.no_grad():
        return steps_of(model).called(work)[0][:items]


@dataclass(frozen=True, slots=True, eq=False)
class InputLayerForward:
    """Logits as a function of the tensor at an input layer, for rows of one batch."""

    model: LoadedModel
    batch: Batch
    at: str
    start: Tensor  #: (B, T, D) at `encoder` and `words`, (B, 3, H, W) at `pixels`
    logits: NDArray[np.float64]  #: (B, C) of the batch as it is

    @classmethod
    def of(cls, model: LoadedModel, batch: Batch, at: str | None) -> Self:
        """One forward pass that reads the input layer."""
        batch, _ = in_bucket(model, batch)
        taps, input_layer = _Swap(None), at or model.default_at
        with torch.no_grad():
            logits = model.run(batch, at=input_layer, taps=taps)
        return cls(model, batch, input_layer, taps.found, as_array(logits))

    def __call__(self, values: Tensor, rows: Tensor) -> Tensor:
        """Logits (N, C) with `values` (N, ...) in the place of the items `rows` (N,) of the batch.

        The graph is recorded where the caller has gradients on.
        """
        return self.model.run(repeated(self.batch, rows), at=self.at, taps=_Swap(values))

    def gradients(self, values: Tensor, rows: Tensor, seed: Tensor) -> Tensor:
        """(N, ...) the gradient of the seeded sum of logits at `values`."""
        some = repeated(self.batch, rows)
        names = list(some.inputs)

        def function(*tensors: Tensor) -> list[Tensor]:
            *inputs, start, coefficients = tensors
            given = dataclasses.replace(some, inputs=dict(zip(names, inputs, strict=True)))
            with torch.enable_grad():
                points = start.detach().requires_grad_(True)
                logits = self.model.run(given, at=self.at, taps=_Swap(points))
                total = (logits * coefficients.to(logits)).sum()
                return [torch.autograd.grad(total, points)[0].detach()]

        work = TensorFunction(
            function=function,
            examples=[*some.inputs.values(), values.detach(), seed[rows]],
            module=self.model.module,
            at=("gradient", self.at, *names),
        )
        return steps_of(self.model).called(work)[0]

    def chunks(self, rows: Tensor) -> Iterator[slice]:
        """Slices of `rows` (N,) that are few enough for one pass."""
        width = int(self.batch.lengths.max())
        step = max(1, POSITIONS_AT_ONCE // width)
        if not invariance_of(self.model, self.batch.encoded[0], ragged=False).batch:
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
    array: NDArray[np.float64] = logits.detach().double().cpu().numpy()
    return array


def is_double(values: Tensor) -> bool:
    """Return whether a tensor is of float64: relevance is kept so then."""
    return values.dtype == torch.float64


def features_at(input_layer: str, encoded: Encoded) -> Features:
    """What the positions of the input layer are: the item's own, single pixels, or nodes alone."""
    features = encoded.features
    if input_layer == "nodes" and not isinstance(features, PatchGrid):
        return tuple(token for token in features if not token.special)
    if input_layer == "pixels" and isinstance(features, PatchGrid):
        return dataclasses.replace(features, rows=features.height, cols=features.width, prefix=0)
    return features


def sum_hidden(product: Tensor, features: Features) -> Tensor:
    """(B, T, D) -> (B, T); maps (B, D, rows, cols) and (B, rows, cols, D) -> (B, rows * cols)."""
    if product.dim() == 3:
        return product.sum(dim=-1)
    if product.dim() == 4 and isinstance(features, PatchGrid):
        channels_last = tuple(product.shape[1:3]) == (features.rows, features.cols)
        return product.sum(dim=-1 if channels_last else 1).flatten(1)
    raise EngineError(
        f"the input layer has shape {tuple(product.shape)}; expected (B, T, D) or a map of "
        "patches. Choose another `at`"
    )


#: share of f(x) - f(baseline) that may be missing before an attribution says so
TOLERATED = 0.01
#: items (N,), what stands at the input layer (N, ...), and what the gradients there are times
Point = tuple[Tensor, Tensor, Tensor | float]


def explain_at_input_layer(
    passed: InputLayerForward,
    resolve: Resolve,
    relevance: Callable[[Tensor], Tensor],
    *,
    method: str,
    unit: Unit = "logits",
    finish: Callable[[Tensor], Tensor] | None = None,
    difference: Array | None = None,
) -> BatchExplanation:
    """Explain every target by what `relevance` gives there, summed over the hidden axis.

    Args:
        passed: the model as a function of the input layer of B items.
        resolve: (B, C) logits -> targets per item.
        relevance: a seed, shaped as the logits, -> the relevance of every element of the input
            layer, of its shape.
        method, unit: what is written on the attributions.
        finish: done to the sums (B, T).
        difference: logits minus those that the relevances of all positions shall sum to
            the difference from; where they miss it by more than 1 %, a note says so.
    """
    encoded = passed.batch.encoded
    places = [features_at(passed.at, entry) for entry in encoded]

    def width(row: int) -> int:  # of the positions that are the item's own: all but padding
        at_pixels = passed.at == "pixels"
        return int(np.prod(passed.start.shape[2:])) if at_pixels else encoded[row].length

    def take(seed: Array, _last: bool) -> SeedRelevance:
        gradients = relevance(torch.from_numpy(seed).to(passed.start.device))
        summed = sum_hidden(gradients, places[0])
        positions = (summed if finish is None else finish(summed)).cpu().numpy()
        notes: Sequence[tuple[str, ...]] = ()
        if difference is not None:
            wanted = sum_of_item(seed * difference)
            notes = [
                completeness(method, float(positions[row, : width(row)].sum()), total)
                for row, total in enumerate(wanted.tolist())
            ]
        return SeedRelevance(positions, notes=notes, features=places)

    mark = CommonFields(
        method=method,
        at=passed.at,
        unit=unit,
        double=is_double(passed.start),
        notes=passed.model.notes_at(passed.at),
    )
    return explain_targets(passed.batch, passed.logits, resolve, take, mark)


def several(passed: InputLayerForward, times: int) -> Tensor:
    """(times * B,) the rows of the batch, all of them once, then again."""
    rows = torch.arange(len(passed.batch.encoded), device=passed.start.device)
    return rows.repeat(times)


def like_rows(numbers: Tensor, passed: InputLayerForward) -> Tensor:
    """(N,) numbers as (N, 1, ...), to be multiplied with values at the input layer."""
    return numbers.to(passed.start).view(-1, *[1] * (passed.start.dim() - 1))


def summed_gradients(passed: InputLayerForward, points: Iterable[Point], seed: Tensor) -> Tensor:
    """The sum of factor * gradient of the seeded logits over points at the input layer, float64."""
    total = torch.zeros_like(passed.start, dtype=torch.float64)
    for rows, values, factor in points:
        add_rows(total, rows, passed.gradients(values, rows, seed).double() * factor)
    return total


def add_rows(total: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values (N, ...) to the items `rows` (N,) of a total (B, ...), one after the other.

    So the order of a sum does not depend on the batch, and is the same on every device.
    """
    for place, row in enumerate(rows.tolist()):
        total[row] += values[place]


def completeness(method: str, total: float, wanted: float) -> tuple[str, ...]:
    """A note where relevances sum to `found`, more than 1 % away from `wanted`; else nothing."""
    if abs(total - wanted) <= TOLERATED * abs(wanted):
        return ()
    return (f"completeness: {method} sums to {total:.4g} where f(x) - f(baseline) is {wanted:.4g}",)


def check_count(name: str, value: int) -> int:
    """A whole number of at least 1; raises ConfigurationError for any other."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} is a whole number of at least 1, not {value!r}")
    return value


def check_share(name: str, value: float) -> float:
    """A number that is not negative; raises ConfigurationError for any other."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise ConfigurationError(f"{name} is a number of at least 0, not {value!r}")
    return float(value)
