"""What a scrape says of runs, workers, devices, queues, failures and schedules, from SQL."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from fresh_stores import fresh_store
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, update
from tiny_audit import make_audit

from orchestrator.monitoring.fleet_metrics import (
    METRICS,
    MOST_RUNS,
    MOST_WORKERS,
    PREFIX,
    FleetCollector,
)
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.schedule.fire_times import latest
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store import fleet_state, queueing, runs, schedules, shards
from transexplain.store.database import Database
from transexplain.store.fleet_figures import SHARD_SECONDS, FigureReader
from transexplain.store.result_tables import run_metric, run_result
from transexplain.store.revisions import open_database
from transexplain.store.schema import item as item_table
from transexplain.store.schema import run as run_table
from transexplain.store.schema import schedule as schedule_table
from transexplain.store.schema import schedule_fire
from transexplain.store.schema import shard as shard_table
from transexplain.types.device_time import STAGES
from workers.claim_to_commit import Workbench

Scraped = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("audit")
    spec = load_spec(make_audit(folder, evaluation={"items": 0}))
    lines = (folder / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    lines[2] = '{"text": "", "label": "good"}'
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snaps"))


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ]
)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with fresh_store(tmp_path / "store.db") as store:
            yield store
        return
    with open_database(request.getfixturevalue("postgres_url"), upgrade=True) as store:
        yield store


def families(db: Database) -> list[Metric]:
    return list(FleetCollector(db, "q").collect())


def scrape(db: Database) -> Scraped:
    """Every sample as Prometheus reads it, by name and the values of its labels in the table's
    order."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db, "q"))
    text = generate_latest(registry).decode()
    order = {name: labels for one in METRICS for name, labels in one.series.items()}
    found: Scraped = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert set(sample.labels) == set(order[sample.name]), sample
            values = (sample.labels[label] for label in order[sample.name])
            found[sample.name.removeprefix(PREFIX), *values] = sample.value
    return found


def half_done(db: Database, prepared: Prepared) -> str:
    """Five shards: two saved (one item failed), one held, one whose lease ran out, one free."""
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = Workbench(db=db, settings=Settings(), name="first")
    bench.models.put(prepared.plan.model, prepared.model)
    assert [bench.work(run_id, index) for index in (0, 1)] == ["done", "done"]
    assert shards.claim(db, run_id, "second", 60.0, 2)
    assert shards.claim(db, run_id, "[lost]", 0.0, 3)
    return run_id


@pytest.mark.exhaustive
def test_the_server_exports_what_the_table_says_and_nothing_else(
    db: Database, prepared: Prepared
) -> None:
    half_done(db, prepared)
    kinds = {one.name: one.kind for one in METRICS}
    assert {one.name.removeprefix(PREFIX): one.type for one in families(db)} == kinds
    assert all(one.documentation for one in families(db))


def test_a_run_is_told_by_worker_device_queue_and_kind_of_failure(
    db: Database, prepared: Prepared
) -> None:
    run_id = half_done(db, prepared)
    fleet_state.add(db, {"json": 3, "of a later version": 1})
    seen = scrape(db)
    assert seen["up",] == 1 and seen["runs", "running"] == 1 and seen["runs_left_out",] == 0
    assert seen["run_info", run_id, "tiny", "audit", "running", "q.text.cpu"] == 1
    states = {one[2]: value for one, value in seen.items() if one[:2] == ("run_shards", run_id)}
    assert states == {"queued": 1, "running": 2, "done": 2, "dead": 0, "cancelled": 0}
    items = {one[2]: value for one, value in seen.items() if one[:2] == ("run_items", run_id)}
    assert items == {"explained": 15, "failed": 1, "pending": 24}
    assert seen["run_failed_items", run_id, "empty-text"] == 1
    assert seen["items_failed", "empty-text"] == 1
    assert seen["run_claims_total", run_id] == seen["claims",] == 4
    assert 0 <= seen["run_idle_seconds", run_id] <= seen["run_age_seconds", run_id] < 60
    assert seen["queue_shards", "q.text.cpu", "queued"] == 1
    assert seen["queue_shards", "q.text.cpu", "running"] == 2
    assert seen["worker_leases", run_id, "second"] == 1
    assert 0 < seen["worker_lease_left_seconds", run_id, "second"] <= 60
    assert seen["worker_lease_left_seconds", run_id, "[lost]"] <= 0
    assert 0 <= seen["worker_heartbeat_age_seconds", run_id, "second"] < 60
    assert seen["worker_shards_total", run_id, "first", "cpu"] == 2
    assert seen["worker_items_total", run_id, "first", "cpu"] == 16
    for stage in (*STAGES, "busy"):
        of_run = seen["device_time_seconds_total", run_id, "first", "cpu", stage]
        assert of_run == pytest.approx(seen["device_seconds", stage])
    assert seen["messages_refused", "json"] == 3
    runs.cancel(db, run_id)
    ended = scrape(db)
    assert ended["run_shards", run_id, "cancelled"] == 3
    assert ("run_idle_seconds", run_id) not in ended, "it is over"
    assert ended["queue_shards", "q.text.cpu", "queued"] == 0


