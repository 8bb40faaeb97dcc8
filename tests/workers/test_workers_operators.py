"""What operators know of Celery works on shards: inspect, events, revoke, rate limits."""

import itertools
import time
import uuid
from pathlib import Path

import pytest
import redis
from broker_keys import names_of_keys
from celery_fleets import CeleryFleet, celery_fleet
from chaos_groups import wait_for
from command_line_here import run_here

from orchestrator.dispatch import queue
from transexplain.store import fleet_state, runs, shards
from workers.message_guard import COMMANDS, TASK
from workers.queue_names import queue_name, queue_of

pytestmark = pytest.mark.exhaustive


@pytest.fixture(params=["redis_url", "amqp_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def send(fleet: CeleryFleet, run_id: str, index: int) -> str:
    """One more message for a shard; the id of its task."""
    task_id = str(uuid.uuid4())
    name = queue_of(fleet.settings, runs.get(fleet.db, run_id).plan)
    fleet.app.send_task(TASK, args=(run_id, index), queue=name, task_id=task_id)
    return task_id


def purge(fleet: CeleryFleet, run_id: str) -> None:
    name = queue_of(fleet.settings, runs.get(fleet.db, run_id).plan)
    with fleet.app.connection_for_write() as connection:
        connection.default_channel.queue_purge(name)


def test_inspect_and_events_show_every_shard(url: str, tmp_path: Path) -> None:
    """A message too many, for a shard that is done, is acknowledged and does nothing."""
    with celery_fleet(url, tmp_path, CHAOS_SLOWLY="0.4") as fleet:
        run_id = fleet.submit(items=24, shard_size=8, batch_tokens=32, evaluation={"items": 0})
        with fleet.watching(), fleet.worker():
            wait_for(lambda: fleet.of_type("task-started"), "a shard is begun")
            active = fleet.ask("inspect", "active", "--timeout", "10")
            assert TASK in active
            assert f"'{run_id}'" in active
            wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run is done")
            again = send(fleet, run_id, 1)
            wait_for(
                lambda: again in [one["uuid"] for one in fleet.of_type("task-rejected")], "its end"
            )
            name = queue_of(fleet.settings, runs.get(fleet.db, run_id).plan)
            assert queue.depth(fleet.settings, name) == 0
            wait_for(lambda: len(fleet.of_type("task-succeeded")) == 3, "an event for each shard")
        received = {one["uuid"]: one["args"] for one in fleet.of_type("task-received")}
        succeeded = fleet.of_type("task-succeeded")
        assert sorted(received[one["uuid"]] for one in succeeded) == [
            f"('{run_id}', {index})" for index in range(3)
        ]
        assert all(one["runtime"] > 0.4 for one in succeeded)
        assert [one.attempt for one in shards.list_shards(fleet.db, run_id)] == [1] * 3


@pytest.mark.parametrize(("broker", "terminate"), [("redis_url", True), ("amqp_url", False)])
def test_revoke_cancels_a_shard_that_waits_and_one_that_is_worked_on(
    broker: str, terminate: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(broker)
    with celery_fleet(url, tmp_path, CHAOS_SLOWLY="1.0", TRANSEXPLAIN_LEASE_SECONDS="3") as fleet:
        run_id = fleet.submit(items=48, shard_size=16, batch_tokens=32, evaluation={"items": 0})
        purge(fleet, run_id)
        running, waiting = send(fleet, run_id, 0), send(fleet, run_id, 1)
        with fleet.watching(), fleet.worker():
            wait_for(lambda: fleet.of_type("task-started"), "a shard is begun")
            wait_for(lambda: shards.list_shards(fleet.db, run_id)[0].breadcrumb, "a batch is begun")
            fleet.app.control.revoke(waiting)
            fleet.app.control.revoke(running, terminate=terminate)
            wait_for(
                lambda: fleet.states(run_id) == ["cancelled", "cancelled", "queued"], "both ended"
            )
            assert queue.top_up(fleet.db, fleet.settings, patience=0.0) == 1, "neither comes back"
            wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run is closed")
        assert fleet.states(run_id) == ["cancelled", "cancelled", "done"]
        assert {one["uuid"] for one in fleet.of_type("task-revoked")} == {running, waiting}
        assert len(fleet.of_type("task-succeeded")) == 1
        assert runs.progress(fleet.db, run_id).items_done == 16
        assert shards.redrive(fleet.db, run_id) == 2, "and both can be driven again"


def test_a_rate_limit_holds(url: str, tmp_path: Path) -> None:
    with celery_fleet(url, tmp_path) as fleet:
        run_id = fleet.submit(items=32, shard_size=8, evaluation={"items": 0})
        purge(fleet, run_id)
        with fleet.watching(), fleet.worker():
            fleet.app.control.rate_limit(TASK, "20/m", reply=True, timeout=10)
            begun = time.monotonic()
            for index in range(4):
                send(fleet, run_id, index)
            wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run is done")
            took = time.monotonic() - begun
            wait_for(lambda: len(fleet.of_type("task-succeeded")) == 4, "all events")
        starts = sorted(one["timestamp"] for one in fleet.of_type("task-started"))
        assert took > 8.5, "three pauses of three seconds"
        assert all(later - earlier > 2.5 for earlier, later in itertools.pairwise(starts))


#: commands that are let through, with the arguments that could do most harm
WORST: dict[str, dict[str, object]] = {
    "hello": {"from_node": "x@y", "revoked": ["unknown"]},
    "query_task": {"ids": ["unknown"]},
    "rate_limit": {"task_name": TASK, "rate_limit": "1/h"},
    "registered": {"taskinfoitems": ["app", "__dict__"]},
    "revoke": {"task_id": ["unknown"], "terminate": True, "signal": "KILL"},
    "terminate": {"task_id": ["unknown"], "signal": "KILL"},
}


def test_no_command_stops_a_worker_for_good(url: str, tmp_path: Path) -> None:
    """What is let through is undone by another command; what is not undone is not let through."""
    with celery_fleet(url, tmp_path) as fleet, fleet.watching(), fleet.worker():
        control = fleet.app.control
        for command in (*sorted(COMMANDS), "cancel_consumer", "shutdown"):
            control.broadcast(command, arguments=WORST.get(command, {}))
        control.broadcast("cancel_consumer", arguments={"queue": queue_of_texts(fleet)})
        control.rate_limit(TASK, "0", reply=True, timeout=10)
        control.enable_events(reply=True, timeout=10)
        assert control.ping(timeout=5)
        run_id = fleet.submit(items=16, shard_size=8, evaluation={"items": 0})
        wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run is done")
        wait_for(lambda: len(fleet.of_type("task-succeeded")) == 2, "an event for each shard")


def queue_of_texts(fleet: CeleryFleet) -> str:
    return queue_name(fleet.settings.queue, "text", "cpu")


def test_keys_that_somebody_set_end_no_worker_and_no_sweep(redis_url: str, tmp_path: Path) -> None:
    with celery_fleet(redis_url, tmp_path) as fleet, redis.Redis.from_url(redis_url) as client:
        with fleet.worker() as process:
            for name in names_of_keys(fleet.settings.queue, queue_of_texts(fleet)):
                client.delete(f"{fleet.settings.queue}:{name}")
                client.set(f"{fleet.settings.queue}:{name}", "x")
            run_id = fleet.submit(items=16, shard_size=8, evaluation={"items": 0})
            assert fleet.app.control.ping(timeout=10)
            run_here(fleet.env, tmp_path, "sweep")
            wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run is done")
            assert process.poll() is None
            wait_for(lambda: fleet_state.status(fleet.db).refused.get("wrong-type"), "it counts")
        assert "Unrecoverable" not in fleet.log and "Traceback" not in fleet.log
