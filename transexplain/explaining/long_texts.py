"""Long texts: their windows are explained for one target and joined to one attribution."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError
from transexplain.explaining.batch_sizes import Room, batches_of, give_back, is_out_of_memory
from transexplain.explaining.explain_request import (
    Explained,
    Member,
    Request,
    Stopped,
    encoded_of,
    finished,
    model_failure,
)
from transexplain.methods import facts_of
from transexplain.methods.at_input_layer import InputLayerForward, steps_of
from transexplain.methods.batch_explanation import Array
from transexplain.methods.random import redrawn
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Attribution, Ledger, ResolvedTarget, own_positions
from transexplain.types.observer import Observer
from transexplain.types.plans import Join

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


class Part(NamedTuple):
    """What one pass reads of an item: all of it, or one window."""

    owner: int  #: number of the item
    encoded: Encoded
    weight: float  #: of its logits in the item's


def parts_of(items: Sequence[Encoded], join: Join) -> list[Part]:
    """All that is read of these items, in order."""
    parts = []
    for number, encoded in enumerate(items):
        if not encoded.windows:
            parts.append(Part(number, encoded, 1.0))
            continue
        weights = window_weights(encoded, join)
        for window, weight in zip(encoded.windows, weights, strict=True):
            parts.append(Part(number, window.encoded, float(weight)))
    return parts


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


def redrawn_in_windows(
    attribution: Attribution, encoded: Encoded, join: Join, seed: int
) -> Attribution:
    """Return what random relevance gives a text in windows in the place of `one` for another seed.

    As `redrawn`, without a forward pass: every window draws for itself, and the draws are joined.
    """
    parts = []
    for window in encoded.windows:
        own = window.encoded
        empty = np.zeros(own.length, dtype=attribution.relevance.dtype)
        part = dataclasses.replace(
            attribution, item_id=own.item.id, features=own.features, relevance=empty
        )
        parts.append(redrawn(part, seed))
    made = joined(encoded, parts, window_weights(encoded, join), join)
    return dataclasses.replace(attribution, relevance=made.relevance)


def joined_ledger(ledgers: Sequence[Ledger], weights: Array) -> Ledger:
    """The weighted sum of ledgers, entry by entry.

    Its gap is the weighted sum of what was explained, minus the total; its magnitude is the sum
    of the |terms| with their weights.
    """

    def total(values: Iterable[float]) -> float:
        return float(weights @ np.fromiter(values, dtype=np.float64))

    entries = {
        name: total(getattr(ledger, name) for ledger in ledgers)
        for name in ("inputs", "special", "embeddings", "biases", "rules")
    }
    whole = sum(entries.values())
    return Ledger(
        **entries,
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
    """One text for several that differ only in their numbers."""
    columns = zip(*(_NUMBER.findall(note) for note in notes), strict=True)
    ranges = iter(
        [
            low if low == high else f"{low} to {high}"
            for column in columns
            for low, high in [(min(column, key=float), max(column, key=float))]
        ]
    )
    return _NUMBER.sub(lambda _: next(ranges), notes[0])


Targets = list[list[ResolvedTarget]]  #: of each member


def explain_in_windows(
    members: Sequence[Member], request: Request, watch: Observer, room: Room
) -> Iterator[tuple[Member, Explained]]:
    """Explain items that are longer than the model reads, each by the join of its windows.

    What is explained is F(x) = sum_w a_w f_w(x), f_w the logits (C,) of window w and a_w the
    weights of `window_weights`. The targets are those of F, for every window the same, and
    relevance and ledger are the same weighted sum as F, which they therefore add up to.
    """
    for group in _groups(members, room.positions):
        results = _attempt(group, request, watch, room, room.positions)
        for member, result in zip(group, results, strict=True):
            watch.item_done(member.encoded.item.id)
            yield member, result


def _groups(members: Sequence[Member], budget: int) -> Iterator[list[Member]]:
    """Items whose windows share batches, so that few batches are left half empty."""
    group: list[Member] = []
    room = budget
    for member in members:
        size = sum(window.encoded.length for window in member.encoded.windows)
        if group and size > room:
            yield group
            group, room = [], budget
        group.append(member)
        room -= size
    if group:
        yield group


def _attempt(
    members: Sequence[Member], request: Request, watch: Observer, room: Room, budget: int
) -> list[Explained]:
    """Explain a group; on an error smaller groups, then smaller batches, are tried.

    So a window at fault costs only its own item, and a device short of memory costs time.
    """
    try:
        return _WindowGroup(room.model, members, request, watch, budget).explain()
    except (EngineError, ConfigurationError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the item's error row
        trace = traceback_of(error) if len(members) == 1 else ""
        failed = error.with_traceback(None)
    freed = is_out_of_memory(failed) and give_back(room.model)
    if len(members) > 1:
        middle = len(members) // 2
        halves = (members[:middle], members[middle:])
        return [
            result
            for half in halves
            for result in _attempt(half, request, watch, room, min(budget, room.positions))
        ]
    encoded = members[0].encoded
    if budget > max(window.encoded.length for window in encoded.windows):
        results = _attempt(members, request, watch, room, budget // 2)
        if is_out_of_memory(failed) and results[0].failure is None:
            room.positions = min(room.positions, budget // 2)
        return results
    if freed:
        with steps_of(room.model).eagerly():
            return _attempt(members, request, watch, room, budget)
    return [model_failure(encoded.item, failed, trace)]


class _WindowGroup:
    """The windows of some items, and which of them share a batch."""

    def __init__(
        self,
        model: LoadedModel,
        members: Sequence[Member],
        request: Request,
        watch: Observer,
        budget: int,
    ) -> None:
        self.model, self.members, self.request, self.watch = model, members, request, watch
        self.parts = parts_of(encoded_of(members), request.long_text_join)
        #: indices into `parts` of each member, and of each batch
        self.rows: list[list[int]] = [[] for _ in members]
        for row, part in enumerate(self.parts):
            self.rows[part.owner].append(row)
        self.batches = batches_of(model, [part.encoded for part in self.parts], budget)
        #: (W,) of each member
        self.weights = [np.array([self.parts[row].weight for row in rows]) for rows in self.rows]

    def explain(self) -> list[Explained]:
        """One result per member."""
        targets = self._targets()
        logits: dict[int, Array] = {}
        attributions: dict[int, list[Attribution]] = {}
        for rows in self.batches:
            resolve = partial(self._resolve, rows, targets)
            explained = self.request.run(self.model, self._batch(rows), resolve)
            logits.update(zip(rows, explained.logits, strict=True))
            attributions.update(zip(rows, explained.attributions, strict=True))
        ends = []
        for number, whole in enumerate(self._joined_logits(logits)):
            member = self.members[number]
            join = partial(
                joined,
                member.encoded,
                weights=self.weights[number],
                join=self.request.long_text_join,
            )
            of_targets = zip(*(attributions[row] for row in self.rows[number]), strict=True)
            ends.append(finished(self.request, member, whole, list(map(join, of_targets))))
        return ends

    def _targets(self) -> Targets | None:
        """Targets of the joined logits; None where one batch holds every window.

        Then they are resolved in it, and the forward pass that is made here is saved.
        """
        if len(self.batches) == 1:
            return None
        if not any(target.kind in ("predicted", "top") for target in self.request.targets):
            nothing = np.zeros(len(self.model.classes))
            return self._resolved(dict.fromkeys(range(len(self.parts)), nothing))
        logits: dict[int, Array] = {}
        for rows in self.batches:
            batch = self._batch(rows)
            if facts_of(self.request.method.name).needs_rules:  # these cut a final softmax off
                passed = self.request.run(self.model, batch, lambda seen: [[] for _ in seen]).logits
            else:
                passed = InputLayerForward.of(self.model, batch, None).logits
            logits.update(zip(rows, passed, strict=True))
        return self._resolved(logits)

    def _resolve(
        self, rows: Sequence[int], targets: Targets | None, logits: NDArray[np.floating[Any]]
    ) -> Targets:
        """The targets of the windows `rows`: those of their items."""
        of = self._resolved(dict(zip(rows, logits, strict=True))) if targets is None else targets
        return [of[self.parts[row].owner] for row in rows]

    def _resolved(self, logits: dict[int, Array]) -> Targets:
        return self.request.resolve(self.model, np.stack(self._joined_logits(logits)), self.members)

    def _joined_logits(self, logits: dict[int, Array]) -> list[Array]:
        """(C,) of each member, the weighted sum of its windows' logits."""
        return [
            weights @ np.stack([logits[row] for row in rows])
            for weights, rows in zip(self.weights, self.rows, strict=True)
        ]

    def _batch(self, rows: Sequence[int]) -> Batch:
        if self.watch.should_stop():
            raise Stopped
        owners = dict.fromkeys(self.parts[row].owner for row in rows)
        self.watch.batch_started([self.members[owner].encoded.item.id for owner in owners])
        return self.model.collate([self.parts[row].encoded for row in rows])
