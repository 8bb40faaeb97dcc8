"""A fleet whose queue is poisoned: all shards are done, no worker dies, the queue is empty."""

from pathlib import Path

import pytest
from poisoned_fleets import run_fleet


@pytest.mark.exhaustive
@pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])
def test_a_fleet_survives_a_poisoned_queue(
    broker: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_fleet(request.getfixturevalue(broker), tmp_path)
    with capsys.disabled():
        print(f"\n{broker}: {found}")  # noqa: T201 - the figures of this house's notes
    logs = "".join(log.read_text(encoding="utf-8") for log in tmp_path.glob("group-*.log"))
    assert found.deaths == 0, logs
    assert found.shards == {"done": 100}
    assert found.left == 0
    assert found.kinds >= 20
    assert found.sent.total() >= 100
    assert not found.executed
    assert found.refused == found.sent, "every bad message is counted once, for its reason"
    assert "Traceback" not in logs
