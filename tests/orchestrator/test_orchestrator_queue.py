"""Following a run on the queue: messages sent again, the missing worker, the end."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_audit import make_audit

from orchestrator.dispatch import queue
from orchestrator.dispatch import queue as sweep
from orchestrator.dispatch.queue import follow
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.errors import BrokerError
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from workers.claim_to_commit import Workbench


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
        monkeypatch.setattr(queue, "_POLL", 0.2)
        monkeypatch.setattr(queue, "depth", lambda *_: 0)
        monkeypatch.setattr(queue, "send_messages", deliver)
        follow(db, run_id, settings, Reports(items=counted.append, wait=warnings.append))
        assert runs.get(db, run_id).state == "done"
    assert rounds == [[0, 1, 2, 3, 4]] * 3
    assert sum(counted) == 40
    assert any("transexplain worker" in warning for warning in warnings)
    assert any("cannot be reached" in warning for warning in warnings)
