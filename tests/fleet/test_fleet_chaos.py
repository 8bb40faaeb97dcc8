"""A fleet whose groups, queue and database are killed under it stores what one process does."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_conductor import Conductor, Sweeper
from chaos_groups import Group, environment, wait_for
from chaos_servers import OwnPostgres, OwnRedis, own_postgres, own_redis
from chaos_tables import Results, differences, results_of, totals
from command_line_here import run_here
from tiny_audit import make_audit

from transexplain.auditing.explained_shard import explain_shard
from transexplain.explaining.item_loop import Silent
from transexplain.models.load import load_model
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.observer import Caution

SEED = 20
SHARDS, SIZE = 200, 20
KILLS, HANGS, EATS = 311, 873, 1347  #: items; each is in the midst of a shard of its own
POISON = {KILLS: "quarantined", HANGS: "quarantined", EATS: "out-of-memory"}
LEASE, ITEM_DEADLINE = 3.0, 15.0  #: seconds

#: shards done -> what happens then
SCORE = [
    *((6 + 12 * number, "kill") for number in range(12)),
    *((place, "flush") for place in (27, 100)),
    *((place, "duplicates") for place in (14, 47, 87, 140)),
    *((place, "zombie") for place in (37, 80, 123)),
    (60, "redis"),
    (67, "postgres"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[OwnPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """Two hundred shards of twenty items, several batches each."""
    return str(
        make_audit(
            tmp_path,
            items=SHARDS * SIZE,
            shard_size=SIZE,
            batch_tokens=64,
            max_attempts=8,  # poison needs three, and faults of others take some
            evaluation={"items": 8},  # enough for rows in every table
        )
    )


@pytest.fixture
def undisturbed(tmp_path: Path, spec: str) -> Results:
    """What one process stores in SQLite."""
    url = f"sqlite:///{tmp_path / 'undisturbed.db'}"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=url), tmp_path, "run", spec)
    with open_database(url) as db:
        return results_of(db, runs.get(db, "latest").id)


@pytest.fixture
def settings(tmp_path: Path, broker: OwnRedis, postgres: OwnPostgres) -> Settings:
    return Settings(
        database_url=postgres.url,
        broker_url=broker.url,
        snapshot_dir=tmp_path / "snapshots",
        queue="chaos",
        lease_seconds=LEASE,
        item_deadline=ITEM_DEADLINE,
    )


@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
def test_chaos_changes_nothing_but_the_poison(
    tmp_path: Path,
    broker: OwnRedis,
    postgres: OwnPostgres,
    settings: Settings,
    spec: str,
    undisturbed: Results,
) -> None:
    env = fleet_environment(tmp_path, settings)
    run_here(env, tmp_path, "db", "upgrade")
    run_here(env, tmp_path, "submit", spec)
    begun = time.monotonic()
    with open_database(settings.database_url) as db, Sweeper(db, settings) as sweeper:
        run_id = runs.get(db, "latest").id
        groups = [Group(name, env, tmp_path) for name in "ab"]
        conductor = Conductor(
            db=db,
            run_id=run_id,
            settings=settings,
            folder=tmp_path,
            broker=broker,
            postgres=postgres,
            groups=groups,
            poisoned=[item // SIZE for item in POISON],
            seed=SEED,
        )
        try:
            conductor.play(SCORE)
            # by the last worker, or by the sweep where that one was killed before it could
            wait_for(lambda: runs.get(db, run_id).state != "running", "the run is closed")
        finally:
            codes = [group.end() for group in groups]
        fenced = print_figures(conductor, sweeper, time.monotonic() - begun)
        assert codes == [0, 0], "SIGTERM ends a group cleanly whatever it went through"
        assert sum(group.kills for group in groups) >= 10
        assert fenced >= len(conductor.fenced) == 3
        assert sweeper.sent > 0
        assert len(conductor.torn) == 1
        compare(db, run_id, undisturbed)


def print_figures(conductor: Conductor, sweeper: Sweeper, seconds: float) -> int:
    """Print the figures of the test; how many times a worker was fenced."""
    fenced = sum(len(group.lines("shard ended: fenced")) for group in conductor.groups)
    print(  # noqa: T201 - read by people
        f"\nchaos: {runs.claims(conductor.db, conductor.run_id)} attempts at {SHARDS} shards, "
        f"{sweeper.sent} messages sent again, {fenced} commits fenced, {seconds:.0f} seconds; "
        f"{dict(conductor.done)}, {sweeper.vain} sweeps in vain"
    )
    return fenced


def fleet_environment(folder: Path, settings: Settings) -> dict[str, str]:
    return environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=settings.database_url,
        TRANSEXPLAIN_BROKER_URL=settings.broker_url,
        TRANSEXPLAIN_QUEUE=settings.queue,
        TRANSEXPLAIN_LEASE_SECONDS=str(settings.lease_seconds),
        TRANSEXPLAIN_ITEM_DEADLINE=str(settings.item_deadline),
        CHAOS_SLOWLY="0.08",
        CHAOS_KILLS=str(KILLS),
        CHAOS_HANGS=str(HANGS),
        CHAOS_EATS=str(EATS),
    )


def compare(db: Database, run_id: str, undisturbed: Results) -> None:
    """The fleet's tables against the reference's: equal but for the poison, and that recorded."""
    run = runs.get(db, run_id)
    assert (run.state, run.shards["done"]) == ("done", SHARDS)
    check_failures(db, run_id)
    disturbed = results_of(db, run_id)
    assert disturbed.items.keys() == undisturbed.items.keys()
    poisoned = {item // SIZE for item in POISON}
    isolated = {
        one.shard.index for one in shards.list_shards(db, run_id) if one.caution != Caution()
    }
    loose = isolated | poisoned  # batches were cut up there
    assert len(loose) < SHARDS / 4, "most were computed in the same batches"
    wrong = poisoned_aggregates(db, run_id, disturbed)
    for index, row in undisturbed.items.items():
        if index in POISON:
            assert not disturbed.parts[index]
            continue
        exact = undisturbed.shards[index] not in loose
        parts, stored = undisturbed.parts[index], disturbed.parts[index]
        wrong += differences(row, disturbed.items[index], exact, f"item {index}")
        wrong += differences(parts, stored, exact, f"item {index}")
    for index in undisturbed.aggregates.keys() - poisoned:
        left, right = undisturbed.aggregates[index], disturbed.aggregates[index]
        wrong += differences(totals(left), totals(right), index not in loose, f"aggregate {index}")
    assert not wrong, f"{len(wrong)} differences: {wrong[:10]}"
    print(  # noqa: T201 - as above
        f"chaos: {SHARDS - len(loose)} shards byte-identical, {len(loose)} within 1e-5 "
        f"({len(isolated)} isolated)"
    )


def check_failures(db: Database, run_id: str) -> None:
    """Exactly the poison failed, each item with its cause."""
    failures = {one.item_id: one for one in results.failures(db, run_id)}
    assert {name: one.kind for name, one in failures.items()} == {
        str(name): kind for name, kind in POISON.items()
    }
    assert "was killed by SIGKILL" in failures[str(KILLS)].message
    assert f"it hung, no progress within {ITEM_DEADLINE:g} seconds" in failures[str(HANGS)].message
    assert "allocate memory" in failures[str(EATS)].message


def poisoned_aggregates(db: Database, run_id: str, disturbed: Results) -> list[str]:
    """The aggregates of the poisoned shards against those of the shards without their poison."""
    plan = runs.get(db, run_id).plan
    model = load_model(plan.model.source)
    wrong = []
    for status in shards.list_shards(db, run_id):
        ill = {str(item): "poison" for item in POISON if item // SIZE == status.shard.index}
        if ill:
            wanted = explain_shard(
                plan,
                status.shard,
                model,
                observer=Silent(),
                caution=Caution(quarantined=ill),
            )
            stored = totals(disturbed.aggregates[status.shard.index])
            where = f"aggregate {status.shard.index}"
            wrong += differences(totals(dict(wanted.aggregate)), stored, False, where)
    return wrong
