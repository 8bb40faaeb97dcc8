"""What stands where a position is absent: another token, no attention, another picture."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.image import ImageEncoder
from transexplain.models.text import TextEncoder
from transexplain.types import PatchGrid

#: a name, or the id of a token
Baseline = str | int

_TOKENS = ("mask", "unk", "pad")
_TEXT = ("auto", *_TOKENS, "remove")
_IMAGE = ("auto", "mean", "black", "blur")


@dataclass(frozen=True, slots=True, eq=False)
class Absence:
    """One input of a batch as it is where nothing is present."""

    name: str  #: of the input that positions are taken out of
    values: Tensor  #: like that input: (B, T), or (B, 3, H, W)
    note: str  #: what a reader of the relevance has to know


def absence(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    """The replacement that `baseline` stands for; raises ConfigurationError.

    Args:
        model: a text or image model.
        batch: B items.
        baseline: texts: `mask`, `unk`, `pad`, a token id, `remove` (no attention) or `auto`, the
            first token of these that the tokenizer has. Pictures: `mean` (0 in the model's
            input) or `auto`, `black`, `blur`.
    """
    return (_of_pictures if model.modality == "image" else _of_texts)(model, batch, baseline)


def _of_texts(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    if baseline == "remove":
        if "attention_mask" not in batch.inputs:
            raise ConfigurationError(
                f"{model.ref.source} takes no attention_mask, so no token can be removed; use "
                "another baseline, e.g. the id of a token"
            )
        mask = batch.inputs["attention_mask"]
        return Absence("attention_mask", torch.zeros_like(mask), "absent tokens are not attended")
    number, spelled = _token(model, baseline)
    values = torch.full_like(batch.inputs["input_ids"], number)
    return Absence("input_ids", values, f"absent tokens are replaced by {spelled}")


def _token(model: LoadedModel, baseline: Baseline) -> tuple[int, str]:
    """The token that stands for nothing, and how to call it."""
    encoder = model.encoder
    assert isinstance(encoder, TextEncoder)
    tokenizer = encoder.tokenizer
    if isinstance(baseline, int) and not isinstance(baseline, bool):
        if baseline < 0 or (encoder.vocabulary is not None and baseline >= encoder.vocabulary):
            raise ConfigurationError(
                f"baseline={baseline} is no token of {model.ref.source}; its ids are 0 to "
                f"{'...' if encoder.vocabulary is None else encoder.vocabulary - 1}"
            )
        return baseline, f"token {baseline}"
    if baseline not in _TEXT:
        raise _unknown(baseline, (*_TEXT, "the id of a token"), "texts")
    if tokenizer is None:
        raise ConfigurationError(
            f"baseline={baseline!r} needs a tokenizer, and {model.ref.source} has none; use "
            'baseline="remove" or baseline=<id of a token>'
        )
    return _named_token(model, tokenizer, str(baseline))


def _named_token(model: LoadedModel, tokenizer: Any, baseline: str) -> tuple[int, str]:
    for name in _TOKENS if baseline == "auto" else (baseline,):
        number = getattr(tokenizer, f"{name}_token_id", None)
        if number is not None:
            # some models end a text at its first padding token
            twice = name != "pad" and number == tokenizer.pad_token_id
            spelled = getattr(tokenizer, f"{name}_token")
            return int(number), f"{spelled}{', which is also its padding' if twice else ''}"
    wanted = "mask, unknown or padding" if baseline == "auto" else baseline
    raise ConfigurationError(
        f"the tokenizer of {model.ref.source} has no {wanted} token; use baseline="
        '"remove" or baseline=<id of a token>'
    )


def _of_pictures(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    pixels = batch.inputs["pixel_values"]
    if baseline in ("auto", "mean"):
        note = "absent patches are 0 in the model's input"
        return Absence("pixel_values", torch.zeros_like(pixels), note)
    if baseline == "black":
        black = _black(model, pixels).expand_as(pixels)
        return Absence("pixel_values", black, "absent patches are black")
    if baseline == "blur":
        sigma = _patch_side(batch)
        note = f"absent patches are blurred by a Gaussian of {sigma:.3g} pixels"
        return Absence("pixel_values", _blurred(pixels, sigma), note)
    raise _unknown(baseline, _IMAGE, "pictures")


def _black(model: LoadedModel, pixels: Tensor) -> Tensor:
    transform = model.encoder.transform if isinstance(model.encoder, ImageEncoder) else None
    if transform is None:
        raise ConfigurationError(
            f'baseline="black" needs a transform, and {model.ref.source} has none: what is black '
            'in its input is unknown; use baseline="mean" or "blur"'
        )
    height, width = pixels.shape[-2:]
    return transform(Image.new("RGB", (width, height))).to(pixels)


def _patch_side(batch: Batch) -> float:
    """Pixels of the longer side of a patch: a blur of that width leaves nothing of its own."""
    grid = batch.encoded[0].features
    assert isinstance(grid, PatchGrid)
    return max(grid.height / grid.rows, grid.width / grid.cols)


def _blurred(pixels: Tensor, sigma: float) -> Tensor:
    given = pixels.detach().double().cpu().numpy()
    widths = (0, 0, sigma, sigma)
    blurred = gaussian_filter(given, sigma=widths, mode="nearest", truncate=3.0)
    return torch.from_numpy(np.asarray(blurred)).to(pixels)


def _unknown(baseline: Any, known: tuple[str, ...], kind: str) -> ConfigurationError:
    return ConfigurationError(
        f"unknown baseline {baseline!r}; the baselines of {kind} are: {', '.join(known)}"
    )