def test_histograms_are_over_the_saved_shards(db: Database, prepared: Prepared) -> None:
    """By hand: seconds 0.5, 3 and 9000 of 8 items each, and what the third waited for."""
    run_id = runs.create(db, prepared.plan, prepared.shards)
    for index, seconds in enumerate((0.5, 3.0, 9000.0)):
        times = {"busy": 1.0, "loading": 0.0, "reading": 0.02 * index, "finishing": 0, "commit": 0}
        document = {"hardware": {"gpus": ["NVIDIA H100"] * 2}, "device": times}
        with db.begin() as connection:
            connection.execute(
                update(shard_table)
                .where(shard_table.c.run_id == run_id, shard_table.c.index == index)
                .values(
                    state="done", seconds=seconds, explained=7, failed=1, worker=f"w{index % 2}",
                    environment=document,
                )
            )  # fmt: skip
    shards.claim(db, run_id, "holder", 60.0, 3)
    seen = scrape(db)
    of = (run_id, "q.text.cpu", "NVIDIA H100")
    buckets = {k[4]: v for k, v in seen.items() if k[:4] == ("shard_seconds_bucket", *of)}
    assert list(map(float, buckets)) == [*SHARD_SECONDS, float("inf")]
    assert list(buckets.values()) == sorted(buckets.values()), "cumulative"
    assert (buckets["0.5"], buckets["1.0"], buckets["5.0"], buckets["+Inf"]) == (1, 1, 2, 3)
    assert seen["shard_seconds_sum", *of] == pytest.approx(9003.5)
    assert seen["shard_seconds_count", *of] == 3
    assert seen["shard_items_per_second_bucket", *of, "0.5"] == 1
    assert seen["shard_items_per_second_bucket", *of, "2.5"] == 1
    assert seen["shard_items_per_second_bucket", *of, "5.0"] == 2
    assert seen["shard_items_per_second_count", *of] == 3
    wait = (run_id, "NVIDIA H100")
    assert seen["device_wait_seconds_bucket", *wait, "reading", "0.01"] == 1
    assert seen["device_wait_seconds_bucket", *wait, "reading", "0.05"] == 3
    assert seen["device_wait_seconds_sum", *wait, "reading"] == pytest.approx(0.06)
    assert seen["device_wait_seconds_count", *wait, "commit"] == 3
    assert seen["lease_age_seconds_bucket", run_id, "+Inf"] == 1
    assert seen["lease_age_seconds_bucket", run_id, "60.0"] == 1
    assert 0 <= seen["lease_age_seconds_gsum", run_id] < 60
    assert seen["worker_shards_total", run_id, "w0", "NVIDIA H100"] == 2


def test_shards_of_an_older_version_have_no_times(db: Database, prepared: Prepared) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards[:1])
    with db.begin() as connection:
        done = {"state": "done", "seconds": None, "environment": None, "worker": None}
        connection.execute(update(shard_table).values(**done))
    seen = scrape(db)
    assert seen["worker_shards_total", run_id, "", "cpu"] == 1
    assert seen["shard_seconds_count", run_id, "q.text.cpu", "cpu"] == 0
    assert seen["device_wait_seconds_count", run_id, "cpu", "reading"] == 0


def test_series_are_bounded_and_vanish_with_their_runs(db: Database, prepared: Prepared) -> None:
    old = runs.create(db, prepared.plan, prepared.shards)
    ids = [runs.create(db, prepared.plan, prepared.shards[:1]) for _ in range(MOST_RUNS + 3)]
    with db.begin() as connection:
        over = {"state": "done", "finished": time.time() - fleet_state.RECENT - 60}
        connection.execute(update(run_table).where(run_table.c.id == old).values(**over))
        row = {"run_id": ids[-1], "state": "done", "attempt": 1, "token": 1, "explained": 1}
        many = [
            {**row, "failed": 0, "index": n + 5, "start": 9, "stop": 9, "worker": f"w{n:04}",
             "heartbeat": time.time() - n}
            for n in range(MOST_WORKERS + 9)
        ]  # fmt: skip
        connection.execute(insert(shard_table), many)
        kinds = [
            {"run_id": ids[-1], "index": n, "item_id": str(n), "shard": 5, "truncated": False,
             "error_kind": f"kind-{n % 23}", "error": "it failed"}
            for n in range(46)
        ]  # fmt: skip
        connection.execute(insert(item_table), kinds)
    seen = scrape(db)
    told = {key[1] for key in seen if key[0] == "run_info"}
    assert len(told) == MOST_RUNS and told < set(ids), "an old one has none"
    assert ids[-1] in told, "the newest come first"
    assert seen["runs_left_out",] == 3
    workers = {key[2] for key in seen if key[0] == "worker_shards_total"}
    assert len(workers) == MOST_WORKERS and "w0000" in workers, "those last heard of"
    failed = {key[2]: n for key, n in seen.items() if key[0] == "run_failed_items"}
    assert len(failed) == 21 and sum(failed.values()) == 46 and failed["other"] == 6


