"""Computes the model's logits for items with some positions absent, whatever their length."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transexplain.evaluating.metrics.metric_table import Array, Masks
from transexplain.explaining.batch_sizes import Room, batches_of
from transexplain.explaining.long_texts import window_weights
from transexplain.methods.at_input_layer import POSITIONS_AT_ONCE, as_array, logits_again
from transexplain.methods.presence import Baseline, Over, Presence, owners_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.read_lengths import Join

#: called before every batch; it may raise to end the work
Beat = Callable[[], None]
_AT_ONCE = 2 * POSITIONS_AT_ONCE


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What one pass reads of an item: all of it, or one window."""

    owner: int  #: number of the item
    encoded: Encoded
    weight: float  #: of its logits in the item's


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PerturbedLogits:
    """The logits of some items with features of theirs absent.

    A long text is run window by window; its logits are the windows' logits joined as they were
    for its explanation.
    """

    model: LoadedModel
    encoded: Sequence[Encoded]
    parts: tuple[_Part, ...]
    batches: tuple[tuple[int, ...], ...]  #: parts that may share a pass
    logits: tuple[Array, ...]  #: (C,) of every part, with everything present
    whole: tuple[Array, ...]  #: (C,) of every item, with everything present
    beat: Beat

    @classmethod
    def of(cls, model: LoadedModel, encoded: Sequence[Encoded], join: Join, beat: Beat) -> Self:
        """Encode once, run the unperturbed items once."""
        items = enumerate(encoded)
        parts = tuple(part for number, one in items for part in _parts(number, one, join))
        given = [part.encoded for part in parts]
        batches = tuple(tuple(rows) for rows in batches_of(model, given, _AT_ONCE))
        logits: dict[int, Array] = {}
        for rows in batches:
            beat()
            logits.update(zip(rows, _answers(model, parts, rows), strict=True))
        whole = tuple(np.zeros(len(model.classes)) for _ in encoded)
        for row, part in enumerate(parts):
            whole[part.owner][:] += part.weight * logits[row]
        return cls(
            model=model,
            encoded=encoded,
            parts=parts,
            batches=batches,
            logits=tuple(logits[row] for row in range(len(parts))),
            whole=whole,
            beat=beat,
        )

    def seconds(self, positions: int | None) -> list[float]:
        """Of every item, how long its prediction takes: its share of its batches' wall clock.

        The items are run anew, in batches of as many `positions` as those that are explained: the
        first passes of a process also set up what later ones find.
        """
        budget = min(Room(positions, self.model).positions, _AT_ONCE)
        found = [0.0 for _ in self.encoded]
        for rows in batches_of(self.model, [part.encoded for part in self.parts], budget):
            self.beat()
            begun = time.perf_counter()
            _answers(self.model, self.parts, rows)
            share = (time.perf_counter() - begun) / len(rows)
            for row in rows:
                found[self.parts[row].owner] += share
        return found

    def features(self, over: Over) -> list[NDArray[np.int64]]:
        """Per item (T,) which of its features a position belongs to, -1: always there."""
        return [owners_of(one, over) for one in self.encoded]

    def ask(self, masks: Sequence[Masks | None], baseline: Baseline, over: Over) -> list[Array]:
        """The logits of every item where the features in its masks are present.

        Args:
            masks: (N, F) for each item, N its own; None: it is not run.
            baseline: what stands in the place of what is absent; see `methods.absence`.
            over: what a feature is.

        Returns:
            (N, C) for each item; (0, C) for one that is not run. Raises ConfigurationError where
            the baseline does not fit the model, ItemError where a logit is not finite.
        """
        classes = range(len(self.model.classes))
        counts = [0 if mask is None else len(mask) for mask in masks]
        found = [np.zeros((count, len(classes))) for count in counts]
        owners = self.features(over)
        for rows in self.batches:
            wanted = [row for row in rows if counts[self.parts[row].owner]]
            if not wanted:
                continue
            parts = [self.parts[row] for row in wanted]
            presence = Presence.of(
                self.model,
                self.model.collate([part.encoded for part in parts]),
                np.stack([self.logits[row] for row in wanted]),
                classes,
                baseline=baseline,
                over=over,
                beat=self.beat,
            )
            requested = []
            for part, own in zip(parts, presence.owners, strict=True):
                mask = masks[part.owner]
                assert mask is not None
                requested.append(_of_part(mask, part, owners[part.owner], own, self.encoded))
            answers = presence.logits_of(range(len(parts)), requested)
            for part, answer in zip(parts, answers, strict=True):
                found[part.owner] += part.weight * answer
        return found


def _answers(model: LoadedModel, parts: Sequence[_Part], rows: Sequence[int]) -> Array:
    """(N, C) the logits of the parts `rows`, which share a pass."""
    return as_array(logits_again(model, model.collate([parts[row].encoded for row in rows])))


def _parts(number: int, encoded: Encoded, join: Join) -> list[_Part]:
    if not encoded.windows:
        return [_Part(number, encoded, 1.0)]
    weights = window_weights(encoded, join)
    return [
        _Part(number, window.encoded, float(weight))
        for window, weight in zip(encoded.windows, weights, strict=True)
    ]


def _of_part(
    mask: Masks,
    part: _Part,
    whole: NDArray[np.int64],
    own: NDArray[np.int64],
    encoded: Sequence[Encoded],
) -> Masks:
    """(N, F') the features of a window that are present, from those of its text (N, F)."""
    item = encoded[part.owner]
    if part.encoded is item:
        return mask
    places = next(window.places for window in item.windows if window.encoded is part.encoded)
    of_window = np.zeros(int(own.max(initial=-1)) + 1, dtype=np.intp)
    held = own >= 0
    of_window[own[held]] = whole[places[held]]
    return mask[:, of_window]
