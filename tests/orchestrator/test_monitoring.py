"""What a scrape says of runs, workers, devices, queues, failures and schedules, from SQL."""

import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import pytest
import redis
from chaos_groups import wait_for
from fresh_stores import fresh_store
from gallery import prepare as prepared_audit
from metric_series import series
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from report_samples import biased_run
from serving import acting_client
from sqlalchemy import insert, make_url, text, update
from tcp_proxy import TcpProxy
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.cli.status_commands import WorkRate
from orchestrator.dispatch import queue
from orchestrator.monitoring import probes
from orchestrator.monitoring.fleet_metrics import (
    METRICS,
    MOST_RUNS,
    MOST_WORKERS,
    PREFIX,
    FleetCollector,
)
from orchestrator.monitoring.metrics_http import monitoring_app, serve_metrics
from orchestrator.monitoring.probes import BrokerQueues, Readiness, database_check
from orchestrator.plan import PreparedAudit
from transexplain.errors import BrokerError, ConfigurationError
from transexplain.settings import Settings
from transexplain.store import fleet_state, queueing, runs, schedules, shards
from transexplain.store.database import Database
from transexplain.store.fleet_state import SHARD_SECONDS
from transexplain.store.result_tables import run_metric, run_result
from transexplain.store.revisions import open_database
from transexplain.store.schema import failure as failure_table
from transexplain.store.schema import run as run_table
from transexplain.store.schema import schedule as schedule_table
from transexplain.store.schema import schedule_fire
from transexplain.store.schema import shard as shard_table
from transexplain.types.device_time import STAGES
from workers.app import make_app
from workers.claim_to_commit import Workbench
from workers.queue_names import queues_for

Scraped = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedAudit:
    folder = tmp_path_factory.mktemp("audit")
    lines = {2: '{"text": "", "label": "good"}'}
    return prepared_audit(make_audit(folder, lines=lines, evaluation={"items": 0}), folder)


@pytest.fixture
def db(any_db: Database) -> Database:
    return any_db


def scrape(db: Database) -> Scraped:
    """Every sample as Prometheus reads it, by name and the values of its labels in the table's
    order."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db, "q"))
    text = generate_latest(registry).decode()
    order = {name: labels for metric in METRICS for name, labels in series(metric).items()}
    found: Scraped = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert set(sample.labels) == set(order[sample.name]), sample
            values = (sample.labels[label] for label in order[sample.name])
            found[sample.name.removeprefix(PREFIX), *values] = sample.value
    return found


def half_done(db: Database, prepared: PreparedAudit) -> str:
    """Five shards: two saved (one item failed), one held, one whose lease ran out, one free."""
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = Workbench(db=db, settings=Settings(), name="first")
    bench.models.put(prepared.plan.model, prepared.model)
    assert [bench.work(run_id, index) for index in (0, 1)] == ["done", "done"]
    assert shards.claim(db, run_id, "second", 60.0, 2)
    assert shards.claim(db, run_id, "[lost]", 0.0, 3)
    return run_id


def test_a_run_is_told_by_worker_device_queue_and_kind_of_failure(
    db: Database, prepared: PreparedAudit
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
    assert queueing.pause(db, run_id)
    waiting = scrape(db)
    assert waiting["run_paused", run_id] == 1
    assert ("run_idle_seconds", run_id) not in waiting, "it was asked to wait"
    runs.cancel(db, run_id)
    ended = scrape(db)
    assert ended["run_shards", run_id, "cancelled"] == 3
    assert ("run_idle_seconds", run_id) not in ended, "it is over"
    assert ended["queue_shards", "q.text.cpu", "queued"] == 0


def test_histograms_are_over_the_saved_shards(db: Database, prepared: PreparedAudit) -> None:
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


def test_series_are_bounded_and_vanish_with_their_runs(
    db: Database, prepared: PreparedAudit
) -> None:
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
            {"run_id": ids[-1], "idx": n, "item_id": str(n), "shard": 5, "kind": f"kind-{n % 23}",
             "error": "it failed"}
            for n in range(46)
        ]  # fmt: skip
        connection.execute(insert(failure_table), kinds)
    seen = scrape(db)
    told = {key[1] for key in seen if key[0] == "run_info"}
    assert len(told) == MOST_RUNS and told < set(ids), "an old one has none"
    assert ids[-1] in told, "the newest come first"
    assert seen["runs_left_out",] == 3
    workers = {key[2] for key in seen if key[0] == "worker_shards_total"}
    assert len(workers) == MOST_WORKERS and "w0000" in workers, "those last heard of"
    failed = {key[2]: n for key, n in seen.items() if key[0] == "run_failed_items"}
    assert len(failed) == 21 and sum(failed.values()) == 46 and failed["other"] == 6


def planned(db: Database, name: str, cron: str = "* * * * *") -> None:
    schedules.add(db, schedules.Planned(name=name, cron=cron, time_zone="UTC", spec={}))


def fired(db: Database, prepared: PreparedAudit, name: str, at: float, **metrics: float) -> str:
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


def test_a_schedule_that_missed_its_time_is_overdue(db: Database, prepared: PreparedAudit) -> None:
    planned(db, "often")
    planned(db, "rare", "0 3 1 1 *")
    planned(db, "paused")
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


def test_a_schedule_says_what_its_last_finished_run_found(
    db: Database, prepared: PreparedAudit
) -> None:
    planned(db, "often")
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


Get = Callable[[str], tuple[int, str]]


def asked(db: Database, *more: Callable[[], None], within: float = 5.0) -> Get:
    """A client of the metrics server, without a port."""
    checks = [database_check(db), *more]
    app = monitoring_app(FleetCollector(db, "q"), Readiness(checks, within=within))

    def get(path: str) -> tuple[int, str]:
        found: list[str] = []
        environ: dict[str, object] = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
        setup_testing_defaults(environ)
        body = b"".join(app(environ, lambda status, _: found.append(status)))  # type: ignore[arg-type,return-value]
        return int(found[0].split()[0]), body.decode()

    return get


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request looks anew."""
    monkeypatch.setattr("orchestrator.monitoring.probes._FRESH", 0.0)


