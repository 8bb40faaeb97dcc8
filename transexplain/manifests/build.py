"""The manifest of a run, from what the store recorded."""

from typing import Any

from transexplain.manifests.inputs import inputs_of, places_of
from transexplain.manifests.record import Manifest
from transexplain.store.database import Database
from transexplain.store.recorded import (
    RecordedShard,
    failure_kinds,
    recorded_run,
    recorded_shards,
    workers_of,
)


def manifest_of(db: Database, run_id: str) -> Manifest:
    """What the run with exactly this id was made from, and how it went so far.

    Of a finished run it stays the same, to the byte, until shards are computed once more. Raises
    ConfigurationError for an unknown run.
    """
    run, shards = recorded_run(db, run_id), recorded_shards(db, run_id)
    surroundings = _different(shards)
    execution = {
        "run": run.id,
        "state": run.state,
        "created": run.created,
        "finished": run.finished,
        "seconds": sum(one.seconds or 0.0 for one in shards),
        "workers": workers_of(shards),
        "plan_digest": run.plan_digest,
        "places": places_of(run.plan),
        "planned": None if run.surroundings is None else dict(run.surroundings),
        "computed": surroundings,
        "shards": [_shard(one, surroundings) for one in shards],
        "attempts": sum(one.attempt for one in shards),
        "failures": failure_kinds(db, run.id),
    }
    return Manifest(inputs=inputs_of(run.plan, run.surroundings), execution=execution)


def _different(shards: list[RecordedShard]) -> list[dict[str, Any]]:
    """The software and machines that shards were saved by, each once."""
    found: list[dict[str, Any]] = []
    for one in shards:
        if one.surroundings is not None and one.surroundings not in found:
            found.append(dict(one.surroundings))
    return found


def _shard(one: RecordedShard, surroundings: list[dict[str, Any]]) -> dict[str, Any]:
    made = None if one.surroundings is None else surroundings.index(dict(one.surroundings))
    return {
        "index": one.index,
        "start": one.start,
        "stop": one.stop,
        "state": one.state,
        "attempt": one.attempt,
        "worker": one.worker,
        "seconds": one.seconds,
        "explained": one.explained,
        "failed": one.failed,
        "digest": one.digest,
        "computed": made,  # place in `computed`
    }
