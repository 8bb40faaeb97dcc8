"""The sweep over real brokers: what was lost is sent again, once, and never too much of it."""

import heapq
import json
import random
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery_fleets import forget_messages
from chaos_groups import command, environment, wait_for
from command_line_here import run_here
from store_samples import make_plan, make_result, make_shards
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli import run_commands
from orchestrator.cli.command_line import app
from orchestrator.cli.fleet_commands import _seconds_until
from orchestrator.cli.run_commands import RecentRate, run_progress
from orchestrator.dispatch import executors, local, queue, ray_actors
from orchestrator.dispatch import queue as sweep
from orchestrator.dispatch.executors import RunJob, follow_queue
from orchestrator.dispatch.fleet_size import FleetSize, WorkLeft, fleet_size
from orchestrator.dispatch.local import run_here as work_here
from orchestrator.dispatch.local import run_processes
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import BrokerError, ConfigurationError, InfrastructureError
from transexplain.settings import Settings
from transexplain.store import queueing, readers, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from workers.claim_to_commit import Workbench
from workers.queue_names import queue_of


def the_queue(settings: Settings) -> str:
    """Where messages for the runs of these tests go."""
    return queue_of(settings, make_plan())


def test_the_queue_is_topped_up_to_what_waits(db: Database, settings: Settings) -> None:
    assert queue.depth(settings, the_queue(settings)) == 0
    assert queue.sweep(db, settings, every=0) == (0, ())
    run_id = runs.create(db, make_plan(), make_shards())
    assert queue.sweep(db, settings, every=0) == (3, ())
    assert queue.depth(settings, the_queue(settings)) == 3
    assert queue.sweep(db, settings, every=0) == (0, ())
    forget_messages(settings)
    assert shards.claim(db, run_id, "worker", 60.0, 0)
    assert queue.sweep(db, settings, every=0) == (2, ())
    assert queue.depth(settings, the_queue(settings)) == 2


def test_never_more_than_the_bound(
    db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "BOUND", 5)
    runs.create(db, make_plan(), make_shards())
    runs.create(db, make_plan(80), make_shards(80))
    for sent in (5, 0, 0):
        assert queue.sweep(db, settings, every=0) == (sent, ())
    assert queue.depth(settings, the_queue(settings)) == 5


def test_sweepers_at_once_send_once(db: Database, settings: Settings) -> None:
    runs.create(db, make_plan(), make_shards())
    with ThreadPoolExecutor(4) as pool:
        swept = [one for one in pool.map(lambda _: queue.sweep(db, settings), range(4)) if one]
    assert swept == [(3, ())]
    assert queue.depth(settings, the_queue(settings)) == 3


def test_a_run_whose_last_worker_died_before_closing_it_is_closed(
    db: Database, settings: Settings
) -> None:
    run_id = runs.create(db, make_plan(), make_shards())
    for one in make_shards():
        claim = shards.claim(db, run_id, "worker", 60.0, one.index)
        assert claim is not None
        results.save(db, claim, make_result(one))
    away = replace(settings, broker_url="redis://127.0.0.1:1/0")
    assert queue.sweep(db, away) == (0, (run_id,)), "needs no broker"
    assert runs.get(db, run_id).state == "done"


