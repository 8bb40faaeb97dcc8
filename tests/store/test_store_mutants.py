"""Scripted interleavings that the store survives; each fails without one safeguard.

Every script runs twice: on the store as it is, and with one safeguard taken out, where it must
fail. A script that passed both times would prove nothing.
"""

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import ColumnElement, Update, true, update
from store_samples import make_plan, make_result, make_shards

from transexplain.errors import FencedError
from transexplain.store import leases, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.store.schema import shard

pytestmark = pytest.mark.exhaustive

EXPIRED = -1.0  # seconds: a lease that is over when it begins


def start(db: Database, rows: int = 4, **plan: object) -> str:
    return runs.create(db, make_plan(**plan), make_shards(rows))


def take(db: Database, run_id: str, worker: str, lease: float = 60.0) -> Claim:
    claim = shards.claim(db, run_id, worker, lease)
    assert claim is not None, f"{worker} gets nothing"
    return claim


def zombie_saves_after_its_successor(db: Database) -> None:
    """A worker outlives its lease; the heir is still computing when it comes to save."""
    run_id = start(db)
    zombie = take(db, run_id, "zombie", EXPIRED)
    heir = take(db, run_id, "heir")
    with suppress(FencedError):
        results.save(db, zombie, make_result(zombie.shard, note="zombie"))
    assert list(results.iter_items(db, run_id)) == [], "a fenced result was written"
    assert shards.renew(db, heir, 60), "the heir lost its claim to a zombie"
    results.save(db, heir, make_result(heir.shard, note="heir"))
    assert [one["note"] for one in results.aggregates(db, run_id)] == ["heir"]


def worker_vanishes(db: Database) -> None:
    """A worker is gone for good with a shard in its hand."""
    run_id = start(db)
    take(db, run_id, "gone", EXPIRED)
    heir = take(db, run_id, "heir")
    results.save(db, heir, make_result(heir.shard))
    assert runs.finalise(db, run_id)


def shard_kills_every_worker(db: Database) -> None:
    """A shard ends whoever takes it, and tells nothing; the run must end all the same."""
    run_id = start(db, max_attempts=3)
    for n in range(20):
        if shards.claim(db, run_id, f"victim-{n}", EXPIRED) is None:
            break
    assert shards.list_shards(db, run_id)[0].state == "dead", "it would go on for ever"
    assert runs.get(db, run_id).state == "done"


def two_finish_while_one_works(db: Database) -> None:
    """Two of three shards are saved and their workers try to close the run, some twice."""
    run_id = start(db, rows=12)
    slow = take(db, run_id, "slow")
    for worker in ("quick", "quicker"):
        claim = take(db, run_id, worker)
        results.save(db, claim, make_result(claim.shard))
        assert not runs.finalise(db, run_id), "closed with a shard in hand"
    results.save(db, slow, make_result(slow.shard))
    assert [runs.finalise(db, run_id) for _ in range(3)] == [True, False, False]


def cancelled_while_the_last_one_saves(db: Database) -> None:
    """A user cancels; the worker that then comes to save and to close must change nothing."""
    run_id = start(db)
    claim = take(db, run_id, "w")
    assert runs.cancel(db, run_id)
    with suppress(FencedError):
        results.save(db, claim, make_result(claim.shard))
    assert not runs.finalise(db, run_id)
    assert runs.get(db, run_id).state == "cancelled"
    assert list(results.iter_items(db, run_id)) == []


def unfenced(claim: Claim) -> Update:
    return update(shard).where(shard.c.run_id == claim.run_id, shard.c.index == claim.shard.index)


def without_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(results, "held", unfenced)
    patch.setattr(leases, "held", unfenced)


def without_expiry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shards, "lease_expired", lambda: ~true())


def without_dead_letter(patch: pytest.MonkeyPatch) -> None:
    knowledge = shards._knowledge
    patch.setattr(shards, "_knowledge", lambda free, _limit: knowledge(free, sys.maxsize))


def with_unconditional_finalise(patch: pytest.MonkeyPatch) -> None:
    def nothing_unfinished(run_id: str) -> ColumnElement[bool]:
        return ~true()

    patch.setattr(runs, "unfinished", nothing_unfinished)


Script = Callable[[Database], None]
Mutation = Callable[[pytest.MonkeyPatch], None]
CASES: list[tuple[Script, Mutation]] = [
    (zombie_saves_after_its_successor, without_fence),
    (worker_vanishes, without_expiry),
    (shard_kills_every_worker, without_dead_letter),
    (two_finish_while_one_works, with_unconditional_finalise),
    (cancelled_while_the_last_one_saves, without_fence),
]


@pytest.mark.parametrize("script", list(dict.fromkeys(script for script, _ in CASES)))
def test_the_store_survives(script: Script, db: Database) -> None:
    script(db)


@pytest.mark.parametrize(("script", "mutation"), CASES)
def test_a_missing_safeguard_is_caught(
    script: Script, mutation: Mutation, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        script(db)
