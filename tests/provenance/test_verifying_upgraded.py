"""Runs across the upgrade to parts, and runs whose damaged part is computed again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from old_rows import save_as_rows
from tiny_audit import make_audit
from typer.testing import CliRunner
from verified_runs import SMALL, Run, audited, execute, failed, flipped, rows

from orchestrator.cli.command_line import app
from orchestrator.dispatch.local import run_local
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.auditing.explained_shard import explain_shard
from transexplain.explaining.item_loop import Silent
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import results, revisions, runs, shards
from transexplain.store.database import Database
from transexplain.store.recorded import recorded_shards
from transexplain.store.revisions import open_database
from transexplain.store.schema import result_part


def contents(db: Database, run_id: str) -> list[Any]:
    """Everything that a run holds, without its id."""
    attributions = [
        (replace(one, relevance=one.relevance[:0]), one.relevance.tobytes())
        for one in results.iter_attributions(db, run_id)
    ]
    return [
        list(results.iter_items(db, run_id)),
        [
            ([getattr(one, name) for name in one.__dataclass_fields__ if name != "relevance"], blob)
            for one, blob in attributions
        ],
        list(results.iter_mentions(db, run_id)),
        list(results.aggregates(db, run_id)),
        results.accuracy(db, run_id),
    ]


def test_a_run_begun_before_the_upgrade_is_resumed_after_it(tmp_path: Path) -> None:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", snapshot_dir=tmp_path / "snapshots"
    )
    prepared = prepare_audit(load_spec(make_audit(tmp_path, **SMALL)), settings)
    with Database(settings.database_url) as db:
        revisions.upgrade(db)
        run_id = runs.create(db, prepared.plan, prepared.shards)
        claim = shards.claim(db, run_id, "before", 60.0)
        assert claim is not None
        made = explain_shard(prepared.plan, claim.shard, prepared.model, observer=Silent())
        save_as_rows(db, claim, made)
        revisions.downgrade(db, "0011")
    with open_database(settings.database_url, upgrade=True) as db:
        run_local(db, run_id, settings, 1, model=prepared.model)
        with db.read() as connection:
            held = connection.execute(result_part.select()).all()
        assert {row.shard for row in held} == {one.index for one in prepared.shards} - {
            claim.shard.index
        }
        again = runs.create(db, prepared.plan, prepared.shards)
        run_local(db, again, settings, 1, model=prepared.model)
        assert contents(db, run_id) == contents(db, again)
        one, other = summarise(db, run_id), summarise(db, again)
        assert (one.counts, one.classes, one.groups) == (other.counts, other.classes, other.groups)
        assert one.gallery == other.gallery
    found = Run(folder=tmp_path, url=settings.database_url, id=run_id).checks(items=20)
    assert {check.status for check in found.values()} == {"PASS"}, found


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The command line with the store of a run, somewhere else."""
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, list(words))
        return done.exit_code, done.output

    return invoke


@pytest.mark.exhaustive
def test_resume_mends_a_damaged_part_of_a_run_that_was_over(
    tmp_path: Path, call: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = audited(tmp_path)
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", str(tmp_path / "snapshots"))
    with open_database(run.url) as db:
        before = [one.digest for one in recorded_shards(db, run.id)]
    ((blob,),) = rows(run.url, "SELECT payload FROM result_part WHERE shard = 1")
    damage = flipped(blob, len(blob) // 3)
    execute(run.url, "UPDATE result_part SET payload = :blob WHERE shard = 1", blob=damage)
    found = run.checks()
    assert "damaged: part 0, rows 8 to 15" in found["stored results"].text
    code, printed = call("verify", run.id, "--db", run.url, "--items", "0")
    assert code == 1 and f"transexplain resume {run.id}" in printed
    code, printed = call("report", run.id, "--db", run.url, "-o", "reports")
    assert code == 0 and "8 items are damaged" in " ".join(printed.split())
    code, printed = call("resume", run.id, "--db", run.url, "-o", "reports")
    assert code == 0, printed
    assert "damaged" not in printed
    assert not failed(run.checks(items=20))
    with open_database(run.url) as db:
        assert [one.digest for one in recorded_shards(db, run.id)] == before
