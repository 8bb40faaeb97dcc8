"""Writes a shard's result exactly once, however often the shard was delivered, with its digest.

Its rows are made, and checked, before the transaction begins.
"""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, LargeBinary, delete, insert, select, type_coerce

from transexplain.environment import saved_here
from transexplain.errors import FencedError, ItemError, TransExplainError
from transexplain.files import remote_files
from transexplain.store import sink_files
from transexplain.store.columns import Columns, Floats, Ints, Ragged, pack_json, taken
from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.run_totals import summary_of
from transexplain.store.runs import Claim, places_of, require
from transexplain.store.schema import LEDGER, OF_ITEMS, result_file, shard, shard_aggregate
from transexplain.store.shard_digests import digest_of, stored_of
from transexplain.store.shards import held, held_by
from transexplain.types.items import Attribution, ItemOutcome, Mention, PatchGrid
from transexplain.types.plans import ShardResult, Sink
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Token, Tokens, spellings_beside


def save(db: Database, claim: Claim, result: ShardResult) -> None:
    """Write everything `result` holds and mark the shard done, in one transaction.

    A run with a sink gets the shard's file before. What an earlier attempt left is replaced.
    Raises FencedError, with nothing written, where the claim is void (re-claimed, given back, saved
    already, cancelled); ValueError where the result does not cover the shard; ItemError where a
    number is not finite; ObjectStoreError where the file cannot be written.
    """
    if result.shard != claim.shard:
        raise ValueError(f"the claim is on {claim.shard}, the result is of {result.shard}")
    with db.read() as connection:
        audit = require(connection, claim.run_id)
        places = places_of(connection, claim.run_id) if _any_wrong(result) else {}
    rows = rows_of(claim.run_id, result)
    totals = {
        "payload": pack_json(dict(result.aggregate)),
        "summary": summary_of(result, rows, places).packed(),
    }
    if audit.sink is None or not rows["item"]["idx"]:
        _commit(db, claim, result, _Saved(rows, totals))
        return
    _check_held(db, claim)  # before the file: whoever holds the shard writes another one
    sink = Sink(**audit.sink)
    folder = sink_files.folder_url(sink, claim.run_id)
    file = sink_files.upload(folder, claim.shard.index, claim.token, rows)
    if sink.keep == "sink":
        del rows["attribution"]
    try:
        _commit(db, claim, result, _Saved(rows, totals, [{"run_id": claim.run_id, **file}]))
    except FencedError:
        with suppress(TransExplainError):  # otherwise `prune` deletes it
            remote_files.delete(f"{folder}/{file['name']}")
        raise


class _Saved(NamedTuple):
    """What is written of a shard."""

    rows: Mapping[str, Columns]  #: by the tables of items
    totals: Mapping[str, bytes]  #: columns of `shard_aggregate`
    files: Sequence[Mapping[str, Any]] = ()


def _check_held(db: Database, claim: Claim) -> None:
    query = select(shard.c.token).where(held_by(claim))
    with db.read() as connection:
        if connection.execute(query).first() is None:
            raise _fenced(claim)


def _fenced(claim: Claim) -> FencedError:
    return FencedError(
        f"shard {claim.shard.index} of run {claim.run_id}: another worker holds it now, or it was "
        f"saved or cancelled; the result of attempt {claim.attempt} is dropped"
    )


def _commit(db: Database, claim: Claim, result: ShardResult, saved: _Saved) -> None:
    stored = stored_of(db.engine.dialect, saved.rows)
    done = held(claim).values(
        state="done",
        lease_until=None,
        breadcrumb=None,
        seconds=float(result.seconds),
        explained=len(result.outcomes),
        failed=len(result.failures),
        digest=digest_of(db.engine.dialect, stored, saved.totals, saved.files),
        environment=saved_here(result.steps, result.device),
    )
    with db.begin() as connection:
        # first, so that the row stays locked against a new claim until the commit
        if connection.execute(done).rowcount != 1:
            raise _fenced(claim)
        plan_for_any_run(connection)
        if claim.token > 1:  # the first claim of a shard finds nothing
            _forget(connection, claim)
        for rows in stored:
            rows.write(connection)
        if saved.files:
            connection.execute(insert(result_file), list(saved.files))
        packed = {name: type_coerce(value, LargeBinary) for name, value in saved.totals.items()}
        connection.execute(
            insert(shard_aggregate).values(run_id=claim.run_id, shard=claim.shard.index, **packed)
        )