def test_the_verb_says_what_it_did(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", settings.broker_url)
    monkeypatch.setenv("TRANSEXPLAIN_QUEUE", settings.queue)
    with open_database(settings.database_url, upgrade=True) as store:
        runs.create(store, make_plan(), make_shards())
    printed = [CliRunner().invoke(app, ["sweep", "--db", settings.database_url]) for _ in range(2)]
    assert [one.exit_code for one in printed] == [0, 0]
    assert "3 messages sent" in printed[0].stdout
    assert "another process" in printed[1].stdout


def test_an_unreachable_broker_is_named_and_tried_again(db: Database, settings: Settings) -> None:
    run_id = runs.create(db, make_plan(), make_shards())
    away = replace(settings, broker_url="redis://:secret@127.0.0.1:1/0")
    with pytest.raises(BrokerError, match="TRANSEXPLAIN_BROKER_URL") as caught:
        queue.sweep(db, away, every=0)
    assert "secret" not in str(caught.value)
    taken = queueing.take(db, {run_id: None}, 1, patience=60)
    assert taken == {run_id: [0]}, "no hint was noted as sent"


@pytest.mark.exhaustive
def test_messages_are_sent_again_until_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker loses every first message and is away once; the round after that is worked on."""
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}",
        snapshot_dir=tmp_path / "snapshots",
        lease_seconds=0.2,
    )
    prepared = prepare_audit(load_spec(make_audit(tmp_path)), settings)
    warnings: list[str] = []
    rounds: list[list[int]] = []
    counted: list[int] = []
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        bench = Workbench(db=db, settings=replace(settings, lease_seconds=60.0))
        bench.models.put(prepared.plan.model, prepared.model)

        def deliver(_: Settings, of_run: str, indices: list[int], queue: str) -> None:
            rounds.append(list(indices))
            if len(rounds) == 2:
                raise BrokerError("broker redis://here cannot be reached")
            for index in indices if len(rounds) > 2 else ():
                bench.work(of_run, index)

        monkeypatch.setattr(sweep.sweep, "__kwdefaults__", {"every": 0.3})
        monkeypatch.setattr(executors, "_POLL", 0.2)
        monkeypatch.setattr(queue, "depth", lambda *_: 0)
        monkeypatch.setattr(queue, "send_messages", deliver)
        reports = Reports(items=counted.append, wait=warnings.append)
        follow_queue(RunJob(db, run_id, reports, threading.Event()), settings)
        assert runs.get(db, run_id).state == "done"
    assert rounds == [[0, 1, 2, 3, 4]] * 3
    assert sum(counted) == 40
    assert any("transexplain worker" in warning for warning in warnings)
    assert any("cannot be reached" in warning for warning in warnings)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'store.db'}")


@pytest.fixture
def run_id(env: dict[str, str]) -> str:
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"], upgrade=True) as db:
        return runs.create(db, make_plan(), make_shards())


def test_a_run_is_paused_goes_on_and_is_cancelled(
    env: dict[str, str], run_id: str, tmp_path: Path
) -> None:
    assert f"`transexplain unpause {run_id}`" in run_here(env, tmp_path, "pause", "latest")
    assert "was paused already" in run_here(env, tmp_path, "pause", run_id)
    assert "  paused  0/12 items" in run_here(env, tmp_path, "status", run_id)
    for verb in ("resume", "retry"):
        said = run_here(env, tmp_path, verb, run_id, code=2)
        assert f"run {run_id} is paused" in said
        assert "transexplain unpause" in said
    assert "goes on" in run_here(env, tmp_path, "unpause", run_id)
    assert "was not paused" in run_here(env, tmp_path, "unpause", run_id)
    assert "  running  0/12 items" in run_here(env, tmp_path, "status", run_id)
    assert "cancelled" in run_here(env, tmp_path, "cancel", run_id)
    for verb in ("pause", "unpause", "queue"):
        assert f"run {run_id} is cancelled" in run_here(env, tmp_path, verb, run_id, code=2)


def test_the_place_of_a_run_is_changed_and_shown(
    env: dict[str, str], run_id: str, tmp_path: Path
) -> None:
    for wrong in (("--share", "0"), ("--share", "nan"), ("--most-workers", "-1")):
        assert wrong[0] in run_here(env, tmp_path, "queue", run_id, *wrong, code=2)
    assert "priority 0, share 1, no cap" in run_here(env, tmp_path, "queue", run_id)
    words = ("--priority", "5", "--share", "2.5", "--most-workers", "4")
    run_here(env, tmp_path, "queue", run_id, *words)
    assert "(priority 5, share 2.5, at most 4 workers)" in run_here(env, tmp_path, "status")
    shown = json.loads(run_here(env, tmp_path, "queue", run_id, "--most-workers", "0", "--json"))
    assert shown == {"run_id": run_id, "priority": 5, "share": 2.5, "most_workers": None}
    [state] = json.loads(run_here(env, tmp_path, "status", "--json"))
    assert state["place"] == {"priority": 5, "share": 2.5, "most_workers": None}
    assert state["paused"] is False


def test_local_work_on_a_paused_run_says_so_and_goes_on_after(
    env: dict[str, str], run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(local, "_PATIENCE", 0.1)
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        queueing.pause(db, run_id)
        stop = threading.Event()

        def wait(reason: str) -> None:
            said.append(reason)
            stop.set()

        with pytest.raises(KeyboardInterrupt):
            local.run_here(
                db, run_id, Settings.from_environment(), report=Reports(wait=wait), stop=stop
            )
        assert f"`transexplain unpause {run_id}`" in said[0]
        assert runs.progress(db, run_id).states["queued"] == 3


ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 25, 21, 30, tzinfo=ZONE)


def left(run_id: str, shards: int, seconds: float | None, cap: int | None = None) -> WorkLeft:
    """A run with shards of 10 items, each of so many seconds."""
    return WorkLeft(
        run_id=run_id,
        name="a",
        shards=shards,
        items=10 * shards,
        item_seconds=None if seconds is None else seconds / 10,
        cap=cap,
    )


def ends(work: list[WorkLeft], workers: int, order: random.Random) -> float:
    """When so many workers are through that each take the next shard, in any order."""
    shards = [one.shard_seconds or 0.0 for one in work for _ in range(one.shards)]
    order.shuffle(shards)
    free = [0.0] * workers
    for seconds in shards:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def test_a_worker_does_whole_shards() -> None:
    # 20 s: two shards of 10 s each; 19 s: one
    assert fleet_size([left("r", 10, 10.0)], 20.0).workers == 5
    assert fleet_size([left("r", 10, 10.0)], 19.0).workers == 10
    assert fleet_size([left("r", 10, 10.0)], 80.0, start=60.0).workers == 5
    assert fleet_size([], 1.0) == FleetSize(workers=0, in_time=True)
    small = [left(f"r{i}", 1, 1.0) for i in range(100)]
    assert fleet_size(small, 3600.0).workers == 1, "many small runs share workers"


@pytest.mark.parametrize("seed", range(20))
def test_so_many_are_enough_whatever_comes_first(seed: int) -> None:
    order = random.Random(seed)
    work = [
        left(f"r{i}", order.randint(1, 40), order.uniform(0.5, 9.0))
        for i in range(order.randint(1, 5))
    ]
    room = order.uniform(9.0, 60.0)
    found = fleet_size(work, room)
    assert found.in_time and not found.notes
    alone = [fleet_size([one], room).workers for one in work]
    if found.workers < sum(alone):  # else each run has workers of its own
        assert ends(work, found.workers, order) <= room + 1e-9
    for one, workers in zip(work, alone, strict=True):
        assert ends([one], workers, order) <= room + 1e-9
        if workers > 1:
            assert ends([one], workers - 1, order) > room, "one fewer would do"


def test_what_no_number_can_do_is_said() -> None:
    found = fleet_size([left("r", 8, 30.0)], 20.0)
    assert not found.in_time and found.workers == 8
    assert "a shard takes 30 s and there are 20" in found.notes[0]
    found = fleet_size([left("r", 8, 10.0, cap=2)], 20.0)
    assert not found.in_time and found.workers == 2
    assert "`transexplain queue r --most-workers 4`" in found.notes[0]


def test_a_run_without_a_rate_counts_as_one_worker() -> None:
    found = fleet_size([left("r", 8, None), left("s", 10, 10.0)], 20.0)
    assert found.workers == 6 and found.in_time
    assert "no shard of it" in found.notes[0]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("90s", 90.0),
        ("45min", 2700.0),
        ("2h", 7200.0),
        ("1d", 86_400.0),
        ("22:00", 1800.0),
        ("06:00", 8.5 * 3600),
        ("21:30", 86_400.0),
        ("2026-11-26T06:00", 8.5 * 3600),
        ("2026-11-25T20:00+00:00", 1800.0),
    ],
)
def test_times_are_read(given: str, seconds: float) -> None:
    assert _seconds_until(given, NOW) == seconds


@pytest.mark.parametrize("given", ["soon", "25:00", "2026-13-01", "-2h", "2026-11-25T21:00"])
def test_what_is_no_time_to_come_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError):
        _seconds_until(given, NOW)


ITEMS = 24


@pytest.fixture
def local_settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    return Settings(database_url=url, snapshot_dir=tmp_path / "snaps")


@pytest.fixture
def prepared(tmp_path: Path, local_settings: Settings) -> PreparedAudit:
    spec = make_audit(tmp_path, items=ITEMS, shard_size=8, evaluation={"items": 6})
    return prepare_audit(load_spec(spec), local_settings)


@pytest.mark.exhaustive
def test_two_processes_report_the_items_and_checks_of_one(
    db: Database, local_settings: Settings, prepared: PreparedAudit
) -> None:
    passes: list[int] = []
    for processes in (1, 2):
        items: list[int] = []
        checks: list[tuple[int, float]] = []
        report = Reports(items=items.append, checks=lambda *check, to=checks: to.append(check))
        run_id = runs.create(db, prepared.plan, prepared.shards)
        if processes == 1:
            work_here(db, run_id, local_settings, model=prepared.model, report=report)
        else:
            run_processes(db, run_id, local_settings, 2, threads=1, report=report)
        assert sum(items) == ITEMS and min(items) > 0
        assert all(count > 0 and 0 <= share < 1 for count, share in checks) and checks[-1][1] > 0
        passes.append(sum(count for count, _ in checks))
    assert passes[0] == passes[1] > ITEMS


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    clock = Clock()
    rate = RecentRate(clock=clock)
    assert rate.per_second() == 0
    clock.now += 2
    rate.add(10)
    assert rate.per_second() == 5  # over the two seconds that there were
    clock.now += 8
    assert rate.per_second() == 1
    clock.now += 2.5  # what was done is longer ago than ten seconds
    assert rate.per_second() == 0


def test_lines_of_json_are_few_and_the_last_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(run_commands.time, "monotonic", clock)
    with run_progress("name", 100, 10, "json") as display:
        for _ in range(90):
            clock.now += 0.1
            display.items(1)
            display.checks(2, 0.25)
        for _ in range(9):
            display.checks(1, 0.5)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert 3 <= len(lines) <= 5
    assert [line["event"] for line in lines] == ["progress"] * len(lines)
    last = lines[-1]
    assert (last["done"], last["total"]) == (100, 100)
    assert (last["checks"], last["checks_share"]) == (189, 0.5)
    assert 9 < last["items_per_second"] < 11


@pytest.mark.parametrize("output", ["quiet", "bar"])
def test_without_a_terminal_nothing_is_drawn(output, capsys: pytest.CaptureFixture[str]) -> None:
    with run_progress("name", 5, 0, output) as display:
        display.items(5)
        display.checks(3, 0.5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_for_items_and_one_for_checks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with run_progress("reviews", 8, 2, "bar") as display:
        display.items(3)
        display.checks(4, 0.375)
    shown = capsys.readouterr().err
    assert "5/8" in shown and "items/s" in shown
    assert "reviews: checks, 38% of the time" in shown and "checks/s" in shown


def two_nodes(cluster_class: Any) -> tuple[Any, Any]:
    """A cluster and the second of its nodes; tried again where a node does not start in time."""
    for attempts_left in (2, 1, 0):
        cluster = cluster_class()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
            second = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes(timeout=120)
            return cluster, second
        except Exception:
            cluster.shutdown()
            if not attempts_left:
                raise
    raise AssertionError("unreachable")


class HereInsteadOfRay:
    """As much of Ray as an executor calls; its tasks are functions that run when they end."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def cluster_resources(self) -> dict[str, int]:
        return {"CPU": 2}

    def wait(self, tasks: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: Callable[[], None]) -> None:
        task()


@pytest.mark.parametrize("every", [False, True])
def test_actors_that_fail_matter_where_all_do(
    monkeypatch: pytest.MonkeyPatch, db: Database, prepared: PreparedAudit, every: bool
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)

    def fails() -> None:
        raise RuntimeError("first line\nthe node is gone")

    def works() -> None:
        work_here(db, run_id, Settings(), model=prepared.model)

    actors = [
        SimpleNamespace(work=SimpleNamespace(remote=lambda work=work: work))
        for work in (fails, fails if every else works)
    ]
    monkeypatch.setattr(ray_actors, "_cluster", lambda _: nullcontext(HereInsteadOfRay()))
    monkeypatch.setattr(ray_actors, "_begin", lambda *_: actors)
    monkeypatch.setattr(executors, "_POLL", 0.01)
    heard: list[str] = []
    finished: list[int] = []
    reports = Reports(items=finished.append, wait=heard.append)
    job = executors.RunJob(db, run_id, reports, threading.Event())
    by_ray = ray_actors.RayActors(executors.Workforce(settings=Settings(), address="local"))
    if every:
        with pytest.raises(InfrastructureError, match="failed, the last with: the node is gone"):
            by_ray.work(job)
    else:
        by_ray.work(job)
        assert runs.get(db, run_id).state == "done" and sum(finished) == ITEMS
    assert heard == ["a Ray actor ended: the node is gone"] * (2 if every else 1)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_node_that_is_killed_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="needs the extra ray")
    spec = str(make_audit(tmp_path, items=40, shard_size=4, evaluation={"items": 0}))
    env = environment(
        tmp_path,
        CHAOS_EVERYWHERE="1",
        CHAOS_SLOWLY="0.5",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_niceness="0",  # by default 15, and beside other tests they hardly get to work
        TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'store.db'}",
    )
    for name, value in env.items():  # nodes and their workers have it from here
        monkeypatch.setenv(name, value)
    cluster, second = two_nodes(cluster_utils.Cluster)
    try:
        with open_database(env["TRANSEXPLAIN_DATABASE_URL"], upgrade=True) as db:
            run_with_a_kill(db, cluster, second, spec, env, tmp_path)
    finally:
        cluster.shutdown()


