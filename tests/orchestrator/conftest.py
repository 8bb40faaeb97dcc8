"""Real brokers for the tests of dispatch and monitoring."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_keys import queue_name_of_test
from celery_fleets import forget_messages

from transexplain.settings import Settings


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "rabbitmq"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Of each broker, with queues of the test's own, which are deleted afterwards."""
    url = request.getfixturevalue("redis_url" if request.param == "redis" else "amqp_url")
    store = f"sqlite:///{tmp_path / 'store.db'}"
    fleet = Settings(database_url=store, broker_url=url, queue=queue_name_of_test())
    yield fleet
    forget_messages(fleet)
