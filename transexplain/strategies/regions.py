"""Corners and borders: where a watermark, a date stamp or a frame would be."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.multiplicity import adjusted
from transexplain.strategies.records import RegionEvidence

#: of a cluster's positive relevance: most of it
LARGE = 0.5
FEWEST = 10  #: items of a cluster: fewer are a few odd ones
#: how many times its area, and how many times the share of all other pictures
TIMES_AREA, TIMES_ELSEWHERE = 3.0, 2.0
LEVEL = 0.01  #: adjusted p
PERMUTATIONS = 9_999
_CELLS = 4  #: cells of a side: below, corners are most of the picture

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Region:
    """Some neighbouring cells of a grid."""

    name: str
    rows: slice
    cols: slice
    area: float  #: share of the grid


def regions(rows: int, cols: int) -> tuple[Region, ...]:
    """Four corners, a quarter of each side long, and four borders, an eighth of a side wide."""
    if min(rows, cols) < _CELLS:
        return ()
    tall, wide = -(-rows // 4), -(-cols // 4)
    thick, broad = -(-rows // 8), -(-cols // 8)
    whole = slice(None)
    top, bottom = slice(0, tall), slice(rows - tall, rows)
    left, right = slice(0, wide), slice(cols - wide, cols)
    corner = tall * wide / (rows * cols)
    return (
        Region("top left corner", top, left, corner),
        Region("top right corner", top, right, corner),
        Region("bottom left corner", bottom, left, corner),
        Region("bottom right corner", bottom, right, corner),
        Region("top border", slice(0, thick), whole, thick / rows),
        Region("bottom border", slice(rows - thick, rows), whole, thick / rows),
        Region("left border", whole, slice(0, broad), broad / cols),
        Region("right border", whole, slice(cols - broad, cols), broad / cols),
    )


def shares(grids: _Floats) -> _Floats:
    """(N, regions) the share of each picture's positive relevance that lies in each region."""
    positive = np.clip(grids, 0.0, None)
    totals = positive.sum(axis=(1, 2))
    inside = [positive[:, one.rows, one.cols].sum(axis=(1, 2)) for one in regions(*grids.shape[1:])]
    if not inside:
        return np.zeros((len(grids), 0))
    found, whole = np.stack(inside, axis=1), totals[:, None]
    return np.asarray(np.divide(found, whole, out=np.zeros_like(found), where=whole > 0.0))


def evidence(
    shape: tuple[int, int], members: list[_Floats], others: list[_Floats], seed: int
) -> list[tuple[RegionEvidence, ...]]:
    """What lies in each region for each cluster of one class.

    Args:
        shape: rows and columns of the grid.
        members: of each cluster its `shares`.
        others: of each cluster the shares of all other pictures; may be empty.
        seed: of the permutations.
    """
    rng = np.random.default_rng(seed)
    tests = [_p_values(inside, rest, rng) for inside, rest in zip(members, others, strict=True)]
    flat = adjusted([p for row in tests for p in row], "holm")
    kinds = regions(*shape)
    found = []
    for number, (inside, rest) in enumerate(zip(members, others, strict=True)):
        row = flat[number * len(kinds) : (number + 1) * len(kinds)]
        found.append(
            tuple(
                _judged(
                    RegionEvidence(
                        region=kind.name,
                        area=kind.area,
                        share=float(inside[:, place].mean()),
                        elsewhere=float(rest[:, place].mean()) if len(rest) else None,
                        adjusted_p=row[place],
                        stands_out=False,
                    ),
                    len(inside),
                )
                for place, kind in enumerate(kinds)
            )
        )
    return found


def _judged(one: RegionEvidence, size: int) -> RegionEvidence:
    out = (
        size >= FEWEST
        and one.adjusted_p is not None
        and one.elsewhere is not None
        and one.adjusted_p <= LEVEL
        and one.share >= max(LARGE, TIMES_AREA * one.area, TIMES_ELSEWHERE * one.elsewhere)
    )
    return replace(one, stands_out=out)


def _p_values(inside: _Floats, rest: _Floats, rng: np.random.Generator) -> list[float | None]:
    """How often so many pictures, sampled from both, have as large a mean share; one-sided."""
    if not len(rest):
        return [None] * inside.shape[1]
    everything = np.concatenate([inside, rest])
    reached = np.zeros(inside.shape[1])
    target = inside.sum(axis=0) * (1.0 - 1e-12)
    for _ in range(PERMUTATIONS):
        chosen = rng.permutation(len(everything))[: len(inside)]
        reached += everything[chosen].sum(axis=0) >= target
    return [float(p) for p in (1.0 + reached) / (1.0 + PERMUTATIONS)]
