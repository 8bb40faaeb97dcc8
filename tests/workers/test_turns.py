"""Whose turn it is: quotas by share, priorities, caps, and models that are loaded."""

import itertools
import time
import uuid
from pathlib import Path

import pytest
from celery_fleets import CeleryFleet, celery_fleet
from chaos_groups import wait_for
from store_samples import make_plan, make_result, make_shards

from orchestrator.dispatch import queue
from transexplain.store import queueing, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.queueing import Contender
from transexplain.types.plans import AuditPlan, QueuePlace
from workers.fair_turns import FairTurns, lacks
from workers.message_guard import COMMANDS, TASK
from workers.queue_names import queue_name, queue_of


def start(db: Database, count: int, name: str = "a", **place: object) -> str:
    plan = make_plan(rows=count, name=name)
    return runs.create(db, plan, make_shards(count, 1), place=QueuePlace(**place))  # type: ignore[arg-type]


def served(db: Database, hinted: str, count: int, *, alone: bool = False) -> list[str]:
    """Whose shards so many workers take, one each, or one worker that ends each before the next.

    Every message names `hinted`, as those of a large run that was submitted first do.
    """
    turns, taken = [FairTurns() for _ in range(1 if alone else count)], []
    for number in range(count):
        worker = 0 if alone else number
        order = turns[worker].order(db, f"w{worker}", hinted, 0)
        if order == [(hinted, 0)]:
            order = [(hinted, None)]  # messages of the sweep name free shards
        claims = (shards.claim(db, run_id, f"w{worker}", 1e6, index) for run_id, index in order)
        claim = next(filter(None, claims), None)
        if claim is None:
            break
        taken.append(claim.run_id)
        if alone:
            results.save(db, claim, make_result(claim.shard))
            runs.finalise(db, claim.run_id)
    return taken


def contender(name: str, others: int, share: float = 1.0) -> Contender:
    return Contender(run_id=name, place=QueuePlace(share=share), others=others)


def test_quotas_are_by_share() -> None:
    found = lacks([contender("a", 4, share=3.0), contender("b", 3, share=1.0)])
    assert found == {"a": 2.0}
    assert lacks([contender("a", 0, share=3.0), contender("b", 0)]) == {"a": 0.75, "b": 0.25}


def test_a_run_that_comes_later_is_not_behind_the_messages_of_the_first(db: Database) -> None:
    first, second = start(db, 100), start(db, 5)
    assert served(db, first, 14, alone=True).count(second) == 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("alone", [True, False])
def test_workers_are_divided_by_share(db: Database, alone: bool) -> None:
    large, small = start(db, 100, share=3.0), start(db, 100)
    taken = served(db, small, 80, alone=alone)
    assert 2.5 < taken.count(large) / taken.count(small) < 3.5


def test_a_higher_priority_is_served_first_and_a_lower_one_fills_what_its_cap_leaves(
    db: Database,
) -> None:
    low, high = start(db, 30, share=50.0), start(db, 6, priority=5, most_workers=1)
    assert served(db, low, 4) == [high, low, low, low], "whatever the share of the other"


def test_a_paused_run_is_passed_over_and_its_message_serves_another(db: Database) -> None:
    paused, other = start(db, 3), start(db, 2)
    queueing.pause(db, paused)
    assert served(db, paused, 5, alone=True) == [other] * 2


def test_a_loaded_model_is_kept_for_a_while_and_not_for_ever(db: Database) -> None:
    first, second = start(db, 40, "loaded"), start(db, 40, "other")
    turns = FairTurns(loaded=lambda plan: plan.name == "loaded")
    chosen = [turns.order(db, "w", first, 0)[0][0] for _ in range(30)]
    assert chosen[:4] == [first] * 4
    assert 4 <= chosen.count(second) <= 15
    runs_of_second = "".join("s" if one == second else "f" for one in chosen)
    assert "fffffffff" not in runs_of_second


def test_runs_that_this_worker_cannot_serve_are_not_tried(db: Database) -> None:
    mine, foreign = start(db, 2, "mine"), start(db, 2, "foreign", priority=9)

    def serves(plan: AuditPlan) -> bool:
        return plan.name == "mine"

    turns = FairTurns(serves=serves)
    assert turns.order(db, "w", mine, 1) == [(mine, 1), (mine, None)]
    assert turns.order(db, "w", foreign, 1) == [(mine, None)]


def test_with_one_run_a_message_names_its_shard_and_no_other(db: Database) -> None:
    only = start(db, 3)
    assert FairTurns().order(db, "w", only, 2) == [(only, 2)]
    assert FairTurns().order(db, "w", "gone", 2) == [("gone", 2)]


@pytest.mark.exhaustive
def test_a_run_below_its_cap_goes_on_without_a_sweep(tmp_path: Path, redis_url: str) -> None:
    """Messages that came while the cap was reached are gone; the end of a shard sends another."""
    with celery_fleet(redis_url, tmp_path) as fleet:
        run_id = fleet.submit("capped", items=8, shard_size=1, queue={"most_workers": 1})
        with fleet.worker():
            wait_for(lambda: runs.progress(fleet.db, run_id).state == "done", "the end")
        assert queueing.change(fleet.db, run_id) is None


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


@pytest.mark.exhaustive
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
@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_a_rate_limit_holds(redis_url: str, tmp_path: Path) -> None:
    with celery_fleet(redis_url, tmp_path) as fleet:
        run_id = fleet.submit(items=32, shard_size=8, evaluation={"items": 0})
        purge(fleet, run_id)
        with fleet.watching(), fleet.worker():
            fleet.app.control.rate_limit(TASK, "60/m", reply=True, timeout=10)
            begun = time.monotonic()
            for index in range(4):
                send(fleet, run_id, index)
            wait_for(lambda: runs.get(fleet.db, run_id).state == "done", "the run is done")
            took = time.monotonic() - begun
            wait_for(lambda: len(fleet.of_type("task-succeeded")) == 4, "all events")
        starts = sorted(one["timestamp"] for one in fleet.of_type("task-started"))
        assert took > 2.8, "three pauses of a second"
        assert all(later - earlier > 0.8 for earlier, later in itertools.pairwise(starts))


#: commands that are let through, with the arguments that could do most harm
WORST: dict[str, dict[str, object]] = {
    "hello": {"from_node": "x@y", "revoked": ["unknown"]},
    "query_task": {"ids": ["unknown"]},
    "rate_limit": {"task_name": TASK, "rate_limit": "1/h"},
    "registered": {"taskinfoitems": ["app", "__dict__"]},
    "revoke": {"task_id": ["unknown"], "terminate": True, "signal": "KILL"},
    "terminate": {"task_id": ["unknown"], "signal": "KILL"},
}


@pytest.mark.exhaustive
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
