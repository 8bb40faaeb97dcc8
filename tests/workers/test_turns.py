"""Whose turn it is: quotas by share, priorities, caps, and models that are loaded."""

import heapq
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
import redis
from broker_keys import names_of_keys
from celery_fleets import CeleryFleet, celery_fleet
from chaos_groups import wait_for
from command_line_here import run_here
from store_samples import make_plan, make_result, make_shards

from orchestrator.dispatch import queue
from transexplain.store import fleet_state, queueing, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.queueing import Contender
from transexplain.types.plans import AuditPlan, QueuePlace
from workers.fair_turns import FairTurns, lacks
from workers.message_guard import COMMANDS, TASK
from workers.queue_names import queue_name, queue_of


def start(db: Database, count: int, name: str = "a", **place: object) -> str:
    plan = make_plan(rows=count, name=name)
    return runs.create(db, plan, make_shards(count, 1), place=QueuePlace(**place))  # type: ignore[arg-type]


class Pool:
    """Workers in virtual time: each takes what `FairTurns` says, by real claims."""

    def __init__(self, db: Database, workers: int, seconds: Mapping[str, float]) -> None:
        self.db, self.seconds = db, seconds
        self.turns = [FairTurns() for _ in range(workers)]
        self.busy: Counter[str] = Counter()  #: seconds of workers
        self.done: Counter[str] = Counter()
        self.ends: list[tuple[float, int, str]] = []  #: when, worker, run
        self.order: list[str] = []  #: runs of the shards in the order of their claims
        self.most: Counter[str] = Counter()  #: shards in hand at once

    def work(self, hinted: str, *, until: float = 1e9) -> None:
        """Every message names `hinted`, as those of a large run that was submitted first do."""
        held = {}
        idle = list(range(len(self.turns)))
        now = 0.0
        while True:
            for worker in tuple(idle):
                order = self.turns[worker].order(self.db, f"w{worker}", hinted, 0)
                if order == [(hinted, 0)]:
                    order = [(hinted, None)]  # messages of the sweep name free shards
                for run_id, index in order:
                    claim = shards.claim(self.db, run_id, f"w{worker}", 1e6, index)
                    if claim is not None:
                        held[worker] = claim
                        self.order.append(claim.run_id)
                        self.busy[claim.run_id] += self.seconds[claim.run_id]
                        end = now + self.seconds[claim.run_id]
                        heapq.heappush(self.ends, (end, worker, claim.run_id))
                        in_hand = Counter(one.run_id for one in held.values())
                        self.most |= in_hand
                        idle.remove(worker)
                        break
            if not self.ends or self.ends[0][0] > until:
                return
            now, worker, run_id = heapq.heappop(self.ends)
            idle.append(worker)
            claim = held.pop(worker)
            results.save(self.db, claim, make_result(claim.shard))
            runs.finalise(self.db, run_id)
            self.done[run_id] += 1


def contender(name: str, others: int, share: float = 1.0) -> Contender:
    return Contender(run_id=name, place=QueuePlace(share=share), others=others)


def test_quotas_are_by_share() -> None:
    found = lacks([contender("a", 4, share=3.0), contender("b", 3, share=1.0)])
    assert found == {"a": 2.0}
    assert lacks([contender("a", 0, share=3.0), contender("b", 0)]) == {"a": 0.75, "b": 0.25}


def test_a_run_that_comes_later_is_not_behind_the_messages_of_the_first(db: Database) -> None:
    first, second = start(db, 100), start(db, 5)
    pool = Pool(db, 1, {first: 1.0, second: 1.0})
    pool.work(first, until=14.5)
    assert pool.done[second] == 5
    assert pool.done[first] <= 9


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 4])
def test_workers_are_divided_by_share(db: Database, workers: int) -> None:
    three, one = start(db, 100, share=3.0), start(db, 100)
    pool = Pool(db, workers, {three: 1.0, one: 1.0})
    pool.work(one, until=80.5 / workers)
    assert 2.5 < pool.done[three] / pool.done[one] < 3.5


def test_a_higher_priority_is_served_first_and_a_lower_one_fills_what_its_cap_leaves(
    db: Database,
) -> None:
    low, high = start(db, 30, share=50.0), start(db, 6, priority=5, most_workers=1)
    pool = Pool(db, 3, {low: 1.0, high: 1.0})
    pool.work(low)
    assert pool.done == {low: 30, high: 6}
    assert pool.most[high] == 1
    assert [name for name in pool.order if name == high] == [high] * 6
    assert pool.order[0] == high, "whatever the share of the other"
    last = max(place for place, name in enumerate(pool.order) if name == high)
    assert last < 20


def test_a_paused_run_is_passed_over_and_its_message_serves_another(db: Database) -> None:
    paused, other = start(db, 3), start(db, 2)
    queueing.pause(db, paused)
    pool = Pool(db, 1, {paused: 1.0, other: 1.0})
    pool.work(paused)
    assert pool.done == {other: 2}


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


@pytest.mark.exhaustive
def test_a_run_that_is_paused_keeps_what_is_in_hand(tmp_path: Path, redis_url: str) -> None:
    with celery_fleet(redis_url, tmp_path) as fleet:
        run_id = fleet.submit(items=240, shard_size=1)
        with fleet.worker():
            wait_for(lambda: runs.progress(fleet.db, run_id).states["done"], "the first shards")
            run_here(fleet.env, tmp_path, "pause", run_id)
        state = runs.progress(fleet.db, run_id)
        assert state.paused and state.states["running"] == 0 and state.states["queued"]


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
def test_a_rate_limit_holds(url: str, tmp_path: Path) -> None:
    with celery_fleet(url, tmp_path) as fleet:
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


@pytest.mark.exhaustive
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
