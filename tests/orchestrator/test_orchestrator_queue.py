"""Following a run on the queue: re-sent hints, the missing worker, the end."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_audit import make_audit

from orchestrator.dispatch import queue
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import open_database
from workers.shard_work import Workbench


def test_hints_are_sent_again_until_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker loses every first message; the second round of hints is worked on."""
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

        def deliver(_: Settings, of_run: str, indices: list[int]) -> None:
            rounds.append(list(indices))
            for index in indices if len(rounds) > 1 else ():
                bench.work(of_run, index)

        monkeypatch.setattr(queue, "send_hints", deliver)
        queue.follow(db, run_id, settings, counted.append, warnings.append)
        assert runs.get(db, run_id).state == "done"
    assert rounds[:2] == [[0, 1, 2, 3, 4]] * 2
    assert sum(counted) == 40
    assert "transexplain worker" in warnings[0]
