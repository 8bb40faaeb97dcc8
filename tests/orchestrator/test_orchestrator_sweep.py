"""The sweep over real brokers: what was lost is sent again, once, and never too much of it."""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import kombu
import pytest
from store_samples import make_plan, make_result, make_shards
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.dispatch import queue
from transexplain.errors import BrokerError
from transexplain.settings import Settings
from transexplain.store import results, runs, shard_messages, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from workers.app import make_app
from workers.queue_names import queue_of


def rabbitmq_url() -> str:
    url = os.environ.get("TRANSEXPLAIN_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
    try:
        with kombu.Connection(url, connect_timeout=5) as connection:
            connection.connect()
    except OSError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no RabbitMQ reachable: {error}")
    return url


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "rabbitmq"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    broker = request.getfixturevalue("redis_url") if request.param == "redis" else rabbitmq_url()
    made = Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}",
        broker_url=broker,
        queue=f"te-test-{uuid.uuid4().hex[:10]}",
    )
    yield made
    forget(made)


def the_queue(settings: Settings) -> str:
    """Where messages for the runs of these tests go."""
    return queue_of(settings, make_plan())


def forget(settings: Settings) -> None:
    """Lose every message, and the queue with them."""
    with make_app(settings).connection_for_write() as connection:
        channel = connection.default_channel
        queue.depth(settings, the_queue(settings))  # declares it, so that there is one to delete
        channel.queue_purge(the_queue(settings))
        channel.queue_delete(the_queue(settings))
        channel.exchange_delete(the_queue(settings))


@pytest.fixture
def db(settings: Settings) -> Iterator[Database]:
    with open_database(settings.database_url, upgrade=True) as database:
        yield database


def test_the_queue_is_topped_up_to_what_waits(db: Database, settings: Settings) -> None:
    assert queue.depth(settings, the_queue(settings)) == 0
    assert queue.sweep(db, settings, every=0) == queue.SweepResult(sent=0, closed=())
    run_id = runs.create(db, make_plan(), make_shards())
    assert queue.sweep(db, settings, every=0) == queue.SweepResult(sent=3, closed=())
    assert queue.depth(settings, the_queue(settings)) == 3
    assert queue.sweep(db, settings, every=0) == queue.SweepResult(sent=0, closed=()), (
        "all are there"
    )
    forget(settings)
    assert shards.claim(db, run_id, "worker", 60.0, 0)
    assert queue.sweep(db, settings, every=0) == queue.SweepResult(sent=2, closed=())
    assert queue.depth(settings, the_queue(settings)) == 2


def test_never_more_than_the_bound(
    db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "BOUND", 5)
    runs.create(db, make_plan(), make_shards())
    runs.create(db, make_plan(80), make_shards(80))
    for sent in (5, 0, 0):
        assert queue.sweep(db, settings, every=0) == queue.SweepResult(sent=sent, closed=())
    assert queue.depth(settings, the_queue(settings)) == 5


def test_sweepers_at_once_send_once(db: Database, settings: Settings) -> None:
    runs.create(db, make_plan(), make_shards())
    with ThreadPoolExecutor(4) as pool:
        swept = [one for one in pool.map(lambda _: queue.sweep(db, settings), range(4)) if one]
    assert [one.sent for one in swept] == [3]
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
    assert queue.sweep(db, away) == queue.SweepResult(sent=0, closed=(run_id,)), "needs no broker"
    assert runs.get(db, run_id).state == "done"


def test_an_unreachable_broker_is_named_and_tried_again(db: Database, settings: Settings) -> None:
    run_id = runs.create(db, make_plan(), make_shards())
    away = replace(settings, broker_url="redis://:secret@127.0.0.1:1/0")
    with pytest.raises(BrokerError, match="TRANSEXPLAIN_BROKER_URL") as caught:
        queue.sweep(db, away, every=0)
    assert "secret" not in str(caught.value)
    assert shard_messages.take(db, [run_id], 1, patience=60) == {run_id: [0]}, (
        "no hint was noted as sent"
    )


def test_the_verb_says_what_it_did(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", settings.broker_url)
    monkeypatch.setenv("TRANSEXPLAIN_QUEUE", settings.queue)
    with open_database(settings.database_url, upgrade=True) as store:
        runs.create(store, make_plan(), make_shards())
    printed = [CliRunner().invoke(app, ["sweep", "--db", settings.database_url]) for _ in range(2)]
    assert [one.exit_code for one in printed] == [0, 0]
    assert "3 messages sent" in printed[0].stdout
    assert "another process" in printed[1].stdout


def broker_forgets(db: Database, settings: Settings) -> None:
    """Every message is lost, and a worker with them that had one in its hand."""
    runs.create(db, make_plan(), make_shards())
    assert queue.sweep(db, settings, every=0) is not None
    forget(settings)
    run_id = runs.get(db, "latest").id
    assert shards.claim(db, run_id, "gone", -1.0, 0), "its lease is over"
    queue.sweep(db, settings, every=0)
    assert queue.depth(settings, the_queue(settings)) == 3, "shards that nobody hears of"


def test_the_fleet_survives_a_broker_that_forgets(db: Database, settings: Settings) -> None:
    broker_forgets(db, settings)


def test_a_missing_sweep_is_caught(
    db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the script must fail without the safeguard."""
    monkeypatch.setattr(queue, "top_up", lambda *_, **__: 0)
    with pytest.raises(AssertionError, match="nobody hears of"):
        broker_forgets(db, settings)