def test_a_good_server_is_alive_and_ready_has_three_paths_and_its_port(db: Database) -> None:
    by_wsgi = asked(db)
    assert by_wsgi("/healthz") == (200, "alive\n")
    assert by_wsgi("/readyz") == (200, "ready\n")
    code, body = by_wsgi("/metrics")
    assert code == 200 and "transexplain_up 1.0" in body
    assert by_wsgi("/")[0] == 200, "as before"
    assert by_wsgi("/metrics/")[0] == by_wsgi("/healthz.json")[0] == by_wsgi("/secret")[0] == 404
    app = monitoring_app(FleetCollector(db, "q"), Readiness([database_check(db)]))
    server = serve_metrics(app, host="127.0.0.1", port=0)
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert answer.read() == b"ready\n"
        with pytest.raises(ConfigurationError, match="--host"):
            serve_metrics(app, host="127.0.0.1", port=server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def test_tables_of_another_version_are_not_ready_and_the_log_says_why(
    db: Database, at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    by_wsgi = asked(db)
    caplog.set_level(logging.INFO, "orchestrator.monitoring.probes")
    assert by_wsgi("/readyz")[0] == 200
    with db.begin() as connection:
        known = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    for _ in range(3):
        assert by_wsgi("/readyz") == (503, "not ready\n")
    assert by_wsgi("/healthz") == (200, "alive\n"), "it need not be restarted"
    assert len(caplog.records) == 1 and "another TransExplain" in caplog.text
    with db.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": known})
    assert by_wsgi("/readyz") == (200, "ready\n")
    assert caplog.records[-1].getMessage() == "ready again"


def test_a_broker_counts_where_it_is_asked(db: Database, at_once: None) -> None:
    answers = [True, False, True]

    def broker() -> None:
        if not answers.pop(0):
            raise BrokerError("broker redis://:secret@host cannot be reached")

    get = asked(db, broker)
    assert [get("/readyz")[0] for _ in range(3)] == [200, 503, 200]


def test_many_requests_cost_one_look() -> None:
    looks: list[float] = []
    readiness = Readiness([lambda: looks.append(time.monotonic())])
    threads = [threading.Thread(target=readiness.ready) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert 1 <= len(looks) < 5, "a second each"


def test_a_look_that_hangs_holds_up_nobody_and_others_begin_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.monitoring.probes._HUNG", 0.02)
    monkeypatch.setattr("orchestrator.monitoring.probes._FRESH", 0.0)
    released, looks = threading.Event(), []

    def hangs() -> None:
        looks.append(1)
        released.wait(60)

    readiness = Readiness([hangs], within=0.05)
    assert not any(readiness.ready() for _ in range(8))
    assert len(looks) == 4, "no more hang at once"
    released.set()
    wait_for(readiness.ready, "a look that ends", 60)


def test_a_database_that_goes_away_freezes_and_comes_back(
    postgres_url: str, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy; the server says so, and recovers by itself."""
    monkeypatch.setattr("orchestrator.monitoring.probes._HUNG", 0.1)
    url = make_url(postgres_url)
    open_database(postgres_url, upgrade=True).close()
    with TcpProxy(url.host or "127.0.0.1", url.port or 5432) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        with closing(Database(through)) as store:
            get = asked(store, within=1.0)
            assert get("/readyz") == (200, "ready\n")
            proxy.refuse()
            assert get("/readyz") == (503, "not ready\n")
            assert get("/metrics")[1].split()[-2:] == ["transexplain_up", "0.0"]
            assert get("/healthz") == (200, "alive\n")
            proxy.listen()
            assert get("/readyz") == (200, "ready\n")
            proxy.freeze()
            assert get("/readyz") == (503, "not ready\n"), "in a second"
            proxy.thaw()
            assert get("/readyz") == (200, "ready\n")


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = WorkRate()
    assert rate.note(10.0, 100) == 10.0, "one look: the mean"
    assert rate.note(20.0, 100) == 5.0, "nothing yet: still the mean"
    assert rate.note(30.0, 300) == 10.0
    for second in range(40, 130, 10):
        latest = rate.note(float(second), 300 + (second - 30) * 2)
    assert latest == 2.0, "the fast beginning is more than a minute ago"


def test_the_verb_ends_with_the_run(tmp_path: Path, prepared: PreparedAudit) -> None:
    url = f"sqlite:///{tmp_path / 'verb.db'}"
    with open_database(url, upgrade=True) as db:
        runs.cancel(db, runs.create(db, prepared.plan, prepared.shards))
    printed = CliRunner().invoke(app, ["status", "latest", "--watch", "--db", url])
    assert printed.exit_code == 0, printed.output
    assert "cancelled" in printed.output


def test_the_status_of_all_names_refused_messages(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'verb.db'}"
    with open_database(url, upgrade=True) as db:
        assert "refused" not in CliRunner().invoke(app, ["status", "--db", url]).output
        fleet_state.add(db, {"json": 3, "arguments": 2})
    printed = CliRunner().invoke(app, ["status", "--db", url])
    assert printed.exit_code == 0, printed.output
    assert printed.output.endswith("messages that workers refused: 2 arguments, 3 json\n")


NOWHERE = "redis://:secret@127.0.0.1:1/0"


@pytest.fixture
def file_db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker on a busy machine is not away."""
    monkeypatch.setattr(probes, "_WITHIN", 60.0)


def scrape_with_broker(file_db: Database, settings: Settings, broker: BrokerQueues | None) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(file_db, settings.queue, broker))
    return generate_latest(registry).decode()


@pytest.mark.exhaustive
def test_messages_that_wait_are_counted_and_no_queue_is_made(
    file_db: Database, settings: Settings
) -> None:
    names = queues_for(settings)
    text, image = f"{settings.queue}.text.cpu", f"{settings.queue}.image.gpu"
    assert queue.depths(settings, names) == dict.fromkeys(names, 0)
    assert there(settings) == [], "asking makes none"
    queue.send_messages(settings, "run", range(3), text)
    queue.send_messages(settings, "run", [7], image)
    found = {**dict.fromkeys(names, 0), text: 3, image: 1}
    assert queue.depths(settings, names) == found
    assert BrokerQueues(settings).waiting() == found
    seen = scrape_with_broker(file_db, settings, BrokerQueues(settings))
    assert f'transexplain_queue_messages{{queue="{text}"}} 3.0' in seen
    assert f'transexplain_queue_messages{{queue="{image}"}} 1.0' in seen
    assert "transexplain_broker_up 1.0" in seen and "transexplain_up 1.0" in seen


def there(settings: Settings) -> list[str]:
    """Keys at Redis, or queues at RabbitMQ, that begin with the test's own name."""
    if settings.broker_url.startswith("redis"):
        with redis.Redis.from_url(settings.broker_url) as client:
            return [key.decode() for key in client.scan_iter(f"{settings.queue}:*.text.*")]
    found = []
    for name in queues_for(settings):
        with make_app(settings).connection_for_write() as connection:
            try:
                connection.default_channel.queue_declare(name, passive=True)
            except connection.channel_errors:
                continue
            found.append(name)
    return found


def test_a_broker_that_is_away_costs_its_number_alone(
    file_db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.monitoring.probes")
    settings = Settings(broker_url=NOWHERE, queue="q")
    run_id = biased_run(file_db, leave=2)
    broker = BrokerQueues(settings)
    seen = scrape_with_broker(file_db, settings, broker)
    assert "transexplain_broker_up 0.0" in seen and "transexplain_queue_messages{" not in seen
    assert 'transexplain_queue_shards{queue="q.text.cpu",state="queued"} 2.0' in seen
    with (
        Database(f"sqlite:///{file_db.path}", read_only=True) as reading,
        acting_client(reading, queue="q", broker=broker) as client,
    ):
        answer = client.get("/fleet")
        found = client.get("/fleet.json").json()
    assert answer.status_code == 200 and "The broker does not answer" in answer.text
    assert run_id in answer.text and found["broker"] is False
    (row,) = found["queues"]
    assert (row["queue"], row["shards_queued"], row["messages"]) == ("q.text.cpu", 2, None)
    assert len(caplog.records) == 1 and "secret" not in caplog.text + answer.text


@pytest.mark.exhaustive
def test_a_broker_that_hangs_is_not_waited_for(
    file_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection and says nothing: the scrape is over while the look still waits."""
    monkeypatch.setattr(probes, "_WITHIN", 0.2)
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        broker = BrokerQueues(Settings(broker_url=url, queue="q"))
        seen = scrape_with_broker(file_db, Settings(queue="q"), broker)
        looks = [one for one in threading.enumerate() if one not in before]
        assert "transexplain_up 1.0" in seen and "transexplain_broker_up 0.0" in seen
        assert len(looks) == 1
    looks[0].join(60)
