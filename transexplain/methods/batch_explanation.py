"""The input and output of every method for a batch, and the step from relevance to attributions."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite
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

#: logits (B, C), or (B, P, C) of a model that answers at P positions, -> the targets of every item;
#: a method calls it after its forward pass
Resolve = Callable[[NDArray[np.floating[Any]]], list[list[ResolvedTarget]]]


@dataclass(frozen=True, slots=True)
class BatchExplanation:
    """One batch explained."""

    logits: NDArray[np.float64]  #: (B, C), or (B, P, C)
    attributions: Sequence[list[Attribution]]  #: per item, in the order of its targets


class Records(Sequence[list[Attribution]]):
    """The attributions of every item of a batch, made when an item's are asked for.

    So whoever keeps a device busy need not make them.
    """

    def __init__(
        self,
        rows: int,
        makers: "Sequence[Callable[[int], Attribution | None]]",
        finite: Callable[[], bool],
    ) -> None:
        """Each of `makers` gives one attribution of a row, or None where it has none.

        `finite` says whether every number of the batch is finite.
        """
        self._made: list[list[Attribution] | None] = [None] * rows
        self._makers = makers
        self._finite = finite

    @cached_property
    def are_finite(self) -> bool:
        """Return whether all numbers of the batch are finite; false: look at each item."""
        return self._finite()

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, row: Any) -> Any:
        """The attributions of one row, the same objects every time; a slice is a list."""
        if isinstance(row, slice):
            return [self[place] for place in range(len(self))[row]]
        record = self._made[row]
        if record is None:
            place = range(len(self))[row]
            made = [record for maker in self._makers if (record := maker(place)) is not None]
            record = self._made[row] = made
        return record


Array = NDArray[np.float64]
Features = Sequence[Token] | PatchGrid
Floating = TypeVar("Floating", bound=np.floating[Any])


@dataclasses.dataclass(frozen=True, slots=True)
class SeedRelevance:
    """The relevance of a batch for one target per item."""

    positions: Array  #: (B, T), special positions included; what lies beyond an item is ignored
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
    notes: tuple[str, ...] = ()  #: of all


#: coefficients of the targets, shaped as the logits, and whether this is the last call ->
#: a SeedRelevance
ExplainSeed = Callable[[Array, bool], SeedRelevance]


def explain_targets(
    batch: Batch, logits: Array, resolve: Resolve, take: ExplainSeed, mark: CommonFields
) -> BatchExplanation:
    """Explain every target of every item, one target of each item at a time.

    Args:
        batch: B items.
        logits: (B, C), or (B, P, C) of a model that answers at P positions.
        resolve: logits -> targets of every item.
        take: computes the relevance of the batch for a seed shaped as the logits; a row of zeros
            is an item that has no target left.
        mark: what is written on every attribution.
    """
    targets = resolve(logits)
    rounds = max((len(of_item) for of_item in targets), default=0)
    makers: list[Callable[[int], Attribution | None]] = []
    numbers: list[tuple[NDArray[np.floating[Any]], Sequence[Ledger]]] = []
    for number in range(rounds):
        row_targets = [of_item[number] if number < len(of_item) else None for of_item in targets]
        seed = seed_of(row_targets, logits.shape)
        taken = take(seed, number == rounds - 1)
        explained_logits = sum_of_item(seed * logits)
        kept: NDArray[np.floating[Any]] = taken.positions.astype(
            np.float64 if mark.double else np.float32
        )
        numbers.append((kept, taken.ledgers or ()))
        makers.append(
            partial(_record, batch.encoded, row_targets, taken, kept, explained_logits, mark)
        )
    finite = partial(_all_finite, logits, numbers)
    return BatchExplanation(logits, Records(len(batch.encoded), makers, finite))


def _all_finite(
    logits: Array, taken: Sequence[tuple[NDArray[np.floating[Any]], Sequence[Ledger]]]
) -> bool:
    """Return whether logits, relevance (padding too) and ledgers of a batch are finite."""
    return bool(np.isfinite(logits).all()) and all(
        np.isfinite(relevance).all() and all(map(is_finite, ledgers))
        for relevance, ledgers in taken
    )


def is_finite(ledger: Ledger) -> bool:
    """Return whether the sum and the scale of a ledger are finite."""
    return isfinite(ledger.total) and isfinite(ledger.magnitude)


def seed_of(targets: Sequence[ResolvedTarget | None], shape: tuple[int, ...]) -> Array:
    """The coefficient of every logit in what is explained; 0 where nothing is.

    `shape` is that of the logits: (B, C), or (B, P, C) where targets say at which positions.
    """
    seed = np.zeros(shape)
    for row, target in enumerate(targets):
        for number, (index, coefficient) in enumerate(target.coefficients if target else ()):
            # no position where an item has one row of logits
            place = target.positions[number : number + 1] if target else ()
            seed[(row, *place, index)] += coefficient
    return seed


def sum_of_item(values: Array) -> Array:
    """(B, ...) summed over all axes but the first: (B,)."""
    return np.asarray(values.reshape(len(values), -1).sum(axis=1))


def numbered(logits: Array, numbers: Sequence[int]) -> Array:
    """(B, K) logits of an item, counted over its positions and at each of them over the classes.

    0 where a batch of shorter texts has no such position.
    """
    flat = logits.reshape(len(logits), -1)
    missing = max(numbers, default=0) + 1 - flat.shape[1]
    return np.pad(flat, ((0, 0), (0, max(0, missing))))[:, numbers]


def parts(width: int, places: Sequence[Features]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which of (B, `width`) positions are inputs, and which special.

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
    items: Sequence[Encoded],
    targets: Sequence[ResolvedTarget | None],
    seed_relevance: SeedRelevance,
    kept: NDArray[np.floating[Any]],
    logits: Array,
    mark: CommonFields,
    row: int,
) -> Attribution | None:
    """The record of one row of a batch (B,) for its target; None where it has none.

    `kept` (B, T) is the relevance in the precision of the record.
    """
    encoded, target = items[row], targets[row]
    if target is None:
        return None
    features = encoded.features if seed_relevance.features is None else seed_relevance.features[row]
    relevance, prefix = split(kept[row], features)
    if prefix:  # in full precision
        prefix = split(seed_relevance.positions[row], features)[1]
    notes = seed_relevance.notes[row] if seed_relevance.notes else ()
    return Attribution(
        item_id=encoded.item.id,
        method=mark.method,
        target=target.spec,
        rank=target.rank,
        class_index=target.class_index,
        class_name=target.class_name,
        logit=float(logits[row]),
        relevance=relevance.copy(),  # not a view of the whole batch
        unit=mark.unit,
        at=mark.at,
        features=features,
        ledger=None if seed_relevance.ledgers is None else seed_relevance.ledgers[row],
        text=encoded.item.text,
        second_at=encoded.item.second_at,
        prefix_relevance=prefix,
        notes=(*filter(None, [target.note]), *mark.notes, *notes),
        positions=target.positions,
        truncated=encoded.truncated,
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
