"""Decoded Grad-CAM: layer saliency carried to the vocabulary by the pretrained LM head.

Hou and Castanon 2023, Algorithm 1. Behind a few layers of attention a position no longer stands
for its own token alone, so saliency found there is read in words before it is given out. For an
item of n positions and T different tokens, and h (n, D) what a layer gave:

1. a[t] = ReLU(sum_d dy/dh[t, d] h[t, d]), the saliency of position t (equation 1);
2. P (n, V): the LM head's probabilities, softmax over the whole vocabulary (equation 3);
3. D (T, n): the columns of P that are tokens of the item, transposed; of each column of D only the
   `tau` highest entries count (line 8);
4. s = D a (equation 5): one score for each token of the item.

Line 9 as printed adds to the score of the position; equation 5 and the text around it have that of
the token, which is taken here. Two things are left open and chosen here: a token that occurs more
than once shares its score equally, so that its positions sum to s; and an encoder which ends in a
norm of its own applies it before the head, as in pretraining. At the embeddings (the paper's layer
0) positions are tokens, so saliency is given as it is: plain Grad-CAM.
"""

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
from transexplain.methods.layer_gradcam import (
    Weights,
    class_activation,
    layer_notes,
    layers_with,
    mark_of,
)
from transexplain.models.hidden_states import EMBEDDINGS, LayerName, Layers
from transexplain.models.lm_head import LMHead, lm_head
from transexplain.models.loaded_model import Batch, LoadedModel

#: the entries that the softmax of a position runs over
Among = Literal["vocabulary", "text"]


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: LayerName = None,
    weights: Weights = "local",
    tau: int | None = None,
    among: Among = "vocabulary",
    head: str | None = None,
) -> BatchExplanation:
    """Return how strongly the salient hidden vectors of a layer decode to each token of the text.

    Args:
        model, batch, resolve, method: a text model with a masked language-model head, B items.
        layer: 0..L-1, or from the end; default as in `layer-gradcam`. The paper's layer l is
            l - 1 here, and its layer 0 `embeddings`, which needs no head and decodes nothing.
        weights: of the hidden units: `local`, the gradient at each position (equation 1),
            `pooled`, its mean over positions (Selvaraju et al. 2017), or `lrp`, the gradient of
            the composite of this name: line 3 then has LRP in the place of Grad-CAM.
        tau: how many tokens of the item a position contributes to, the likeliest first; None: all.
        among: `vocabulary`: what decodes to no token of the item is lost; `text`: the softmax runs
            over the tokens of the item alone, and with `tau` None nothing is lost.
        head: directory, .safetensors file or hub id of the pretrained masked language model;
            default: the head in the classifier's own files.

    Returns relevance (T,) in `score`, not negative. Raises ConfigurationError for pictures, a
    missing or unfit head, and a parameter out of range.
    """
    _check(model, tau, among)
    layers, gradient_of = layers_with(model, batch, weights)
    index = layers.index(layer)
    words: LMHead | None = None if index == EMBEDDINGS else lm_head(model, head)
    decoded: list[tuple[Tensor, Tensor]] = []  # once for all targets

    def take(seed: Array, last: bool) -> SeedRelevance:
        gradient = gradient_of(index, torch.from_numpy(seed), last=last)
        scores = class_activation(layers, index, gradient, weights=weights)
        positions = scores.clamp(min=0)
        if words is not None:
            decoded[:] = decoded or _decoded(layers, words, index, among, tau)
            positions = _of_tokens(positions, decoded)
        notes = layer_notes(batch, gradient, scores, index)
        return SeedRelevance(positions.cpu().numpy(), notes=notes)

    mark = mark_of(layers, index, method)
    return explain_targets(batch, as_array(layers.logits), resolve, take, mark)


def _check(model: LoadedModel, tau: int | None, among: str) -> None:
    if model.modality != "text":
        raise ConfigurationError(
            f"decoded-gradcam reads hidden vectors in words, and {model.ref.source} takes no "
            "texts; use layer-gradcam"
        )
    if tau is not None and (isinstance(tau, bool) or not isinstance(tau, int) or tau < 1):
        raise ConfigurationError(
            "tau is how many tokens each position contributes to: a whole number from 1, or null "
            f"for all; not {tau!r}. The share of positions put aside that it once was is gone"
        )
    if among not in get_args(Among):
        raise ConfigurationError(
            f"among is {' or '.join(map(repr, get_args(Among)))}, not {among!r}"
        )


def _decoded(
    layers: Layers, head: LMHead, layer: int, among: Among, tau: int | None
) -> list[tuple[Tensor, Tensor]]:
    """Per item: what its n positions give to its T tokens (n, T) float64; their tokens (n,).

    One item at a time: (n, V) numbers are held, whatever the size of the batch.
    """
    batch = layers.batch
    ids = batch.inputs[layers.model.caller.main]
    hidden = layers.closed(layer).to(ids.device)
    maps = []
    for row, length in enumerate(batch.lengths.tolist()):
        logits = head(hidden[row : row + 1, :length])[0]
        own = ids[row, :length]
        tokens = torch.tensor(sorted(set(own.tolist())), device=own.device)
        within = logits[:, tokens].double()
        # half precision would lose the sum over a vocabulary
        every = logits.to(torch.promote_types(logits.dtype, torch.float32))
        entries = within if among == "text" else every
        likely = (within - entries.logsumexp(dim=-1, keepdim=True)).exp()
        maps.append((highest(likely, tau), torch.searchsorted(tokens, own)))
    return maps


def _of_tokens(saliency: Tensor, decoded: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(B, T) scores of the input tokens for the `saliency` (B, T) of positions."""
    saliency = saliency.to(decoded[0][0].device)
    scores = torch.zeros_like(saliency)
    for row, (contribution, token) in enumerate(decoded):
        of_tokens = saliency[row, : len(token)] @ contribution
        scores[row, : len(token)] = (of_tokens / token.bincount())[token]
    return scores


def highest(contribution: Tensor, tau: int | None) -> Tensor:
    """`contribution` (n, T) with all but the `tau` highest of each row set to 0; None: as it is."""
    if tau is None or tau >= contribution.shape[1]:
        return contribution
    chosen = contribution.argsort(dim=1, descending=True, stable=True)[:, :tau]
    kept = torch.zeros_like(contribution)
    return kept.scatter(1, chosen, contribution.gather(1, chosen))