def run_with_a_kill(
    db: Database, cluster: object, second: object, spec: str, env: dict[str, str], folder: Path
) -> None:
    """Run the audit on the cluster; kill the second node when both have saved a shard."""
    words = ("run", spec, "--executor", "ray", "--address", cluster.address)  # type: ignore[attr-defined]
    driver = subprocess.Popen(command(*words), env=env, cwd=folder)
    try:

        def by_both() -> bool:
            assert driver.poll() is None, "it ended before a node was killed"
            listed = [shards.list_shards(db, one.id) for one in runs.list_runs(db)]
            saved = {one.worker for found in listed for one in found if one.state == "done"}
            held = {one.worker for found in listed for one in found if one.state == "running"}
            return len(saved) == 2 and len(held) == 2

        wait_for(by_both, "both nodes at work", 600)
        cluster.remove_node(second, allow_graceful=False)  # type: ignore[attr-defined]
        assert driver.wait(timeout=300) == 0
    finally:
        driver.kill()
        driver.wait()
    (run,) = runs.list_runs(db)
    listed = shards.list_shards(db, run.id)
    assert run.state == "done" and {one.state for one in listed} == {"done"}
    assert any(one.attempt > 1 for one in listed), "what the killed node held was done again"
    ids = [item.item_id for item in readers.iter_items(db, run.id)]
    assert len(ids) == len(set(ids)) == 40