@pytest.mark.parametrize("name", ['a"b\\c\nd} 1\n# x', "\ud800 lone", "nul \0", "x" * 10_000, "ü"])
def test_any_name_can_be_written_and_read(db: Database, prepared: Prepared, name: str) -> None:
    runs.create(db, replace(prepared.plan, name=name), prepared.shards)
    seen = scrape(db)
    (label,) = [key[2] for key in seen if key[0] == "run_info"]
    assert label == name[:200].encode("utf-8", "replace").decode()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db, "q"))
    assert list(read_openmetrics(openmetrics(registry).decode()))


def test_a_database_that_is_away_or_of_another_version_is_told_and_nothing_else(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    gone = Database("postgresql://nobody:sekret@127.0.0.1:1/none")
    assert scrape(gone) == {("up",): 0.0}
    bare = Database(f"sqlite:///{tmp_path / 'bare.db'}")
    with bare.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE run (id TEXT)")
    assert scrape(bare) == {("up",): 0.0}
    bare.close()
    assert "sekret" not in caplog.text and "SELECT" not in caplog.text
    assert len(caplog.records) == 2


def planned(db: Database, prepared: Prepared, name: str, cron: str = "* * * * *") -> None:
    schedules.add(db, schedules.Planned(name=name, cron=cron, time_zone="UTC", spec={}))


def fired(db: Database, prepared: Prepared, name: str, at: float, **metrics: float) -> str:
    """A finished run of a schedule, with what its report said."""
    run_id = runs.create(db, prepared.plan, prepared.shards[:1])
    result = {"run_id": run_id, "verdict_kind": "flagged", "verdict": "It is so.", "written": 1.0}
    texts = {c.name: "" for c in run_result.c if not c.nullable and c.name not in result}
    with db.begin() as connection:
        done = {"state": "done", "finished": at + 5}
        connection.execute(update(run_table).where(run_table.c.id == run_id).values(**done))
        connection.execute(
            insert(schedule_fire).values(schedule=name, at=at, created=at, run_id=run_id)
        )
        connection.execute(insert(run_result).values(**texts, **result))
        for place, (metric, value) in enumerate(metrics.items()):
            row = {"name": metric, "target": "", "part": "", "value": value, "unit": ""}
            connection.execute(insert(run_metric).values(run_id=run_id, ordinal=place, **row))
    return run_id


def test_a_schedule_that_missed_its_time_is_overdue(db: Database, prepared: Prepared) -> None:
    planned(db, prepared, "often")
    planned(db, prepared, "rare", "0 3 1 1 *")
    planned(db, prepared, "paused")
    schedules.set_state(db, "paused", "paused")
    with db.begin() as connection:
        connection.execute(
            update(schedule_table)
            .where(schedule_table.c.name != "rare")
            .values(since=schedule_table.c.since - 3600)
        )
    schedules.fail(db, "rare", "no such model", 300.0)
    seen, now = scrape(db), time.time()
    assert 3480 < seen["schedule_overdue_seconds", "often"] < 3720, "the first missed one counts"
    assert seen["schedule_overdue_seconds", "rare"] == 0
    assert ("schedule_overdue_seconds", "paused") not in seen
    active = [seen["schedule_active", name] for name in ("often", "rare", "paused")]
    assert active == [1, 1, 0]
    assert [seen["schedule_failing", name] for name in ("often", "rare")] == [0, 1]
    assert now < seen["schedule_next_timestamp_seconds", "often"] <= now + 61


def test_a_paused_run_of_a_schedule_has_not_missed_its_time(
    db: Database, prepared: Prepared
) -> None:
    """The run of the fire was made: that it waits was asked for."""
    planned(db, prepared, "rare", "0 3 1 1 *")
    due = schedules.get(db, "rare")
    with db.begin() as connection:
        connection.execute(update(schedule_table).values(since=due.since - 366 * 86400))
    assert scrape(db)["schedule_overdue_seconds", "rare"] > 0
    at = latest(due.cron, due.time_zone, time.time())
    run_id = schedules.fire(db, due, at, (prepared.plan, prepared.shards), None)
    assert run_id and queueing.pause(db, run_id)
    with db.begin() as connection:
        long_ago = run_table.c.created - 7200
        connection.execute(update(run_table).values(created=long_ago, paused=long_ago))
    seen = scrape(db)
    assert seen["schedule_overdue_seconds", "rare"] == 0
    assert seen["run_paused", run_id] == 1 and seen["run_age_seconds", run_id] > 7000
    assert ("run_idle_seconds", run_id) not in seen, "nor is it a run without progress"
    queueing.unpause(db, run_id)
    assert scrape(db)["run_idle_seconds", run_id] > 7000


def test_a_schedule_says_what_its_last_finished_run_found(db: Database, prepared: Prepared) -> None:
    planned(db, prepared, "often")
    fired(db, prepared, "often", 1000.0, groups_newly_flagged=9.0)
    last = fired(
        db, prepared, "often", 2000.0,
        groups_newly_flagged=2.0, groups_no_longer_flagged=0.0, changed_predictions=0.25,
        accuracy=0.5,
    )  # fmt: skip
    seen = scrape(db)
    assert seen["schedule_last_run_info", "often", last, "flagged"] == 1
    assert seen["schedule_last_run_timestamp_seconds", "often"] == 2005.0
    assert seen["schedule_groups_newly_flagged", "often"] == 2
    assert seen["schedule_groups_no_longer_flagged", "often"] == 0
    assert seen["schedule_changed_predictions_ratio", "often"] == 0.25
    first = fired(db, prepared, "often", 3000.0)
    seen = scrape(db)
    assert seen["schedule_last_run_info", "often", first, "flagged"] == 1
    assert ("schedule_changed_predictions_ratio", "often") not in seen, "there was no run before"


def test_a_plan_is_read_once(
    db: Database, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = runs.create(db, prepared.plan, prepared.shards)
    collector = FleetCollector(db, "q")
    assert list(collector.collect())
    reader = collector._figures
    assert set(reader._plans) == {run_id}
    with db.begin() as connection:
        connection.execute(update(run_table).values(plan=[]))
    assert [one.modality for one in reader.read().runs] == ["text"]
    assert [one.modality for one in FigureReader(db, 60.0, 9).read().runs] == [""], "damaged"
    runs.cancel(db, run_id)
    with db.begin() as connection:
        connection.execute(update(run_table).values(finished=0.0))
    assert not reader.read().runs and not reader._plans


@pytest.mark.postgres
@pytest.mark.exhaustive
def test_a_role_that_only_reads_is_told_all_but_failures(
    postgres_url: str, prepared: Prepared
) -> None:
    import uuid

    from sqlalchemy import make_url

    from transexplain.store.upkeep import grant_read

    role = f"te_reader_{uuid.uuid4().hex[:8]}"
    with open_database(postgres_url, upgrade=True) as store:
        with store.begin() as connection:
            connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'reads'")
        try:
            grant_read(store, role)
            run_id = half_done(store, prepared)
            url = make_url(postgres_url).set(username=role, password="reads")
            with Database(url.render_as_string(hide_password=False), read_only=True) as reading:
                seen = scrape(reading)
        finally:
            with store.begin() as connection:
                connection.exec_driver_sql(f"DROP OWNED BY {role}")
                connection.exec_driver_sql(f"DROP ROLE {role}")
    assert seen["up",] == 1 and seen["run_items", run_id, "failed"] == 1
    assert not [key for key in seen if key[0] in ("run_failed_items", "messages_refused")]


def test_two_groups_newly_flagged_are_a_metric_of_the_run() -> None:
    from transexplain.reports.run_metrics import _counts
    from transexplain.reports.sections.item_fates import Counts
    from transexplain.reports.sections.previous_run import Previous
    from transexplain.reports.verdict_words import VerdictChange

    def change(group: str, *, before: bool, now: bool) -> VerdictChange:
        return VerdictChange(
            group=group,
            mention_before="changes" if before else "open",
            mention_after="changes" if now else "does not change",
            outcome_before="open",
            outcome_after="differ" if now and not before else "open",
            turned=False,
        )

    changes = (
        change("a", before=False, now=True), change("b", before=False, now=True),
        change("c", before=True, now=False), change("d", before=True, now=True),
    )  # fmt: skip
    previous = Mock(spec=Previous, verdicts=changes, common=8, other_prediction=2)
    counts = Counts(
        total=8, done=8, failed=0, pending=0, dead_shards=0, truncated=0, labelled=0, correct=0,
        accuracy=None,
    )  # fmt: skip
    summary = Mock(previous=previous, counts=counts)
    found = {one.name: one.value for one in _counts(summary)}
    assert (found["groups_newly_flagged"], found["groups_no_longer_flagged"]) == (2, 1)
    assert found["changed_predictions"] == 0.25
    summary.previous = None
    assert "groups_newly_flagged" not in {one.name for one in _counts(summary)}
