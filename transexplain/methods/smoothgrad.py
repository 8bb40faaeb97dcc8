"""Gradient x input with the gradient averaged over noisy copies of the input layer."""

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
from transexplain.methods.baselines import Noise, value_range
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
    samples: int = 25,
    sigma: float = 0.05,
    seed: int = 0,
) -> BatchExplanation:
    """SmoothGrad times the input (Smilkov et al. 2017, section 3).

    R = sum over hidden of x * mean_k df/dx(x + e_k), e_k ~ N(0, s^2) with s = `sigma` times the
    range of the item's own values at the input layer. The paper's 0.1 to 0.2 are for pixels: at the
    encoder of a text model a quarter of the noisy copies are of another class by then.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        at: the input layer; default: the input of the first block, where there is one.
        samples: noisy copies of every item.
        sigma: the noise, as a share of the range of an item's values.
        seed: with the item's id it decides the noise, whatever the batch.

    Returns signed relevance (T,) or (rows, cols) in `logits`.
    Raises ConfigurationError for `samples` below 1 and a negative `sigma`.
    """
    check_count("samples", samples)
    check_share("sigma", sigma)
    passed = InputLayerForward.of(model, batch, at)

    def relevance(target: Tensor) -> Tensor:
        copies = _noisy(passed, samples, sigma, seed)
        return passed.start.double() * summed_gradients(passed, copies, target)

    return explain_at_input_layer(passed, resolve, relevance, method=method)


def _noisy(passed: InputLayerForward, samples: int, sigma: float, seed: int) -> Iterator[Point]:
    """Noisy copies of every item, a chunk at a time."""
    rows, noise = several(passed, samples), Noise(passed, seed, "copies")
    deviation = sigma * value_range(passed)
    for part in passed.chunks(rows):
        own = rows[part]
        yield own, passed.start[own] + deviation[own] * noise.normal(own), 1 / samples
