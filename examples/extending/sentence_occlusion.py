"""A method: how far a logit falls when a whole sentence is left out."""

import re
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError
from transexplain.methods.batch_explanation import BatchExplanation, Resolve
from transexplain.methods.method_table import Cost, Parameters
from transexplain.methods.presence import Baseline, ItemEstimate, Presence, explain_presence
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.types.items import PatchGrid

_SENTENCE = re.compile(r"[^.!?]+[.!?]*")


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    baseline: Baseline = "auto",
) -> BatchExplanation:
    """The logit minus the logit without the sentence, shared equally by its tokens.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        baseline: what replaces the tokens that are left out; see `absence.absence`.

    Returns relevance (T,) in logits. Raises ItemError for an item that is not a text.
    """
    return explain_presence(
        model, batch, resolve, _estimates, method=method, baseline=baseline, over="tokens"
    )


def cost(params: Parameters, positions: int) -> Cost:
    """The whole text, and one pass for each sentence: at most one for each position."""
    del params
    return Cost(forwards=1 + positions, target_backwards=0)


def _estimates(presence: Presence) -> list[ItemEstimate]:
    return [_estimate(presence, row) for row in range(len(presence.batch.encoded))]


def _estimate(presence: Presence, row: int) -> ItemEstimate:
    """Weights (F, K) of the F tokens of one text for the K logits that are explained."""
    sentence = sentences_of(presence.batch.encoded[row])
    count = int(sentence.max(initial=0)) + 1
    kept = sentence != np.arange(count)[:, None]  # (S, F): each row lacks one sentence
    (answers,) = presence.logits_of([row], [kept])  # (S, K)
    falls = presence.logits[row] - answers
    tokens = np.maximum(np.bincount(sentence, minlength=count), 1)
    return ItemEstimate((falls / tokens[:, None])[sentence])


def sentences_of(encoded: Encoded) -> NDArray[np.int64]:
    """(F,) the number of the sentence that each token of the text stands in."""
    text = encoded.item.content
    if not isinstance(text, str) or isinstance(encoded.features, PatchGrid):
        raise ItemError("no-text", f"item {encoded.item.id} is not a text: it has no sentences")
    begins = [found.start() for found in _SENTENCE.finditer(text)]
    places = [token.start for token in encoded.features if not token.special]
    return np.array([max(0, bisect_right(begins, place) - 1) for place in places], dtype=np.int64)
