"""Messages that wait at real brokers, as metrics and on the fleet's page; brokers that are away."""

import logging
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from fresh_stores import fresh_store
from prometheus_client import CollectorRegistry, generate_latest
from report_samples import biased_run
from serving import acting_client
from typer.testing import CliRunner

from orchestrator.dispatch import queue
from orchestrator.monitoring import probes
from orchestrator.monitoring.fleet_metrics import FleetCollector
from orchestrator.monitoring.probes import BrokerQueues
from transexplain.settings import Settings
from transexplain.store import queueing
from transexplain.store.database import Database
from workers.app import make_app
from workers.queue_names import queues_for

NOWHERE = "redis://:secret@127.0.0.1:1/0"


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "rabbitmq"])
def settings(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Of a real broker, with queues of the test's own, which are deleted afterwards."""
    url = request.getfixturevalue("redis_url" if request.param == "redis" else "amqp_url")
    made = Settings(broker_url=url, queue=f"te-test-{uuid.uuid4().hex[:10]}")
    yield made
    with make_app(made).connection_for_write() as connection:
        for name in queues_for(made):
            queue.depth(made, name)  # declares it, so that there is one to delete
            connection.default_channel.queue_purge(name)
            connection.default_channel.queue_delete(name)
            connection.default_channel.exchange_delete(name)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker on a busy machine is not away."""
    monkeypatch.setattr(probes, "_WITHIN", 60.0)


def scrape(db: Database, settings: Settings, broker: BrokerQueues | None) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db, settings.queue, broker))
    return generate_latest(registry).decode()


@pytest.mark.exhaustive
def test_messages_that_wait_are_counted_and_no_queue_is_made(
    db: Database, settings: Settings
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
    seen = scrape(db, settings, BrokerQueues(settings))
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


@pytest.mark.exhaustive
def test_the_fleet_page_has_them_beside_the_shards(db: Database, settings: Settings) -> None:
    run_id = biased_run(db, leave=2)
    name = f"{settings.queue}.text.cpu"
    other = f"{settings.queue}.image.gpu"
    queue.send_messages(settings, run_id, [1], name)
    queue.send_messages(settings, "elsewhere", [1, 2], other)
    broker = BrokerQueues(settings)
    with (
        Database(f"sqlite:///{db.path}", read_only=True) as reading,
        acting_client(reading, queue=settings.queue, broker=broker) as client,
    ):
        found = client.get("/fleet.json").json()
        page = client.get("/fleet").text
    nothing = {"shards_queued": 0, "shards_in_work": 0}
    assert found["broker"] is True
    assert found["queues"] == [
        {"queue": other, **nothing, "messages": 2},
        {"queue": name, "shards_queued": 2, "shards_in_work": 0, "messages": 1},
    ]
    assert name in page and "Messages at the broker" in page


def test_a_broker_that_is_away_costs_its_number_alone(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.monitoring.probes")
    settings = Settings(broker_url=NOWHERE, queue="q")
    run_id = biased_run(db, leave=2)
    broker = BrokerQueues(settings)
    seen = scrape(db, settings, broker)
    assert "transexplain_broker_up 0.0" in seen and "transexplain_queue_messages{" not in seen
    assert 'transexplain_queue_shards{queue="q.text.cpu",state="queued"} 2.0' in seen
    with (
        Database(f"sqlite:///{db.path}", read_only=True) as reading,
        acting_client(reading, queue="q", broker=broker) as client,
    ):
        answer = client.get("/fleet")
        found = client.get("/fleet.json").json()
    assert answer.status_code == 200 and "The broker does not answer" in answer.text
    assert run_id in answer.text and found["broker"] is False
    (row,) = found["queues"]
    assert (row["queue"], row["shards_queued"], row["messages"]) == ("q.text.cpu", 2, None)
    assert len(caplog.records) == 1 and "secret" not in caplog.text + answer.text


def test_without_a_broker_nobody_is_asked(db: Database) -> None:
    biased_run(db, leave=2)
    assert "transexplain_broker_up 0" not in (seen := scrape(db, Settings(queue="q"), None))
    assert "transexplain_broker_up 1" not in seen
    with (
        Database(f"sqlite:///{db.path}", read_only=True) as reading,
        acting_client(reading, queue="q") as client,
    ):
        found = client.get("/fleet.json").json()
        assert "No broker is asked" in client.get("/fleet").text
    assert found["broker"] is None and found["queues"][0]["messages"] is None


@pytest.mark.exhaustive
def test_a_broker_that_hangs_is_not_waited_for(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection and says nothing: the scrape is over while the look still waits."""
    monkeypatch.setattr(probes, "_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        seen = scrape(db, Settings(queue="q"), BrokerQueues(Settings(broker_url=url, queue="q")))
        looks = [one for one in threading.enumerate() if one.name == "bounded-look"]
        assert "transexplain_up 1.0" in seen and "transexplain_broker_up 0.0" in seen
        assert len(looks) == 1
    looks[0].join(60)


def test_a_paused_run_waits_by_request_and_is_no_alarm(db: Database) -> None:
    run_id = biased_run(db, leave=2)
    settings = Settings(queue="q")
    idle, paused = f'run_idle_seconds{{run="{run_id}"}}', f'run_paused{{run="{run_id}"}}'
    before = scrape(db, settings, None)
    assert idle in before and f"{paused} 0.0" in before
    assert queueing.pause(db, run_id)
    while_paused = scrape(db, settings, None)
    assert idle not in while_paused and f"{paused} 1.0" in while_paused
    assert f'run_age_seconds{{run="{run_id}"}}' in while_paused
    with (
        Database(f"sqlite:///{db.path}", read_only=True) as reading,
        acting_client(reading, queue="q") as client,
    ):
        for address in ("/fleet", f"/runs/{run_id}"):
            assert '<span class="tag">paused</span>' in client.get(address).text, address
    assert queueing.unpause(db, run_id)
    assert idle in scrape(db, settings, None)


def test_metrics_server_asks_the_broker_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[BrokerQueues | None] = []
    from orchestrator.cli.command_line import app
    from orchestrator.monitoring import fleet_metrics
    from transexplain.errors import ConfigurationError

    def keep(_db: Database, _queue: str, broker: BrokerQueues | None) -> None:
        asked.append(broker)
        raise ConfigurationError("that is all")

    monkeypatch.setattr(fleet_metrics, "FleetCollector", keep)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.delenv("TRANSEXPLAIN_BROKER_URL", raising=False)
    CliRunner().invoke(app, ["metrics-server"])
    CliRunner().invoke(app, ["metrics-server", "--broker"])
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", NOWHERE)
    CliRunner().invoke(app, ["metrics-server"])
    assert [one is not None for one in asked] == [False, True, True]
