"""What methods at the input layer have in common: products to positions, completeness."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.methods.leaf_forward import LeafForward, is_double
from transexplain.methods.passes import features_at, sum_hidden
from transexplain.methods.records import Array, Mark, SeedRelevance, explain_targets
from transexplain.types import Unit

#: share of f(x) - f(baseline) that may be missing before an attribution says so
TOLERATED = 0.01
#: items (N,), what stands at their leaves (N, ...), and what the gradients there are times
Point = tuple[Tensor, Tensor, Tensor | float]


def explain_at_leaf(
    passed: LeafForward,
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
        relevance: a seed (B, C) -> the relevance of every element of the input layer, of its shape.
        method, unit: what is written on the attributions.
        finish: done to the sums (B, T).
        difference: (B, C) logits minus those that the relevances of all positions shall sum to
            the difference from; where they miss it by more than 1 %, a note says so.
    """
    encoded = passed.batch.encoded
    places = [features_at(passed.at, one) for one in encoded]

    def take(seed: Array, _last: bool) -> SeedRelevance:
        found = relevance(torch.from_numpy(seed).to(passed.start.device))
        summed = sum_hidden(found, places[0])
        positions = (summed if finish is None else finish(summed)).cpu().numpy()
        notes: Sequence[tuple[str, ...]] = ()
        if difference is not None:
            wanted = (seed * difference).sum(axis=1)
            notes = [
                completeness(method, float(positions[row, : width(passed, row)].sum()), total)
                for row, total in enumerate(wanted.tolist())
            ]
        return SeedRelevance(positions, notes=notes, features=places)

    mark = Mark(method=method, at=passed.at, unit=unit, double=is_double(passed.start))
    return explain_targets(passed.batch, passed.logits, resolve, take, mark)


def width(passed: LeafForward, row: int) -> int:
    """How many positions of the input layer are the item's own: all but padding."""
    if passed.at == "pixels":
        return int(np.prod(passed.start.shape[2:]))
    return passed.batch.encoded[row].length


def several(passed: LeafForward, times: int) -> Tensor:
    """(times * B,) the rows of the batch, all of them once, then again."""
    rows = torch.arange(len(passed.batch.encoded), device=passed.start.device)
    return rows.repeat(times)


def like_rows(numbers: Tensor, passed: LeafForward) -> Tensor:
    """(N,) numbers as (N, 1, ...), to be multiplied with values at the input layer."""
    return numbers.to(passed.start).view(-1, *[1] * (passed.start.dim() - 1))


def summed_gradients(passed: LeafForward, points: Iterable[Point], seed: Tensor) -> Tensor:
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


def completeness(method: str, found: float, wanted: float) -> tuple[str, ...]:
    """A note where relevances sum to `found`, more than 1 % away from `wanted`; else nothing."""
    if abs(found - wanted) <= TOLERATED * abs(wanted):
        return ()
    return (f"completeness: {method} sums to {found:.4g} where f(x) - f(baseline) is {wanted:.4g}",)


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
