"""Baselines at the input layer, and noise that is the same for an item in every batch."""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import InputLayerForward, as_array
from transexplain.methods.batch_explanation import Array, generator_of
from transexplain.methods.presence import black
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
    name = _usual(passed) if baseline is None else baseline
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


def _usual(passed: InputLayerForward) -> str:
    if passed.model.modality == "image":
        return "mean"
    return next(iter(_tokens(passed)), "zero")


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
