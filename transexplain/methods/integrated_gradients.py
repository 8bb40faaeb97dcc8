"""The gradient averaged on the straight way from a baseline to the item.

Written here and not taken from Captum, whose `attribute` holds every step of every item at once
unless it is cut, and then sums what it was cut into in float32; the tests compare with it.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from transexplain.methods.at_leaf import (
    Point,
    check_count,
    explain_at_leaf,
    like_rows,
    several,
    summed_gradients,
)
from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.methods.baselines import baseline_of, logits_at
from transexplain.methods.leaf_forward import LeafForward
from transexplain.methods.relevance import Leaf
from transexplain.models.base import Batch, LoadedModel


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: Leaf | None = None,
    steps: int = 64,
    baseline: str | None = None,
) -> BatchExplanation:
    """Integrated gradients by Gauss-Legendre quadrature (Sundararajan et al. 2017, Eq. 1).

    R = sum over hidden of (x - x') * integral over a in [0, 1] of df/dx(x' + a (x - x')).

    Args:
        model: any loaded model.
        batch: B items.
        resolve: (B, C) logits -> targets per item.
        method: name in the registry.
        at: the leaf; default: the input of the first block, where there is one.
        steps: points of the quadrature.
        baseline: texts: `mask`, `pad`, `unk`; pictures: `mean`, `black`, `blur`; both: `zero`;
            default: the first that the model can make; see `baseline_of`.

    Returns:
        Signed relevance (T,) or (rows, cols) in `logits`; over all positions, special ones too, it
        sums to f(x) - f(x') as `steps` grow, and a note says where it misses that by over 1 %.

    Raises:
        ConfigurationError: `steps` below 1, or a baseline that the model cannot make.
    """
    check_count("steps", steps)
    passed = LeafForward.of(model, batch, at)
    start, base = passed.start, baseline_of(passed, baseline)
    rows = several(passed, steps)
    nodes, weights = (torch.from_numpy(found) for found in np.polynomial.legendre.leggauss(steps))
    place = ((nodes + 1) / 2).repeat_interleave(len(batch.encoded))
    weight = (weights / 2).repeat_interleave(len(batch.encoded))

    def points() -> Iterator[Point]:
        for part in passed.chunks(rows):
            own = rows[part]
            way = like_rows(place[part], passed) * (start[own] - base[own])
            yield own, base[own] + way, like_rows(weight[part], passed).double()

    def relevance(target: Tensor) -> Tensor:
        return (start.double() - base.double()) * summed_gradients(passed, points(), target)

    difference = passed.logits - logits_at(passed, base)
    return explain_at_leaf(passed, resolve, relevance, method=method, difference=difference)
