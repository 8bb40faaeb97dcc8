"""All checks of a run, one after the other, the cheap ones first."""

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from transexplain.errors import DamagedRowError, TransExplainError
from transexplain.manifests import manifest_of
from transexplain.plans import AuditPlan
from transexplain.randomness import keyed_number
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.recorded import (
    RecordedRun,
    RecordedShard,
    explained_rows,
    recorded_run,
    recorded_shards,
)
from transexplain.surroundings import software
from transexplain.verifying.again import again_checks
from transexplain.verifying.consistency import consistency_checks
from transexplain.verifying.inputs import input_checks
from transexplain.verifying.request import Check, Checks, VerifyRequest, judged, note
from transexplain.verifying.stored import stored_checks

#: shards whose aggregates are added up again
_SHARDS = 4


def verify(
    db: Database, run_id: str, request: VerifyRequest, manifest: Path | None = None
) -> Checks:
    """Check after check of the run with exactly this id; none of them writes anything.

    Hashes every input and every stored byte, so time grows with both; explains `request.items`
    items again. `manifest` is a file that the store's manifest has to equal to the byte. Raises
    ConfigurationError for an unknown run; everything wrong with it is a FAIL.
    """
    try:
        run, shards = recorded_run(db, run_id), recorded_shards(db, run_id)
    except (DamagedRowError, ValueError, TypeError) as error:
        # a file that is no JSON is reported first
        yield judged("plan", [f"the stored plan, or what was recorded beside it: {error}"], "")
        return
    if manifest is not None:
        yield _manifest(db, run_id, manifest)
    yield from stored_checks(db, run, shards)
    try:
        plan = runs.get(db, run_id).plan
    except TransExplainError as error:
        yield judged("plan's content", [str(error)], "")
        return
    sample = drawn(explained_rows(db, run_id), request.items, request.seed)
    yield from consistency_checks(db, run_id, _shards_of(db, run_id, shards, sample))
    yield from input_checks(plan, request)
    yield _software(run, shards)
    if sample:
        yield from again_checks(db, run_id, _here(plan, request), sample, request)
    else:
        yield note("explained again", "no item: none was asked for, or none is stored")


def drawn(rows: Iterable[tuple[int, str]], count: int, seed: int) -> list[tuple[int, str]]:
    """`count` of (row, item id), in their order: those whose hash with the seed is smallest."""

    def key(entry: tuple[int, str]) -> int:
        return keyed_number(seed, entry[0], bits=256, algorithm="sha256", separator=":")

    return sorted(heapq.nsmallest(count, rows, key=key))


def _here(plan: AuditPlan, request: VerifyRequest) -> AuditPlan:
    """The plan with its data, and its explainer, where they are now."""
    return replace(
        plan, dataset=request.dataset_of(plan.dataset), method=request.method_of(plan.method)
    )


def _shards_of(
    db: Database,
    run_id: str,
    shards: Sequence[RecordedShard],
    sample: Sequence[tuple[int, str]],
) -> list[tuple[int, list[str]]]:
    """Some finished shards that hold items of the sample, with the ids of all their items."""
    found = []
    for one in shards:
        inside = range(one.start, one.stop)
        if one.state == "done" and any(row in inside for row, _ in sample):
            ids = [name for _, name in explained_rows(db, run_id, inside)]
            found.append((one.index, ids))
        if len(found) == _SHARDS:
            break
    return found


def _manifest(db: Database, run_id: str, path: Path) -> Check:
    made = manifest_of(db, run_id)
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return judged("manifest", [f"{path} cannot be read: {error.strerror}"], "")
    difference = f"the store gives sha256 {made.sha256[:12]}, {path} has {found[:12]}"
    faults = [] if found == made.sha256 else [difference]
    return judged("manifest", faults, f"{path} is what the store gives, sha256 {found[:12]}")


def _software(run: RecordedRun, shards: Sequence[RecordedShard]) -> Check:
    """Other versions are no fault, but a reason why numbers may differ."""
    if run.surroundings is None:
        return note("software", "not recorded: the run is of an older version")
    used = [one.surroundings for one in shards if one.surroundings is not None]
    changed = set()
    for there in (run.surroundings, *used):
        for name, version in there["software"].items():
            if software().get(name) != version:
                changed.add(f"{name} {version} then, {software().get(name, 'none')} now")
    if changed:
        return note("software", "; ".join(sorted(changed)))
    return Check(name="software", status="PASS", text="the versions that the run was made with")
