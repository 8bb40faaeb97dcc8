"""Runs whose damaged part is computed again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner
from verified_runs import audited, execute, failed, flipped, rows

from orchestrator.cli.command_line import app
from transexplain.store.noteworthy import recorded_shards
from transexplain.store.revisions import open_database


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
    assert "part 0 (rows 8 to 15) is damaged" in found["stored results"].text
    code, printed = call("verify", run.id, "--db", run.url, "--items", "0")
    assert code == 1 and f"transexplain resume {run.id}" in printed
    code, printed = call("report", run.id, "--db", run.url, "-o", "reports")
    assert code == 3 and "1 shard (8 items)" in " ".join(printed.split())
    code, printed = call("resume", run.id, "--db", run.url, "-o", "reports")
    assert code == 0, printed
    assert "damaged" not in printed
    assert not failed(run.checks(items=20))
    with open_database(run.url) as db:
        assert [one.digest for one in recorded_shards(db, run.id)] == before
