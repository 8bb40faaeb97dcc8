"""From the attributions of a text's windows to the attribution of the text."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.methods.records import Array
from transexplain.models.base import Encoded
from transexplain.plans import Join
from transexplain.types import Attribution, Ledger, own_positions

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def window_weights(encoded: Encoded, join: Join) -> Array:
    """(W,) what the logits of each window of a long text count for.

    A window counts for the share of its tokens that is its own, where a token that n windows read
    belongs to each of them to 1/n: so the weights times the sizes of the windows sum to the
    number of tokens, and nothing counts twice for being read twice. Without overlap every share
    is 1. `sum` takes the shares as they are, `mean` divides them by their sum: without overlap,
    by W.
    """
    readers = _readers(encoded)
    own = own_positions(encoded.features, encoded.length)
    read = [window.places[own[window.places]] for window in encoded.windows]
    shares = np.array([(1.0 / readers[places]).sum() / max(1, len(places)) for places in read])
    return shares if join == "sum" else shares / shares.sum()


def joined(
    encoded: Encoded, parts: Sequence[Attribution], weights: Array, join: Join
) -> Attribution:
    """One attribution of the whole text: the weighted sum of those of its windows.

    Args:
        encoded: a text of T positions in W windows; special positions in front and at the end
            are one position for those of all windows.
        parts: of each window, all for one target.
        weights: (W,), see `window_weights`.
        join: how the weights were made, for the note.

    Returns:
        Relevance (T,); it, the logit and every entry of the ledger are the same weighted sum.
    """
    relevance = np.zeros(encoded.length)
    for window, part, weight in zip(encoded.windows, parts, weights, strict=True):
        np.add.at(relevance, window.places, weight * part.relevance.astype(np.float64))
    ledgers = [part.ledger for part in parts if part.ledger is not None]
    return dataclasses.replace(
        parts[0],
        item_id=encoded.item.id,
        logit=float(weights @ [part.logit for part in parts]),
        relevance=relevance.astype(parts[0].relevance.dtype),
        features=encoded.features,
        ledger=joined_ledger(ledgers, weights) if len(ledgers) == len(parts) else None,
        notes=(_note(encoded, join), *_common(part.notes for part in parts)),
    )


def joined_ledger(ledgers: Sequence[Ledger], weights: Array) -> Ledger:
    """The weighted sum of ledgers, entry by entry.

    Its gap is the weighted sum of what was explained, minus the total; its magnitude is the sum
    of the |terms| with their weights.
    """

    def total(values: Iterable[float]) -> float:
        return float(weights @ np.fromiter(values, dtype=np.float64))

    inputs, special, embeddings, biases, rules = (
        total(getattr(ledger, name) for ledger in ledgers)
        for name in ("inputs", "special", "embeddings", "biases", "rules")
    )
    whole = inputs + special + embeddings + biases + rules
    return Ledger(
        inputs=inputs,
        special=special,
        embeddings=embeddings,
        biases=biases,
        rules=rules,
        total=whole,
        gap=total(ledger.total + ledger.gap for ledger in ledgers) - whole,
        magnitude=total(ledger.magnitude for ledger in ledgers),
        biases_by_kind=_by_kind([ledger.biases_by_kind for ledger in ledgers], weights),
        rules_by_kind=_by_kind([ledger.rules_by_kind for ledger in ledgers], weights),
    )


def _by_kind(tables: Sequence[Mapping[str, float]], weights: Array) -> dict[str, float]:
    kinds = {kind: None for table in tables for kind in table}
    return {kind: float(weights @ [table.get(kind, 0.0) for table in tables]) for kind in kinds}


def _readers(encoded: Encoded) -> NDArray[Any]:
    """(T,) how many windows read each position."""
    return np.bincount(
        np.concatenate([window.places for window in encoded.windows]), minlength=encoded.length
    )


def _note(encoded: Encoded, join: Join) -> str:
    longest = max(window.encoded.length for window in encoded.windows)
    note = (
        f"explained in {len(encoded.windows)} windows of at most {longest} positions, "
        f"{join} of their logits"
    )
    shared = float((_readers(encoded) > 1)[own_positions(encoded.features, encoded.length)].mean())
    if shared:
        note += f"; {shared:.0%} of the tokens are in several, each counted once among them"
    return note


def _common(of_windows: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The notes of all windows, each once; a number that differs is given as its range."""
    alike: dict[str, list[str]] = {}
    for note in (note for notes in of_windows for note in notes):
        alike.setdefault(_NUMBER.sub("#", note), []).append(note)
    return tuple(_ranged(notes) for notes in alike.values())


def _ranged(notes: Sequence[str]) -> str:
    """One text for several that differ in their numbers only."""
    columns = zip(*(_NUMBER.findall(note) for note in notes), strict=True)
    ranges = iter(
        [
            low if low == high else f"{low} to {high}"
            for column in columns
            for low, high in [(min(column, key=float), max(column, key=float))]
        ]
    )
    return _NUMBER.sub(lambda _: next(ranges), notes[0])
