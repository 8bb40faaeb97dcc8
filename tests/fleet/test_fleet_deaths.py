"""Workers that are killed and starved again and again blame no item and lose none."""

import random
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from chaos_groups import Group, environment, wait_for
from chaos_tables import differences, results_of
from command_line_here import run_here
from tiny_audit import make_audit

from orchestrator.dispatch import queue
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

ITEMS, SIZE, FAULTS = 600, 20, 60


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])
def test_sixty_faults_blame_nobody(
    broker: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(make_audit(tmp_path, items=ITEMS, shard_size=SIZE, batch_tokens=24))
    quiet = f"sqlite:///{tmp_path / 'quiet.db'}"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=quiet), tmp_path, "run", spec)
    settings = Settings(
        database_url=str(request.getfixturevalue("postgres_url")),
        broker_url=str(request.getfixturevalue(broker)),
        queue=f"deaths-{uuid.uuid4().hex[:8]}",
        lease_seconds=4.0,
    )
    env = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=settings.database_url,
        TRANSEXPLAIN_BROKER_URL=settings.broker_url,
        TRANSEXPLAIN_QUEUE=settings.queue,
        TRANSEXPLAIN_LEASE_SECONDS="4",
        CHAOS_SLOWLY="1.5",
    )
    run_here(env, tmp_path, "db", "upgrade")
    run_here(env, tmp_path, "submit", spec)
    with open_database(settings.database_url) as db, open_database(quiet) as before:
        run_id = runs.get(db, "latest").id
        done = play(db, run_id, settings, [Group(name, env, tmp_path) for name in "ab"], tmp_path)
        kinds = Counter(one.kind for one in results.failures(db, run_id))
        wanted, found = results_of(before, runs.get(before, "latest").id), results_of(db, run_id)
        wrong = [
            line
            for index, row in wanted.items.items()
            for line in (
                *differences(row, found.items[index], False, f"item {index}"),
                *differences(wanted.parts[index], found.parts[index], False, f"item {index}"),
            )
        ]
        with capsys.disabled():
            print(  # noqa: T201 - read by people
                f"\n{broker}: {dict(done)}, {runs.claims(db, run_id)} attempts at "
                f"{ITEMS // SIZE} shards, {len(found.items)} items, failures {dict(kinds)}, "
                f"{len(wrong)} values differ by more than 1e-5"
            )
    assert done["kill"] + done["starve"] == FAULTS and done["kill"] and done["starve"]
    assert not kinds and not wrong
    assert found.items.keys() == wanted.items.keys() and len(found.items) == ITEMS


def play(
    db: Database, run_id: str, settings: Settings, groups: list[Group], folder: Path
) -> Counter[str]:
    """Make the faults while the run works, then wait for its end; what was done how often."""
    done: Counter[str] = Counter()
    chance = random.Random(20)
    try:
        while done["kill"] + done["starve"] < FAULTS:
            fault = chance.choice(("kill", "starve"))
            victims = at_work(db, run_id, settings, groups)
            if fault == "kill":
                time.sleep(chance.uniform(0.0, 1.0))
                victim = chance.choice(victims)
                victim.kill()
                victim.start()
            else:
                (folder / "starve").touch()
                wait_for(lambda: any(folder.glob("starved-*")), "somebody starves", 300)
                for file in folder.glob("starved-*"):
                    file.unlink()
            done[fault] += 1
        wait_for(lambda: is_whole(db, run_id, settings), "the run is whole", 1200)
    finally:
        for group in groups:
            group.end()
    return done


def at_work(db: Database, run_id: str, settings: Settings, groups: list[Group]) -> list[Group]:
    """The groups that hold a shard, as soon as there is one."""
    found: list[Group] = []

    def look() -> bool:
        assert not is_whole(db, run_id, settings), "the run was too short for so many faults"
        held = [one.worker for one in shards.list_shards(db, run_id, states=("running",))]
        found[:] = [group for group in groups if any(map(group.holds, held))]
        return bool(found)

    wait_for(look, "a group at work", 300)
    return found


def is_whole(db: Database, run_id: str, settings: Settings) -> bool:
    """Whether all shards are done; dead ones are tried again, as by `transexplain retry`."""
    queue.sweep(db, settings)
    states = runs.get(db, run_id).shards
    if states["dead"] and not (states["queued"] or states["running"]):
        shards.redrive(db, run_id)
    return states["done"] == ITEMS // SIZE