def _any_wrong(result: ShardResult) -> bool:
    """Whether a margin is needed: reading the classes reads the plan, which may be long."""
    return any(outcome.label not in (None, outcome.predicted) for outcome in result.outcomes)


def _forget(connection: Connection, claim: Claim) -> None:
    """Delete what an earlier attempt left."""
    for table in OF_ITEMS:
        inside = (table.c.idx >= claim.shard.start) & (table.c.idx < claim.shard.stop)
        connection.execute(delete(table).where(table.c.run_id == claim.run_id, inside))
    for table in (result_file, shard_aggregate):
        connection.execute(
            delete(table).where(table.c.run_id == claim.run_id, table.c.shard == claim.shard.index)
        )


Features = Sequence[Token] | PatchGrid
_ALIKE = 3
_LARGEST = float(np.finfo(np.float32).max)


def rows_of(run_id: str, result: ShardResult) -> dict[str, Columns]:
    """The columns of every table of `schema.OF_ITEMS`, by its name; items ascend.

    Raises ValueError where the result does not cover its shard's rows exactly once, names an item
    that it has no outcome for, or gives one result twice; ItemError (`not-finite`) where a number
    is NaN or infinite, or relevance beyond float32.
    """
    check_cover(result)
    outcomes = sorted(result.outcomes, key=lambda outcome: int(outcome.index))
    place = {outcome.item_id: number for number, outcome in enumerate(outcomes)}
    attributions, of_attribution = _in_order(result.attributions, place)
    mentions, of_mention = _in_order(result.mentions, place)
    scores, of_score = _in_order(result.scores, place)
    rows = np.array([int(outcome.index) for outcome in outcomes], dtype=np.int64)
    positions = _positions(_features(attributions, of_attribution, outcomes), outcomes)
    _refuse_twice("attribution", map(_OF_ATTRIBUTION, attributions))
    _refuse_twice("score", map(_OF_SCORE, scores))
    attributed = {**_attributions(attributions), **taken(positions, of_attribution)}
    failed = sorted(result.failures, key=lambda failure: int(failure.index))

    def whole(idx: Ints, columns: Columns, ordinal: Ints | None = None) -> Columns:
        key: dict[str, Any] = {"run_id": [run_id] * len(idx), "idx": idx.tolist()}
        if ordinal is not None:
            key["ordinal"] = ordinal.tolist()
        return {**key, "shard": [result.shard.index] * len(idx), **columns}

    def of_items(of: Ints, columns: Columns) -> Columns:
        return whole(rows[of], columns, np.arange(len(of)) - np.searchsorted(of, of))

    return {
        "item": whole(rows, _items(outcomes)),
        "attribution": of_items(of_attribution, attributed),
        "mention": of_items(of_mention, _mentions(mentions)),
        "score": of_items(of_score, _scores(scores)),
        "failure": whole(
            np.array([int(failure.index) for failure in failed], dtype=np.int64),
            {
                "item_id": [failure.item_id for failure in failed],
                "kind": [failure.kind for failure in failed],
                "error": [failure.message for failure in failed],
                "traceback": _tracebacks([failure.traceback for failure in failed]),
            },
        ),
    }


_OF_ATTRIBUTION = attrgetter("item_id", "method", "target", "rank")
_OF_SCORE = attrgetter("item_id", "method", "target", "metric")


def _in_order(records: Sequence[Any], place: Mapping[str, int]) -> tuple[list[Any], Ints]:
    """The records in the order of their items, and the place of the item of each."""
    try:
        of = np.array([place[record.item_id] for record in records], dtype=np.int64)
    except KeyError as error:
        raise ValueError(
            f"item {error.args[0]!r} has an attribution, mention or score but no outcome"
        ) from None
    order = np.argsort(of, kind="stable")
    return [records[number] for number in order.tolist()], of[order]


def _features(
    attributions: Sequence[Attribution], of: Ints, outcomes: Sequence[ItemOutcome]
) -> list[Features | None]:
    """The positions of each item, which its attributions share; None: it has no attribution."""
    features: list[Features | None] = [None] * len(outcomes)
    for item, record in zip(of.tolist(), attributions, strict=True):
        known = features[item]
        if known is None:
            features[item] = record.features
        elif known is not record.features and known != record.features:
            raise ValueError(f"item {record.item_id!r}: its attributions differ in their features")
        grid = record.features if isinstance(record.features, PatchGrid) else None
        count = len(record.features) if grid is None else grid.rows * grid.cols  # type: ignore[arg-type]
        if record.relevance.size != count:
            raise ValueError(
                f"item {record.item_id!r}: {record.relevance.size} relevances for {count} positions"
            )
    return features


