"""The gradient averaged on the straight way from a baseline to the item.

Written here and not taken from Captum, whose `attribute` holds every step of every item at once
unless it is cut, and then sums what it was cut into in float32; the tests compare with it.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from transexplain.methods.at_input_layer import (
    InputLayerForward,
    Point,
    check_count,
    explain_at_input_layer,
    like_rows,
    several,
    summed_gradients,
)
from transexplain.methods.baselines import baseline_of, logits_at
from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.relevance import InputLayer
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    steps: int = 64,
    baseline: str | None = None,
) -> BatchExplanation:
    """Integrated gradients by Gauss-Legendre quadrature (Sundararajan et al. 2017, section 3).

    R = sum over hidden of (x - x') * integral over a in [0, 1] of df/dx(x' + a (x - x')).

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        at: the input layer; default: the input of the first block, where there is one.
        steps: points of the quadrature.
        baseline: see `baseline_of`; default: the first that the model can make.

    Returns signed relevance (T,) or (rows, cols) in `logits`. Over all positions, special ones
    too, it sums to f(x) - f(x') as `steps` grow; where it misses that by over 1 % a note says so.
    Raises ConfigurationError for `steps` below 1 and a baseline that the model cannot make.
    """
    check_count("steps", steps)
    passed = InputLayerForward.of(model, batch, at)
    base = baseline_of(passed, baseline)
    way = passed.start.double() - base.double()

    def relevance(target: Tensor) -> Tensor:
        return way * summed_gradients(passed, _path_points(passed, base, steps), target)

    difference = passed.logits - logits_at(passed, base)
    return explain_at_input_layer(passed, resolve, relevance, method=method, difference=difference)


def _path_points(passed: InputLayerForward, base: Tensor, steps: int) -> Iterator[Point]:
    """The quadrature's points between baseline and item with their weights, a chunk at a time."""
    nodes, weights = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(steps))
    items, rows = len(base), several(passed, steps)
    place, weight = ((nodes + 1) / 2).repeat_interleave(items), weights.repeat_interleave(items) / 2
    for part in passed.chunks(rows):
        own = rows[part]
        way = passed.start[own] - base[own]
        yield own, base[own] + like_rows(place[part], passed) * way, like_rows(weight[part], passed)
