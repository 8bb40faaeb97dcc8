"""Methods that take gradients at the input layer, plain, averaged over points, or as differences.

Integrated gradients are written here and not taken from Captum, whose `attribute` holds every step
of every item at once unless it is cut, and then sums what it was cut into in float32; the tests
compare with it.

Parameters of several methods: `at` is the input layer, by default the input of the first block,
where there is one; `baseline` is one of `baseline_of`, by default the first that the model can
make; `sigma` is the standard deviation of normal noise, as a share of the range of an item's own
values; `seed` with the item's id decides what is drawn, whatever the batch. Relevance is (T,) or
(rows, cols). All raise ConfigurationError for wrong parameters.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from transexplain.engine.rescale_mode import Rescaled, rescaled
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods.at_input_layer import (
    InputLayerForward,
    Point,
    add_rows,
    as_array,
    check_count,
    check_share,
    explain_at_input_layer,
    like_rows,
    repeated,
    several,
    summed_gradients,
)
from transexplain.methods.batch_explanation import Array, BatchExplanation, Resolve, generator_of
from transexplain.methods.presence import black
from transexplain.methods.relevance import InputLayer
from transexplain.models.invariance import tolerance_of
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import own_positions

#: standard deviation of the blurred baseline, as a share of the picture's shorter side
BLUR = 1 / 16
_TOKENS = {"mask": "mask_token_id", "pad": "pad_token_id", "unk": "unk_token_id"}


def baseline_of(passed: InputLayerForward, baseline: str | None) -> Tensor:
    """The values at the input layer of each item without information, of its shape.

    Texts: `mask`, `pad`, `unk`: the input layer of the same text with all but its special tokens
        replaced
    by that token. Pictures: `mean`, `black`, `blur`: the input layer of a picture of the mean
    colour of the training pictures (zeros, as inputs are normalised), of a black one, and of the
    picture itself blurred by a Gaussian of a sixteenth of its side. Both: `zero`, zeros at the
    input layer. None: `mean` for pictures, for texts the first of those tokens that the tokenizer
    has, `zero` without a tokenizer. Padding stays as it is.

    At `encoder` zeros are nothing that a model ever sees: norms and attention found sharply on the
    way there, and integrated gradients need many more steps.

    Raises:
        ConfigurationError: an unknown baseline, or one that this model cannot make.
    """
    modality = passed.model.modality
    known = _TOKENS if modality == "text" else _PICTURES if modality == "image" else {}
    usual = "mean" if modality == "image" else next(iter(_tokens(passed)), "zero")
    name = usual if baseline is None else baseline
    if name == "zero":
        return torch.where(own_part(passed), torch.zeros_like(passed.start), passed.start)
    if name not in known:
        raise ConfigurationError(
            f"unknown baseline {name!r} for a model of modality {modality!r}; known: "
            f"{', '.join(('zero', *known))}"
        )
    if modality == "text":
        changed = {"input_ids": _replaced(passed, name)}
    else:
        changed = {"pixel_values": _PICTURES[name](passed)}
    other = dataclasses.replace(passed.batch, inputs={**passed.batch.inputs, **changed})
    return InputLayerForward.of(passed.model, other, passed.at).start


def logits_at(passed: InputLayerForward, values: Tensor) -> Array:
    """(B, C) the logits with `values` (B, ...) at the input layer."""
    rows = torch.arange(len(values), device=values.device)
    with torch.no_grad():
        logits = [as_array(passed(values[part], rows[part])) for part in passed.chunks(rows)]
    return np.concatenate(logits)


def own_part(passed: InputLayerForward) -> Tensor:
    """Return which elements there belong to an item and not to padding; broadcasts."""
    start = passed.start
    if passed.at == "pixels":
        return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=start.device)
    positions = torch.arange(start.shape[1], device=start.device)
    lengths = torch.tensor([entry.length for entry in passed.batch.encoded], device=start.device)
    return (positions < lengths[:, None])[:, :, None]


def _tokens(passed: InputLayerForward) -> dict[str, int]:
    """The tokens that the model's tokenizer has, by the name of their baseline."""
    tokenizer = getattr(passed.model.encoder, "tokenizer", None)
    ids = {name: getattr(tokenizer, place, None) for name, place in _TOKENS.items()}
    return {name: int(token) for name, token in ids.items() if token is not None}