def _items(outcomes: Sequence[ItemOutcome]) -> Columns:
    logits = Ragged.of([outcome.logits for outcome in outcomes], "f8")
    of_each = np.repeat(np.arange(len(outcomes)), logits.counts)
    _refuse(logits.values, lambda place: (outcomes[int(of_each[place])].item_id, "logits"))
    names = ("item_id", "label", "raw_label", "predicted", "text", "second_at", "source")
    return {
        **{name: list(map(attrgetter(name), outcomes)) for name in names},
        "logits": logits,
        "length": [int(outcome.positions) for outcome in outcomes],
        "truncated": [bool(outcome.truncated) for outcome in outcomes],
        "meta": [json_text(outcome.meta) for outcome in outcomes],
    }


def _attributions(records: Sequence[Attribution]) -> Columns:
    def name(place: int) -> tuple[str, str]:
        return records[place].item_id, f"target {records[place].target!r}"

    def numbers(values: Any) -> Floats:
        column = np.array(values, dtype=np.float64) + 0.0  # SQLite has no negative zero
        _refuse(column, name)
        return column

    def arrays(values: Sequence[Any]) -> Ragged:
        column = Ragged.of(values, "f8")
        of_each = np.repeat(np.arange(len(values)), column.counts)
        _refuse(column.values, lambda place: name(int(of_each[place])))
        return column

    def ledger(entry: str) -> Floats:
        column = np.full(len(records), np.nan)
        there = [place for place, record in enumerate(records) if record.ledger is not None]
        values = [getattr(records[place].ledger, entry) for place in there]
        column[there] = np.array(values, dtype=np.float64) + 0.0
        _refuse(column[there], lambda place: name(there[place]))
        return column

    def kinds(entry: str) -> list[str | None]:
        texts = []
        for place, record in enumerate(records):
            try:
                texts.append(json_text(getattr(record.ledger, entry, {})))
            except ValueError:
                raise _not_finite(*name(place)) from None
        return texts

    words = ("method", "target", "class_name", "unit", "at")
    return {
        **{word: list(map(attrgetter(word), records)) for word in words},
        "rank": [int(record.rank) for record in records],
        "class_index": [
            None if record.class_index is None else int(record.class_index) for record in records
        ],
        "logit": numbers([record.logit for record in records]),
        **{f"ledger_{entry}": ledger(entry) for entry in LEDGER},
        "ledger_biases_by_kind": kinds("biases_by_kind"),
        "ledger_rules_by_kind": kinds("rules_by_kind"),
        "relevance": _relevance(records),
        "prefix_relevance": arrays([record.prefix_relevance for record in records]),
        "notes": [json.dumps(record.notes) if record.notes else None for record in records],
    }


def _relevance(records: Sequence[Attribution]) -> Ragged:
    """In float32. In this form NaN, for which every comparison is false, is refused, too."""
    exact = Ragged.of([record.relevance.ravel() for record in records], "f8")
    unfit = np.flatnonzero(~(np.abs(exact.values) <= _LARGEST))
    if len(unfit):
        of_each = np.repeat(np.arange(len(records)), exact.counts)
        item_id = records[int(of_each[unfit[0]])].item_id
        raise ItemError(
            "not-finite", f"item {item_id!r}: relevance is NaN, infinite or beyond float32"
        )
    return Ragged(exact.values.astype("f4"), exact.counts)


_NO_TOKENS = Tokens.of(())


def _positions(features: Sequence[Features | None], outcomes: Sequence[ItemOutcome]) -> Columns:
    """The positions of N items."""
    grids = [known if isinstance(known, PatchGrid) else None for known in features]
    tokens = [
        _NO_TOKENS if known is None or isinstance(known, PatchGrid) else Tokens.of(known)
        for known in features
    ]
    starts, ends, words = (
        Ragged.of([getattr(text, name) for text in tokens], "i4")
        for name in ("starts", "ends", "words")
    )
    spellings = spellings_beside(tokens, [outcome.text for outcome in outcomes])

    def of_grid(name: str) -> list[int | None]:
        return [None if grid is None else int(getattr(grid, name)) for grid in grids]

    return {
        "starts": starts,
        "lengths": Ragged(ends.values - starts.values, starts.counts),
        "words": words,
        "special": Ragged.of([np.flatnonzero(text.special) for text in tokens], "i4"),
        "pieces": [json_text(odd) for odd in spellings],
        "grid_rows": of_grid("rows"),
        "grid_columns": of_grid("cols"),
        "pixel_height": of_grid("height"),
        "pixel_width": of_grid("width"),
        "prefix": of_grid("prefix"),
        "box": Ragged.of([() if grid is None else grid.box for grid in grids], "f8"),
    }


