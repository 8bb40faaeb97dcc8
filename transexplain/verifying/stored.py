"""What the store holds of a run, checked against the digests taken when it was written."""

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence

from transexplain.errors import DamagedRowError
from transexplain.store.database import Database
from transexplain.store.recorded import RecordedRun, RecordedShard, stored_counts, stored_rows
from transexplain.store.shard_digests import stored_digest
from transexplain.verifying.request import Check, Checks, judged, note

_NAMED = 3  #: rows that are named


def stored_checks(db: Database, run: RecordedRun, shards: Sequence[RecordedShard]) -> Checks:
    """The plan, the number of items in every shard, and every stored byte."""
    yield _plan(run)
    done = [one for one in shards if one.state == "done"]
    yield from _states(run, shards, done)
    yield judged("items", list(_miscounted(db, run.id, shards)), _rows(done))
    yield _bytes(db, run, done)


def _plan(run: RecordedRun) -> Check:
    # as `AuditPlan.digest`, but of the document: this version may know more keys than it has
    text = json.dumps(run.plan, sort_keys=True, separators=(",", ":"))
    found = hashlib.sha256(text.encode()).hexdigest()
    digests = f"its sha256 is {found[:12]}, but {run.plan_digest[:12]} was written beside it"
    faults = [] if found == run.plan_digest else [f"the stored plan was changed: {digests}"]
    return judged("plan", faults, f"sha256 {found[:12]}")


def _states(
    run: RecordedRun, shards: Sequence[RecordedShard], done: Sequence[RecordedShard]
) -> Checks:
    if len(done) < len(shards) or run.state != "done":
        left = len(shards) - len(done)
        yield note(
            "state", f"the run is {run.state}, {left} of {len(shards)} shards have no result"
        )


def _rows(done: Sequence[RecordedShard]) -> str:
    explained, failed = sum(one.explained for one in done), sum(one.failed for one in done)
    return f"{explained:,} explained and {failed:,} failed in {len(done):,} shards"


def _miscounted(db: Database, run_id: str, shards: Sequence[RecordedShard]) -> Iterator[str]:
    counts = stored_counts(db, run_id)
    for one in shards:
        if one.state != "done":
            continue
        found, wanted = counts.get(one.index, (0, 0)), (one.explained, one.failed)
        missing = set(range(one.start, one.stop))
        if found == wanted and sum(found) == len(missing):
            continue
        missing -= stored_rows(db, run_id, one.start, one.stop)
        rows = ", ".join(map(str, sorted(missing)[:_NAMED]))
        lost = f" (missing: row {rows}{', ...' if len(missing) > _NAMED else ''})" * bool(missing)
        yield (
            f"{_named(one)} holds {found[0]} explained and {found[1]} failed items, it was saved "
            f"with {wanted[0]} and {wanted[1]}{lost}"
        )


def _bytes(db: Database, run: RecordedRun, done: Sequence[RecordedShard]) -> Check:
    name, recorded = "stored results", run.surroundings is not None
    # a run that was begun by an older version has digests of what was saved since
    taken = [one for one in done if recorded or one.digest is not None]
    if done and not taken:
        return note(name, "no digests: the run is of an older version")
    faults = []
    for one in taken:
        try:
            found = stored_digest(db, run.id, one.index, one.start, one.stop)
        except (DamagedRowError, ValueError, TypeError, zlib.error) as error:
            faults.append(f"{_named(one)} cannot be read: {type(error).__name__}: {error}")
            continue
        if one.digest is None:
            faults.append(f"{_named(one)} has lost its digest")
        elif found != one.digest:
            faults.append(
                f"{_named(one)} is not what was saved (sha256 {found[:12]}, saved "
                f"{one.digest[:12]})"
            )
    return judged(name, faults, f"every byte of {len(taken):,} of {len(done):,} shards as saved")


def _named(one: RecordedShard) -> str:
    return f"shard {one.index} (rows {one.start} to {one.stop - 1})"
