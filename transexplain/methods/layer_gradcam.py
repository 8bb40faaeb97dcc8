"""Grad-CAM over the hidden units behind one layer of a transformer.

Selvaraju et al. 2017, Eq. 1 and 2, with hidden units as feature maps. With h (T, D) the output of
the layer and y the explained sum of logits, hidden unit d weighs a_d = mean over t of dy/dh[t, d],
and the relevance of position t is ReLU(sum_d a_d h[t, d]). The mean runs over all positions of
the item, special ones included (a class token carries the whole gradient where only it is read),
and never over padding.

With `weights="local"` it is the Grad-CAM of Hou and Castanon 2023, equation 1: ReLU(sum_d
dy/dh[t, d] h[t, d]), every position with its own gradient. `layer="embeddings"` is their layer 0,
and their layer l is `layer` l - 1 here. With `weights="lrp"` the gradient is that of the composite
`lrp`, so that position t has the relevance which LRP gives it behind the layer.

Decoded Grad-CAM: layer saliency carried to the vocabulary by the pretrained LM head.

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

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from transexplain.engine.composites import composite
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import as_array, is_double
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.models.hidden_states import (
    EMBEDDINGS,
    LayerName,
    Layers,
    named,
    run_layers,
)
from transexplain.models.input_layer import Taps
from transexplain.models.lm_head import LMHead, lm_head
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import own_positions

Weights = Literal["pooled", "local", "lrp"]


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    layer: LayerName = None,
    weights: Weights = "pooled",
    relu: bool = True,
) -> BatchExplanation:
    """Grad-CAM at one layer; see the module.

    Args:
        model, batch, resolve, method: a model with a repeated layer list, B items.
        layer: 0..L-1, or from the end with -1 the last; `embeddings`: what the first layer takes.
            Default: the last but one (with one layer, that), for most classifiers read the output
            of the last at the class token alone, so what it holds elsewhere has no part in the
            logits.
        weights: `pooled`, `local` or `lrp`, as above; relevance of the last two is 0 where the
            model reads nothing behind the layer.
        relu: False keeps what the definition leaves out: evidence against the target.

    Returns relevance (T,) or (rows, cols) in `score`. Raises ConfigurationError for a layer that
    is not there or has other positions than the item.
    """
    layers, gradient_of = layers_with(model, batch, weights)
    index = layers.index(layer)

    def take(seed: Array, last: bool) -> SeedRelevance:
        gradient = gradient_of(index, torch.from_numpy(seed), last=last)
        scores = class_activation(layers, index, gradient, weights=weights)
        positions = scores.clamp(min=0) if relu else scores
        return SeedRelevance(
            positions.cpu().numpy(), notes=layer_notes(batch, gradient, scores, index)
        )

    mark = mark_of(layers, index, method)
    return explain_targets(batch, as_array(layers.logits), resolve, take, mark)


def mark_of(layers: Layers, layer: int, method: str) -> CommonFields:
    """The common fields of the attributions of a pass by layers."""
    at = "encoder" if layer == EMBEDDINGS else named(layer)
    return CommonFields(method=method, at=at, unit="score", double=is_double(layers.logits))


def layers_with(
    model: LoadedModel, batch: Batch, weights: Weights
) -> tuple[Layers, Callable[..., Tensor]]:
    """One forward pass, and what gives the gradient of `weights`: see `Layers.gradient`.

    Raises ConfigurationError for a word that is none of the weightings, EngineError where `lrp`
    meets an operator without a rule.
    """
    if weights not in get_args(Weights):
        raise ConfigurationError(
            f"weights is {' or '.join(map(repr, get_args(Weights)))}, not {weights!r}"
        )
    if weights != "lrp":
        layers = run_layers(model, batch)
        return layers, layers.gradient
    passed: list[Propagation] = []

    def run(forward: Callable[[Taps], Tensor]) -> Tensor:
        items = len(batch.encoded)
        passed.append(propagate(forward, composite("lrp"), items, module=model.module))
        return passed[0].logits

    layers = run_layers(model, batch, run)

    def gradient(layer: int, seed: Tensor, *, last: bool = False) -> Tensor:
        passed[0].book.start(keep=False)  # the ledger is of the input layer alone
        return layers.gradient(layer, seed, last=last)

    return layers, gradient


def class_activation(
    layers: Layers, layer: int, gradient: Tensor, *, weights: Weights = "pooled"
) -> Tensor:
    """(B, T) float64, signed: hidden vectors times the weights that `gradient` (B, T, D) gives."""
    hidden, slope = layers.hidden(layer).double(), gradient.double()
    if weights != "pooled":
        return (slope * hidden).sum(dim=-1)
    lengths = layers.batch.lengths.to(slope.device)
    own = torch.arange(slope.shape[1], device=slope.device) < lengths[:, None]
    pooled = (slope * own[:, :, None]).sum(dim=1) / lengths[:, None]
    return torch.einsum("btd,bd->bt", hidden, pooled)


def layer_notes(
    batch: Batch, gradient: Tensor, scores: Tensor, layer: int
) -> list[tuple[str, ...]]:
    """Per item, notes on a map without relevance; see `gradient` (B, T, D), `scores` (B, T).

    That no gradient stands at its content behind the layer; that no score is above 0.
    """
    moved, above = ((part > 0).cpu().numpy() for part in (gradient.abs().amax(dim=-1), scores))
    notes = []
    for row, encoded in enumerate(batch.encoded):
        of_item = []
        if not np.any(moved[row, own_positions(encoded.features, moved.shape[1])]):
            of_item.append(f"the logits read {named(layer)} at special positions only")
        if not np.any(above[row, : encoded.length]):
            of_item.append(f"no position of {named(layer)} speaks for the target")
        notes.append(tuple(of_item))
    return notes


#: the entries that the softmax of a position runs over
Among = Literal["vocabulary", "text"]


def explain_decoded(  # noqa: PLR0913 - each parameter of a method is a keyword
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
            f"for all; not {tau!r}"
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