def _mentions(records: Sequence[Mention]) -> Columns:
    relevance = np.array([mention.relevance for mention in records], dtype=np.float64) + 0.0

    def name(place: int) -> tuple[str, str]:
        return records[place].item_id, f"mention {records[place].surface!r}"

    _refuse(relevance, name)
    return {
        **{
            name: list(map(attrgetter(name), records))
            for name in ("target", "class_name", "entity", "surface")
        },
        "group_name": [mention.group for mention in records],
        "rank": [int(mention.rank) for mention in records],
        "start_at": [int(mention.start) for mention in records],
        "end_at": [int(mention.end) for mention in records],
        "relevance": relevance,
    }


def _scores(records: Sequence[MetricScore]) -> Columns:
    def name(place: int) -> tuple[str, str]:
        record = records[place]
        return record.item_id, f"metric {record.metric!r} of {record.method!r}"

    values = np.array([0.0 if record.value is None else record.value for record in records])
    _refuse(values, name)
    missing = np.array([record.value is None for record in records], dtype=bool)
    curves = Ragged.of([record.curve for record in records], "f8")
    of_each = np.repeat(np.arange(len(records)), curves.counts)
    _refuse(curves.values, lambda place: name(int(of_each[place])))
    return {
        **{
            word: list(map(attrgetter(word), records))
            for word in ("method", "target", "metric", "reason")
        },
        "value": np.where(missing, np.nan, values + 0.0),
        "curve": curves,
        "detail": [json_text(record.detail) for record in records],
    }


def _tracebacks(texts: Sequence[str]) -> list[str | None]:
    """Equal ones, which say nothing of an item, are kept with the first `_ALIKE`."""
    seen: Counter[str] = Counter()
    kept: list[str | None] = []
    for text in texts:
        seen[text] += 1
        kept.append(text if text and seen[text] <= _ALIKE else None)
    return kept


def json_text(document: Mapping[Any, Any]) -> str | None:
    """A document as ASCII text; None: there is nothing in it."""
    return json.dumps(dict(document), separators=(",", ":"), allow_nan=False) if document else None


def check_cover(result: ShardResult) -> None:
    """Raise ValueError unless each row of the shard has one outcome or failure, with its own id."""
    shard = result.shard
    indices = Counter(int(outcome.index) for outcome in result.outcomes)
    indices.update(int(failure.index) for failure in result.failures)
    expected = range(shard.start, shard.stop)
    wrong = {
        "missing": [row for row in expected if row not in indices],
        "outside": [row for row in indices if row not in expected],
        "twice": [row for row, times in indices.items() if times > 1],
    }
    wrong_rows = [
        f"{len(rows)} {word} (first: row {rows[0]})" for word, rows in wrong.items() if rows
    ]
    if wrong_rows:
        raise ValueError(
            f"the result of shard {shard.index} must have one outcome or failure for each of the "
            f"rows {shard.start} to {shard.stop - 1}: {', '.join(wrong_rows)}"
        )
    names = [outcome.item_id for outcome in result.outcomes]
    _refuse_twice("item id", names + [failure.item_id for failure in result.failures])


def _refuse_twice(what: str, keys: Iterable[Hashable]) -> None:
    """Raise ValueError where two of the `keys` are equal."""
    counts = Counter(keys)
    [(key, times)] = counts.most_common(1) or [("", 0)]
    if times > 1:
        raise ValueError(f"{what} {key!r} is not unique in its shard")


def _refuse(values: NDArray[np.floating[Any]], name: Callable[[int], tuple[str, str]]) -> None:
    """Raise ItemError (`not-finite`) where a number is NaN or infinite.

    `name` gives of the place of a number the id of its item, and what the number is of.
    """
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise _not_finite(*name(int(wrong[0])))


def _not_finite(item_id: str, what: str) -> ItemError:
    return ItemError("not-finite", f"item {item_id!r}: {what} has a NaN or infinite number")
