"""The input and output of every method for a batch, and the step from relevance to attributions."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.models.loaded_model import Batch, Encoded
from transexplain.randomness import keyed_number
from transexplain.types.items import (
    Attribution,
    Ledger,
    PatchGrid,
    ResolvedTarget,
    Unit,
    own_positions,
)
from transexplain.types.tokens import Token, Tokens

#: (B, C) logits -> the targets of every item; a method calls it after its forward pass
Resolve = Callable[[NDArray[np.floating[Any]]], list[list[ResolvedTarget]]]


@dataclass(frozen=True, slots=True)
class BatchExplanation:
    """One batch explained."""

    logits: NDArray[np.float64]  #: (B, C)
    attributions: list[list[Attribution]]  #: per item, in the order of its targets


Array = NDArray[np.float64]
Features = Sequence[Token] | PatchGrid
Floating = TypeVar("Floating", bound=np.floating[Any])


@dataclasses.dataclass(frozen=True, slots=True)
class SeedRelevance:
    """The relevance of a batch for one target per item."""

    positions: Array  #: (B, T), special positions included; what lies beyond an item is ignored
    logits: Array | None = None  #: (B,) where it is not the seeded sum of the batch's logits
    ledgers: Sequence[Ledger] | None = None  #: per item
    notes: Sequence[tuple[str, ...]] = ()  #: per item
    #: what each item's positions are, where they are not the item's own
    features: Sequence[Features] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CommonFields:
    """What all attributions of a batch have in common."""

    method: str
    at: str
    unit: Unit
    double: bool = False  #: relevance in float64, as the model computes; else float32


#: (B, C) coefficients of the targets, and whether this is the last call -> a SeedRelevance
ExplainSeed = Callable[[Array, bool], SeedRelevance]


def explain_targets(
    batch: Batch, logits: Array, resolve: Resolve, take: ExplainSeed, mark: CommonFields
) -> BatchExplanation:
    """Explain every target of every item, one target of each item at a time.

    Args:
        batch: B items.
        logits: (B, C).
        resolve: logits -> targets of every item.
        take: computes the relevance of the batch for a seed (B, C); a row of zeros is an item
            that has no target left.
        mark: what is written on every attribution.
    """
    targets = resolve(logits)
    rounds = max((len(of_item) for of_item in targets), default=0)
    explained: list[list[Attribution]] = [[] for _ in batch.encoded]
    for number in range(rounds):
        row_targets = [of_item[number] if number < len(of_item) else None for of_item in targets]
        seed = seed_of(row_targets, logits.shape)
        found = take(seed, number == rounds - 1)
        explained_logits = (seed * logits).sum(axis=1) if found.logits is None else found.logits
        kept = found.positions.astype(np.float64 if mark.double else np.float32)
        for row, target in enumerate(row_targets):
            if target is not None:
                logit = float(explained_logits[row])
                explained[row].append(
                    _record(batch.encoded[row], target, found, row, kept[row], logit, mark)
                )
    return BatchExplanation(logits, explained)


def seed_of(targets: Sequence[ResolvedTarget | None], shape: tuple[int, ...]) -> Array:
    """(B, C) the coefficient of every logit in what is explained; 0 where nothing is."""
    seed = np.zeros(shape)
    for row, target in enumerate(targets):
        for class_index, coefficient in target.coefficients if target else ():
            seed[row, class_index] = coefficient
    return seed


def parts(width: int, places: Sequence[Features]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of (B, `width`) positions are inputs, and which special.

    Padding is neither: what a model lets leak there shows in the ledger's gap.
    """
    inputs = np.zeros((len(places), width), dtype=bool)
    special = np.zeros((len(places), width), dtype=bool)
    for row, features in enumerate(places):
        if isinstance(features, PatchGrid):
            inputs[row] = own_positions(features, width)
            special[row] = ~inputs[row]
        else:
            special[row, : len(features)] = Tokens.of(features).special
            inputs[row, : len(features)] = ~special[row, : len(features)]
    return inputs, special


def _record(
    encoded: Encoded,
    target: ResolvedTarget,
    found: SeedRelevance,
    row: int,
    kept: NDArray[np.floating[Any]],
    logit: float,
    mark: CommonFields,
) -> Attribution:
    """One item's record; `kept` (T,) is its relevance in the precision of the record."""
    features = encoded.features if found.features is None else found.features[row]
    prefix = split(found.positions[row], features)[1] if isinstance(features, PatchGrid) else ()
    content = encoded.item.content
    return Attribution(
        item_id=encoded.item.id,
        method=mark.method,
        target=target.spec,
        rank=target.rank,
        class_index=target.class_index,
        class_name=target.class_name,
        logit=logit,
        relevance=split(kept, features)[0].copy(),  # not a view of the whole batch
        unit=mark.unit,
        at=mark.at,
        features=features,
        ledger=None if found.ledgers is None else found.ledgers[row],
        text=content if isinstance(content, str) else None,
        prefix_relevance=prefix,
        notes=found.notes[row] if found.notes else (),
    )


def split(
    positions: NDArray[Floating], features: Features
) -> tuple[NDArray[Floating], tuple[float, ...]]:
    """(T,) as (T,) or (rows, cols), without padding, and the relevance of a prefix."""
    if not isinstance(features, PatchGrid):
        return positions[: len(features)], ()
    prefix, cells = features.prefix, features.rows * features.cols
    grid = positions[prefix : prefix + cells].reshape(features.rows, features.cols)
    return grid, tuple(positions[:prefix].tolist())


def generator_of(seed: int, item_id: str, purpose: str = "") -> torch.Generator:
    """A generator on the CPU seeded by `seed`, the item's id and what it is for.

    Draw for the item's own positions, never for the padded length: then an item has the same
    numbers in every batch.
    """
    number = keyed_number(seed, item_id, purpose, algorithm="sha256", byte_order="little")
    return torch.Generator().manual_seed(number % 2**63)
