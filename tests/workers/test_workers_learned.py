"""A worker that cannot read the explainer of a run."""

from pathlib import Path
from typing import Any

import pytest
from learned_audits import explainer_for, learned
from sqlalchemy import text
from tiny_audit import make_audit

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from workers.claim_to_commit import Workbench


@pytest.mark.parametrize("kept", ["full", "none"])
def test_a_worker_without_the_file_says_so_and_gives_up(tmp_path: Path, kept: str) -> None:
    explainer = explainer_for(tmp_path)
    keys: dict[str, Any] = {"shard_size": 40, "max_attempts": 2, "store_text": kept}
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 's.db'}", snapshot_dir=tmp_path / "snapshots"
    )
    spec = make_audit(tmp_path, method=learned(explainer), evaluation={"items": 0}, **keys)
    prepared = prepare_audit(load_spec(spec), settings)
    explainer.unlink()
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        bench = Workbench(db=db, settings=settings)
        assert [bench.work(run_id) for _ in range(3)] == ["failed", "failed", "nothing"]
        assert len(bench.models) == 0, "no model was loaded for it"
    assert str(explainer) in error_of(settings)


def error_of(settings: Settings) -> str:
    with open_database(settings.database_url) as db, db.read() as connection:
        found = connection.execute(text("SELECT state, error FROM shard")).one()
    assert found.state == "dead"
    return str(found.error)
