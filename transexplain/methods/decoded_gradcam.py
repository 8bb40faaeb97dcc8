"""Decoded Grad-CAM: layer saliency carried to the vocabulary by the pretrained LM head.

After Hou and Castanon 2023, Algorithm 1. Behind a few layers of attention a position no longer
stands for its own token alone, so saliency found there is read in words before it is given out:

1. saliency s[t] of every position t behind the layer: Grad-CAM, as `layer-gradcam` has it;
2. the share `tau` of the item's positions with the least saliency is put aside;
3. every position left is decoded: the LM head gives p[t], how likely each entry is meant;
4. an entry has the saliency sum over t of s[t] p[t][entry], and so has the input token that it
   is, shared equally where the token occurs more than once.

Left open by the description and chosen here: the unit of the threshold (a share of the positions,
so that it means the same for every layer and length); that decoding is soft (no position is lost
to a near miss, as with the likeliest entry alone); what p is normalised over (`among`); the
sharing, so that scores add up; and that an encoder which ends in a norm of its own applies it
before the head, as in pretraining.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import as_array
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.layer_gradcam import class_activation, layer_notes, mark_of
from transexplain.models.hidden_states import Layers, run_layers
from transexplain.models.lm_head import LMHead, lm_head
from transexplain.models.loaded_model import Batch, LoadedModel

#: what the entries that a position may decode to are
Among = Literal["text", "vocabulary"]


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: int | None = None,
    tau: float = 0.0,
    among: Among = "text",
    head: str | None = None,
) -> BatchExplanation:
    """How strongly the salient hidden vectors of a layer decode to each token of the text.

    Args:
        model, batch, resolve, method: a text model with a masked language-model head, B items.
        layer: 0..L-1, or from the end; default as in `layer-gradcam`.
        tau: 0 (decode every salient position) up to, not including, 1.
        among: `text` weighs the tokens of the item against each other, so that a position is read
            as a combination of the original tokens and the scores sum to the saliency kept;
            `vocabulary` weighs all V entries, and what decodes to none of the item is lost.
        head: directory, .safetensors file or hub id of the pretrained masked language model;
            default: the head in the classifier's own files.

    Returns relevance (T,) in `score`, not negative. Raises ConfigurationError for pictures, a
    missing or unfit head, and a layer or tau out of range.
    """
    _check(model, tau, among)
    decode = lm_head(model, head)
    layers = run_layers(model, batch)
    index = layers.index(layer)
    decoded = _Decoded(layers, decode, index, among)

    def take(seed: Array, last: bool) -> SeedRelevance:
        gradient = layers.gradient(index, torch.from_numpy(seed), last=last)
        scores = class_activation(layers, index, gradient)
        positions = decoded.positions(scores.clamp(min=0), tau).cpu().numpy()
        return SeedRelevance(positions, notes=layer_notes(batch, gradient, scores, index))

    mark = mark_of(layers, index, method)
    return explain_targets(batch, as_array(layers.logits), resolve, take, mark)


def _check(model: LoadedModel, tau: float, among: str) -> None:
    if model.modality != "text":
        raise ConfigurationError(
            f"decoded-gradcam reads hidden vectors in words, and {model.ref.source} takes no "
            "texts; use layer-gradcam"
        )
    if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 <= tau < 1:
        raise ConfigurationError(
            f"tau is the share of positions put aside, from 0 up to but not 1; not {tau!r}"
        )
    if among not in get_args(Among):
        raise ConfigurationError(
            f"among is {' or '.join(map(repr, get_args(Among)))}, not {among!r}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """What the hidden vectors of one layer decode to, among the tokens of their own item."""

    layers: Layers
    head: LMHead
    layer: int
    among: Among
    _shares: list[Tensor] = field(default_factory=list)

    def positions(self, saliency: Tensor, tau: float) -> Tensor:
        """(B, T) scores of the input tokens for the `saliency` (B, T) of positions."""
        if not self._shares:  # once for all targets
            self._shares.extend(self._decode())
        saliency = saliency.to(self._shares[0].device)
        scores = torch.zeros_like(saliency)
        for row, share in enumerate(self._shares):
            length = share.shape[0]
            kept = most_salient(saliency[row, :length], tau)
            scores[row, :length] = kept @ share
        return scores

    def _decode(self) -> list[Tensor]:
        """Per item (T, T) float64: the share of position t that decodes to the token at i.

        One item at a time: (T, V) numbers are held, whatever the size of the batch.
        """
        batch = self.layers.batch
        ids = batch.inputs[self.layers.model.caller.main]
        hidden = self.layers.closed(self.layer).to(ids.device)
        shares = []
        for row, length in enumerate(batch.lengths.tolist()):
            logits, own = self.head(hidden[row : row + 1, :length])[0], ids[row, :length]
            times = (own[:, None] == own).sum(dim=0)  # (T,) how often each token occurs
            within = logits[:, own].double() - times.double().log()
            entries = within if self.among == "text" else logits
            shares.append((within - entries.logsumexp(dim=-1, keepdim=True)).exp())
        return shares


def most_salient(saliency: Tensor, tau: float) -> Tensor:
    """`saliency` (T,) with the share `tau` of its least entries set to 0; at least one stays."""
    positions = saliency.shape[0]
    # rounded first: (1 - 0.7) * 10 is a hair above 3
    count = max(1, math.ceil(round((1 - tau) * positions, 9)))
    kept = torch.zeros_like(saliency)
    order = saliency.argsort(descending=True, stable=True)[:count]
    kept[order] = saliency[order]
    return kept
