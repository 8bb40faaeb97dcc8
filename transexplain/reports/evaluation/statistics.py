"""Means over items, their intervals, and paired comparisons, for many methods at once.

Rows that were measured on the same items share one set of resamples, which makes a table of twenty
methods as quick as one. All intervals are at 95 %, all draws are seeded.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, false_discovery_control, permutation_test

from transexplain.reports.evaluation.records import Difference, Interval

#: items below which there is no interval: a resample of so few says next to nothing
FEWEST = 5
RESAMPLES = 2000
#: at most; all sign changes are tried where there are fewer
PERMUTATIONS = 1999
#: a difference is beyond chance below this adjusted p
LEVEL = 0.05
#: resamples in memory at once
_BATCH = 50

Matrix = NDArray[np.float64]


def intervals(values: Matrix, seed: int) -> list[Interval | None]:
    """The percentile bootstrap interval of each row's mean (Efron and Tibshirani 1993, 13.3).

    Args:
        values: (M, N) of M methods on N items, NaN where there is none.
        seed: of the resampling.

    Returns:
        For each method its interval; None below `FEWEST` items.
    """
    found: list[Interval | None] = [None] * len(values)
    for rows, columns in _alike(~np.isnan(values)):
        if columns.sum() < FEWEST:
            continue
        result = bootstrap(
            (values[rows][:, columns],),
            _mean,
            axis=-1,
            n_resamples=RESAMPLES,
            batch=_BATCH,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        ends = np.stack([result.low, result.high], axis=-1).tolist()
        for row, (low, high) in zip(rows, ends, strict=True):
            found[row] = (low, high)
    return found


def differences(values: Matrix, reference: int, seed: int) -> list[Difference | None]:
    """Each row minus row `reference` on the items that both have.

    The test permutes the signs of an item's differences; its p-values are adjusted over all rows
    that have one (Benjamini and Hochberg 1995).

    Args:
        values: (M, N) of M methods on N items, NaN where there is none.
        reference: row that the others are compared with.
        seed: of the resampling.

    Returns:
        For each method its difference; None for the reference and where no item is common.
    """
    paired = values - values[reference]
    paired[reference] = np.nan
    spans = intervals(paired, seed)
    p = _permuted(paired, seed)
    adjusted = adjust(p)
    counts = (~np.isnan(paired)).sum(axis=1)
    return [
        Difference(
            items=int(counts[row]),
            mean=float(np.nanmean(paired[row])),
            interval=spans[row],
            p=p[row],
            p_adjusted=adjusted[row],
        )
        if counts[row]
        else None
        for row in range(len(values))
    ]


def adjust(p: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted over those that exist (Benjamini and Hochberg 1995)."""
    known = [value for value in p if value is not None]
    adjusted = iter(false_discovery_control(known) if known else ())
    return [None if value is None else float(next(adjusted)) for value in p]


def _permuted(paired: Matrix, seed: int) -> list[float | None]:
    """(M,) two-sided p of a mean of 0; None where there are fewer than two differences."""
    found: list[float | None] = [None] * len(paired)
    for rows, columns in _alike(~np.isnan(paired)):
        if columns.sum() < 2:
            continue
        result = permutation_test(
            (paired[rows][:, columns],),
            _mean,
            permutation_type="samples",
            axis=-1,
            n_resamples=PERMUTATIONS,
            batch=_BATCH,
            rng=np.random.default_rng(seed),
        )
        for row, p in zip(rows, result.pvalue, strict=True):
            found[row] = float(p)
    return found


def _mean(values: Matrix, axis: int) -> Matrix:
    return np.asarray(values.mean(axis=axis))


def _alike(present: NDArray[np.bool_]) -> Iterator[tuple[list[int], NDArray[np.bool_]]]:
    """Rows that have the same columns, and which those are."""
    groups: dict[bytes, list[int]] = {}
    for row, columns in enumerate(present):
        groups.setdefault(columns.tobytes(), []).append(row)
    for rows in groups.values():
        yield rows, present[rows[0]]
