"""A composite over a batch: one forward, one backward per target, an Attribution for each."""

import dataclasses
from functools import partial

import torch
from torch import Tensor

from transexplain.engine.composites import Composite
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import EngineError
from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.methods.records import (
    Array,
    Features,
    Mark,
    SeedRelevance,
    explain_targets,
    parts,
)
from transexplain.models.base import Batch, Encoded, LoadedModel
from transexplain.types import PatchGrid


def explain_by(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    rules: Composite,
    *,
    at: str | None,
    method: str | None = None,
) -> BatchExplanation:
    """Explain every item of a batch by a composite: one forward, one backward per target.

    `method` is the name to record, where it is not the composite's.
    """
    input_layer = at or model.default_at
    items = len(batch.encoded)
    passes = propagate(
        lambda taps: model.run(batch, at=input_layer, taps=taps), rules, items, module=model.module
    )
    logits = passes.logits.detach().double().cpu().numpy()
    places = [features_at(input_layer, encoded) for encoded in batch.encoded]
    mark = Mark(
        method=method or rules.name,
        at=input_layer,
        unit=rules.unit,
        double=passes.logits.dtype == torch.float64,
    )
    take = partial(_one_pass, passes, places)
    return explain_targets(batch, logits, resolve, take, mark)


def _one_pass(
    passes: Propagation, places: list[Features], seed: Array, last: bool
) -> SeedRelevance:
    product = passes.relevance(torch.from_numpy(seed), last=last)
    positions = sum_hidden(product, places[0]).cpu().numpy()
    inputs, special = parts(positions.shape[1], places)
    ledgers = passes.book.close(positions * inputs, positions * special, passes.explained(seed))
    notes = [_notes(passes, item) for item in range(len(places))]
    return SeedRelevance(positions, ledgers=ledgers, notes=notes, features=places)


def _notes(passes: Propagation, item: int) -> tuple[str, ...]:
    """What a reader of one item's attribution has to know besides its numbers."""
    notes = []
    if passes.cut_softmax:
        notes.append("the model ends in a softmax: its input is explained")
    amplification = passes.book.amplification
    if amplification is not None:
        notes.append(f"the gamma rule amplified relevance up to {amplification[item]:.3g}-fold")
    return tuple(notes)


def features_at(input_layer: str, encoded: Encoded) -> Features:
    """What the positions of the input layer are: the item's own, single pixels, or nodes alone."""
    features = encoded.features
    if input_layer == "nodes" and not isinstance(features, PatchGrid):
        return tuple(token for token in features if not token.special)
    if input_layer == "pixels" and isinstance(features, PatchGrid):
        return dataclasses.replace(features, rows=features.height, cols=features.width, prefix=0)
    return features


def sum_hidden(product: Tensor, features: Features) -> Tensor:
    """(B, T, D) -> (B, T); maps (B, D, rows, cols) and (B, rows, cols, D) -> (B, rows * cols)."""
    if product.dim() == 3:
        return product.sum(dim=-1)
    if product.dim() == 4 and isinstance(features, PatchGrid):
        channels_last = tuple(product.shape[1:3]) == (features.rows, features.cols)
        return product.sum(dim=-1 if channels_last else 1).flatten(1)
    raise EngineError(
        f"the input layer has shape {tuple(product.shape)}; expected (B, T, D) or a map of "
        "patches. Choose another `at`"
    )
