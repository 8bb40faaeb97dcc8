"""Gradients at random points between random baselines and the item."""

from collections.abc import Iterator

from torch import Tensor

from transexplain.methods.at_input_layer import (
    InputLayerForward,
    Point,
    check_count,
    check_share,
    explain_at_input_layer,
    several,
    summed_gradients,
)
from transexplain.methods.baselines import Noise, baseline_of, value_range
from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.relevance import InputLayer
from transexplain.models.loaded_model import Batch, LoadedModel


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    samples: int = 25,
    baseline: str | None = None,
    sigma: float = 0.05,
    seed: int = 0,
) -> BatchExplanation:
    """Expected gradients, which Captum calls GradientSHAP (Lundberg and Lee 2017, Erion 2021).

    R = sum over hidden of mean_k (x - b_k) df/dx(b_k + a_k (x - b_k)), a_k uniform in [0, 1],
    b_k = the baseline plus normal noise of `sigma` times the range of the item's own values.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        at: the input layer; default: the input of the first block, where there is one.
        samples: points for every item.
        baseline: see `baseline_of`; default: the first that the model can make.
        sigma: the noise around the baseline, as a share of the range of an item's values.
        seed: with the item's id it decides the points, whatever the batch.

    Returns signed relevance (T,) or (rows, cols) in `logits`, an estimate: its expected sum over
    all positions is f(x) minus the mean of f over the baselines. Raises ConfigurationError for
    `samples` below 1, a negative `sigma`, and a baseline that the model cannot make.
    """
    check_count("samples", samples)
    check_share("sigma", sigma)
    passed = InputLayerForward.of(model, batch, at)
    base = baseline_of(passed, baseline)

    def relevance(target: Tensor) -> Tensor:
        return summed_gradients(passed, _drawn(passed, base, samples, sigma, seed), target)

    return explain_at_input_layer(passed, resolve, relevance, method=method)


def _drawn(
    passed: InputLayerForward, base: Tensor, samples: int, sigma: float, seed: int
) -> Iterator[Point]:
    """Points between noisy baselines and every item, a chunk at a time.

    Baselines and places come from generators of their own: how many of an item's points share a
    chunk then changes neither.
    """
    rows, deviation = several(passed, samples), sigma * value_range(passed)
    noise, places = Noise(passed, seed, "baselines"), Noise(passed, seed, "places")
    for part in passed.chunks(rows):
        own = rows[part]
        way = passed.start[own] - base[own] - deviation[own] * noise.normal(own)
        yield own, passed.start[own] - places.uniform(own) * way, way.double() / samples
