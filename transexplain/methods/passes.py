"""A composite over a batch: one forward, one backward per target, an Attribution for each."""

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.engine.composites import Composite
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import EngineError
from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.models.base import Batch, Encoded, LoadedModel
from transexplain.types import Attribution, Ledger, PatchGrid, ResolvedTarget, Token

Array = NDArray[np.float64]
Features = tuple[Token, ...] | PatchGrid


def explain_by(
    model: LoadedModel, batch: Batch, resolve: Resolve, rules: Composite, *, at: str | None
) -> BatchExplanation:
    """Explain every item of a batch by a composite: one forward, one backward per target."""
    leaf = at or model.default_at
    items = len(batch.encoded)
    passes = propagate(
        lambda taps: model.run(batch, at=leaf, taps=taps), rules, items, module=model.module
    )
    logits = passes.logits.detach().double().cpu().numpy()
    targets = resolve(logits)
    rounds = max((len(of_item) for of_item in targets), default=0)
    explained: list[list[Attribution]] = [[] for _ in range(items)]
    places = [_features_at(leaf, encoded) for encoded in batch.encoded]
    for turn in range(rounds):
        asked = [of_item[turn] if turn < len(of_item) else None for of_item in targets]
        found = _one_pass(passes, places, asked, logits, last=turn == rounds - 1)
        for index, target in enumerate(asked):
            if target is not None:
                named = _record(batch.encoded[index], places[index], target, found[index])
                notes = _notes(passes, index)
                named = dataclasses.replace(
                    named, method=rules.name, at=leaf, unit=rules.unit, notes=notes
                )
                explained[index].append(named)
    return BatchExplanation(logits, explained)


def _notes(passes: Propagation, item: int) -> tuple[str, ...]:
    """What a reader of one item's attribution has to know besides its numbers."""
    notes = []
    if passes.cut_softmax:
        notes.append("the model ends in a softmax: its input is explained")
    amplification = passes.book.amplification
    if amplification is not None:
        notes.append(f"the gamma rule amplified relevance up to {amplification[item]:.3g}-fold")
    return tuple(notes)


def _features_at(leaf: str, encoded: Encoded) -> Features:
    """What the positions of the leaf are: the item's own, or single pixels."""
    features = encoded.features
    if leaf == "pixels" and isinstance(features, PatchGrid):
        return dataclasses.replace(features, rows=features.height, cols=features.width, prefix=0)
    return features


@dataclasses.dataclass(frozen=True, slots=True)
class _Measured:
    """One item's share of a backward pass."""

    positions: Array  #: (T,) with special positions
    logit: float
    ledger: Ledger
    dtype: type[np.floating[Any]]


def _one_pass(
    passes: Propagation,
    places: list[Features],
    asked: list[ResolvedTarget | None],
    logits: Array,
    *,
    last: bool,
) -> list[_Measured]:
    seed = np.zeros(logits.shape)
    for index, target in enumerate(asked):
        for class_index, coefficient in target.coefficients if target else ():
            seed[index, class_index] = coefficient
    product = passes.relevance(torch.from_numpy(seed), last=last)
    logit_of_item = (seed * logits).sum(axis=1)
    positions = _sum_hidden(product, places[0]).cpu().numpy()
    inputs, special = _parts(positions.shape[1], places)
    ledgers = passes.book.close(positions * inputs, positions * special, passes.explained(seed))
    dtype = np.float64 if passes.logits.dtype == torch.float64 else np.float32
    return [
        _Measured(positions[i], float(logit_of_item[i]), ledgers[i], dtype)
        for i in range(len(places))
    ]


def _parts(width: int, places: list[Features]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of (B, `width`) positions are inputs, and which special.

    Padding is neither: what a model lets leak there shows in the ledger's gap.
    """
    inputs, special = (np.zeros((len(places), width), dtype=bool) for _ in range(2))
    for row, features in enumerate(places):
        if isinstance(features, PatchGrid):
            inputs[row, features.prefix : features.prefix + features.rows * features.cols] = True
            special[row] = ~inputs[row]
        else:
            special[row, : len(features)] = [token.special for token in features]
            inputs[row, : len(features)] = ~special[row, : len(features)]
    return inputs, special


def _sum_hidden(product: Tensor, features: Features) -> Tensor:
    """(B, T, D) -> (B, T); maps (B, D, rows, cols) and (B, rows, cols, D) -> (B, rows * cols)."""
    if product.dim() == 3:
        return product.sum(dim=-1)
    if product.dim() == 4 and isinstance(features, PatchGrid):
        channels_last = tuple(product.shape[1:3]) == (features.rows, features.cols)
        return product.sum(dim=-1 if channels_last else 1).flatten(1)
    raise EngineError(
        f"the leaf has shape {tuple(product.shape)}; expected (B, T, D) or a map of patches. "
        "Choose another `at`"
    )


def _record(
    encoded: Encoded, features: Features, target: ResolvedTarget, measured: _Measured
) -> Attribution:
    relevance, prefix = measured.positions, ()
    if isinstance(features, PatchGrid):
        cells = features.rows * features.cols
        prefix = tuple(relevance[: features.prefix].tolist())
        relevance = relevance[features.prefix : features.prefix + cells]
        relevance = relevance.reshape(features.rows, features.cols)
    else:
        relevance = relevance[: len(features)]
    content = encoded.item.content
    return Attribution(
        item_id=encoded.item.id,
        method="",
        target=target.spec,
        rank=target.rank,
        class_index=target.class_index,
        class_name=target.class_name,
        logit=measured.logit,
        relevance=relevance.astype(measured.dtype),
        unit="logits",
        at="",
        features=features,
        ledger=measured.ledger,
        text=content if isinstance(content, str) else None,
        prefix_relevance=prefix,
    )