def _replaced(passed: InputLayerForward, baseline: str) -> Tensor:
    """(B, T) ids with that token replacing every content token."""
    tokens = _tokens(passed)
    if baseline not in tokens:
        there = ", ".join(f"baseline={name!r}" for name in ("zero", *tokens))
        raise ConfigurationError(
            f"baseline={baseline!r} needs a tokenizer with a {baseline} token, which this model "
            f"does not have; use {there}"
        )
    ids: Tensor = passed.batch.inputs["input_ids"]
    content = [own_positions(entry.features, ids.shape[1]) for entry in passed.batch.encoded]
    masks = torch.from_numpy(np.stack(content)).to(ids.device)
    return ids.masked_fill(masks, tokens[baseline])


def _blurred(passed: InputLayerForward) -> Tensor:
    pixels: Tensor = passed.batch.inputs["pixel_values"]
    side = min(pixels.shape[2:])
    sigma = max(1.0, BLUR * side)
    kernel = min(2 * int(3 * sigma) + 1, 2 * ((side - 1) // 2) + 1)
    blurred: Tensor = gaussian_blur(pixels, [kernel, kernel], [sigma, sigma])
    return blurred


_PICTURES: dict[str, Callable[[InputLayerForward], Tensor]] = {
    "mean": lambda passed: torch.zeros_like(passed.batch.inputs["pixel_values"]),
    "black": lambda passed: black(passed.model, passed.batch.inputs["pixel_values"]),
    "blur": _blurred,
}


class Noise:
    """Standard normal numbers for the input layers of a batch, the same for an item in every batch.

    An item's numbers follow from the seed, its id and how many draws were made for it; they are
    drawn for its own positions, in float64 on the CPU, and are 0 on padding.
    """

    def __init__(self, passed: InputLayerForward, seed: int, purpose: str) -> None:
        encoded = passed.batch.encoded
        self.passed = passed
        self.generators = [generator_of(seed, entry.item.id, purpose) for entry in encoded]

    def normal(self, rows: Tensor) -> Tensor:
        """(N, ...) one draw for each of the items `rows` (N,), in their order."""
        start = self.passed.start
        out = torch.zeros((len(rows), *start.shape[1:]), dtype=torch.float64)
        for place, row in enumerate(rows.tolist()):
            own = out[place]
            if self.passed.at != "pixels":
                own = own[: self.passed.batch.encoded[row].length]
            own.copy_(torch.randn(own.shape, generator=self.generators[row], dtype=torch.float64))
        return out.to(start)

    def uniform(self, rows: Tensor) -> Tensor:
        """(N, 1, ...) one number between 0 and 1 for each of the items `rows` (N,)."""
        start = self.passed.start
        drawn = [
            torch.rand(1, generator=self.generators[row], dtype=torch.float64)
            for row in rows.tolist()
        ]
        return torch.cat(drawn).to(start).view(-1, *[1] * (start.dim() - 1))


def value_range(passed: InputLayerForward) -> Tensor:
    """(B, 1, ...) the largest minus the smallest value of each item's own positions."""
    start, own = passed.start, own_part(passed)
    high = torch.where(own, start, -torch.inf).flatten(1).amax(1)
    low = torch.where(own, start, torch.inf).flatten(1).amin(1)
    return (high - low).view(-1, *[1] * (start.dim() - 1))


def explain_integrated_gradients(
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
        steps: points of the quadrature.

    Returns signed relevance in `logits`. Over all positions, special ones
    too, it sums to f(x) - f(x') as `steps` grow; where it misses that by over 1 % a note says so.
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


def explain_saliency(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    norm: Literal["l2", "l1"] = "l2",
) -> BatchExplanation:
    """The norm of the gradient over the hidden axis (Simonyan et al. 2014, section 3).

    Args:
        norm: `l2`, or `l1`: the sum of sizes. (The paper takes the largest colour channel.)

    Returns relevance that is not negative, in `score`.
    """
    if norm not in ("l2", "l1"):
        raise ConfigurationError(f"norm is 'l2' or 'l1', not {norm!r}")
    passed = InputLayerForward.of(model, batch, at)

    def sizes(seed: Tensor) -> Tensor:
        rows, found = several(passed, 1), torch.zeros_like(passed.start, dtype=torch.float64)
        for part in passed.chunks(rows):
            gradients = passed.gradients(passed.start[rows[part]], rows[part], seed).double()
            found[rows[part]] = gradients.square() if norm == "l2" else gradients.abs()
        return found

    finish = torch.sqrt if norm == "l2" else None
    return explain_at_input_layer(
        passed, resolve, sizes, method=method, unit="score", finish=finish
    )


def explain_smoothgrad(
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
        samples: noisy copies of every item.

    Returns signed relevance in `logits`.
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


def explain_gradient_shap(  # noqa: PLR0913 - each parameter of a method is a keyword
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
        samples: points for every item.

    Returns signed relevance in `logits`, an estimate: its expected sum over
    all positions is f(x) minus the mean of f over the baselines.
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


#: how far the logits of both passes may lie apart, as a share of the largest
_APART = 1e-3


def explain_deeplift_shap(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    references: int = 4,
    baseline: str | None = None,
    sigma: float = 0.05,
    seed: int = 0,
) -> BatchExplanation:
    """DeepLIFT with several references (Shrikumar et al. 2017; Lundberg and Lee 2017, section 4.2).

    Every operator gives its difference to its inputs (`engine.rescale_rules`), so all positions,
    special ones too, sum to f(x) minus the mean of f over the references, whatever the operators.
    At a reference of zeros each RMS norm multiplies by 1 / sqrt(eps): in models of several such
    layers rounding takes the sum, in float64 too, and a note says so.

    Args:
        references: how many are averaged; 1 is plain DeepLIFT.
        baseline: the first reference; see `baseline_of`; default: what the model can make.
        sigma: the others have normal noise on it, of this share of the range of an item's values.

    Returns signed relevance in `logits`. Raises EngineError for what has no rule.
    """
    check_count("references", references)
    check_share("sigma", sigma)
    passed = InputLayerForward.of(model, batch, at)
    base = baseline_of(passed, baseline)
    around = partial(_references, passed, base, sigma=sigma, count=references, seed=seed)
    with torch.no_grad():
        logits = np.concatenate([as_array(passed(there, rows)) for rows, there in around()])

    def relevance(target: Tensor) -> Tensor:
        begin, total = 0, torch.zeros_like(passed.start, dtype=torch.float64)
        for rows, reference in around():
            end = begin + len(rows)
            passes = _checked(passed, rows, reference, logits[begin:end], method)
            add_rows(total, rows, passes.relevance(target[rows]))
            begin = end
        return total / references

    difference = passed.logits - logits.reshape(references, *passed.logits.shape).mean(axis=0)
    return explain_at_input_layer(passed, resolve, relevance, method=method, difference=difference)


def _references(
    passed: InputLayerForward, base: Tensor, *, sigma: float, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Items (N,) of the batch and one reference (N, ...) for each, a chunk at a time.

    The same ones at every call; `base` (B, ...) is the first reference of every item.
    """
    rows, deviation = several(passed, count), sigma * value_range(passed)
    noise = Noise(passed, seed, "references")
    for part in passed.chunks(rows):
        own, noisy = rows[part], torch.arange(part.start, part.stop) >= len(base)
        away = like_rows(noisy, passed) * deviation[own] * noise.normal(own)
        yield own, base[own] + away


def _checked(
    passed: InputLayerForward, rows: Tensor, reference: Tensor, expected: Array, method: str
) -> Rescaled:
    """The pass over items `rows` (N,) and their references, whose logits are `expected` (N, C).

    Raises EngineError where the logits are others: values then reached them past every operator.
    """
    batch = repeated(passed.batch, rows)
    passes = rescaled(
        lambda taps: passed.model.run(batch, at=passed.at, taps=taps),
        passed.start[rows],
        reference,
        method=method,
    )
    own = passed.logits[rows.cpu().numpy()]
    tolerance = max(_APART, 10 * tolerance_of(passed.model))
    for logits, wanted in ((passes.logits, own), (passes.reference_logits, expected)):
        if np.abs(as_array(logits) - wanted).max() > tolerance * np.abs(wanted).max():
            raise EngineError(
                f"{passed.model.ref.source} decides in Python by the values of its tensors, and "
                f"otherwise at the reference than at the item, so {method!r} has no multipliers; "
                "use 'integrated-gradients'"
            )
    return passes
