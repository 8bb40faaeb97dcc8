"""`db delete-run` and `db prune` leave nothing of a run, and nothing of another one is touched."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select, update
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli import app
from transexplain.data.snapshot import delete_data
from transexplain.errors import ConfigurationError
from transexplain.files import remote_files
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from transexplain.store.schema import metadata
from transexplain.store.schema import run as runs_table

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", "sqlite:///store.db")

    def call(*words: str) -> str:
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return call


def audited(call: Call, folder: Path, *, items: int = 12) -> str:
    spec = make_audit(folder, items=items, evaluation={"items": 0}, sink="lake/{run}")
    call("run", str(spec), "--out", "reports")
    with open_database("sqlite:///store.db") as db:
        return runs.get(db, "latest").id


def rows_of(run_id: str) -> dict[str, int]:
    """Table -> rows that are of this run."""
    with open_database("sqlite:///store.db") as db, db.read() as connection:
        counts = {}
        for table in metadata.tables.values():
            column = table.c.id if table is runs_table else table.c.get("run_id")
            if column is not None:
                query = select(func.count()).select_from(table).where(column == run_id)
                counts[table.name] = connection.execute(query).scalar_one()
        return counts


def files_of(run_id: str) -> set[str]:
    """Files of the working directory whose path names this run."""
    return {str(path) for path in Path().rglob("*") if path.is_file() and run_id in str(path)}


def snapshots() -> set[str]:
    return {path.suffix for path in Path(".transexplain/snapshots").iterdir()}


def test_a_run_is_deleted_with_its_files_and_data(call: Call, tmp_path: Path) -> None:
    first, second = (audited(call, tmp_path) for _ in range(2))
    kept = rows_of(second)
    printed = call("db", "delete-run", first, "--yes", "--out", "reports")
    assert f"deleted run {first} with 12 items" in printed
    assert "deleted the data" not in printed, "the second run reads them, too"
    assert not any(rows_of(first).values())
    assert files_of(first) == set()
    assert rows_of(second) == kept and kept["attribution"] == 24
    assert f"reports/tiny-{second}.html" in files_of(second)
    printed = call("db", "delete-run", "latest", "--keep-report", "--yes", "--out", "reports")
    assert "deleted the data" in printed
    assert snapshots() == set(), "neither data nor what points to them"
    assert {Path(file).parent.name for file in files_of(second)} == {"reports"}


def test_no_file_but_a_snapshot_is_deleted(call: Call, tmp_path: Path) -> None:
    """A plan that somebody changed may name any file."""
    run_id = audited(call, tmp_path)
    snapshot = next(Path(".transexplain/snapshots").glob("*.parquet"))
    mine = tmp_path / "mine" / snapshot.name
    mine.parent.mkdir()
    mine.write_text("not yours")
    with open_database("sqlite:///store.db") as db, db.begin() as connection:
        plan = connection.execute(select(runs_table.c.plan)).scalar_one()
        plan["dataset"]["snapshot"] = str(mine)
        connection.execute(update(runs_table).values(plan=plan))
    printed = call("db", "delete-run", run_id, "--yes")
    assert mine.exists() and snapshot.exists() and "deleted the data" not in printed


def test_snapshots_in_an_object_store_are_deleted_below_its_folder() -> None:
    settings = Settings(snapshot_url="memory://deleting/snapshots/")
    kept = ("memory://deleting/snapshots/b-8/0.parquet", "memory://deleting/other/0.parquet")
    gone = [f"memory://deleting/snapshots/a-8/{row}.parquet" for row in (0, 8)]
    for url in (*kept, *gone):
        remote_files.write(url, b"data")
    assert delete_data("memory://deleting/snapshots/a-8", settings)
    for place in ("memory://deleting/other", "memory://deleting/snapshots/../other", "s3://x/y"):
        assert not delete_data(place, settings), place
        assert not delete_data(place, Settings()), place
    assert {file.url for file in remote_files.under("memory://deleting")} == set(kept)


def test_a_run_that_goes_on_is_refused(call: Call, tmp_path: Path) -> None:
    run_id = audited(call, tmp_path)
    with open_database("sqlite:///store.db") as db, db.begin() as connection:
        connection.execute(update(runs_table).values(state="running", finished=None))
    with pytest.raises(ConfigurationError, match=f"transexplain cancel {run_id}"):
        call("db", "delete-run", run_id, "--yes")
    assert rows_of(run_id)["item"] == 12


def test_runs_under_retention_or_hold_stay(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (audited(call, tmp_path, items=items) for items in (3, 4, 5))
    with open_database("sqlite:///store.db") as db, db.begin() as connection:
        for run_id, days in ((first, 20), (second, 20), (third, 2)):
            over = update(runs_table).where(runs_table.c.id == run_id)
            connection.execute(over.values(finished=runs_table.c.finished - 86_400 * days))
    monkeypatch.setenv("TRANSEXPLAIN_RETENTION", "10d")
    with pytest.raises(ConfigurationError, match=r"10 days \(TRANSEXPLAIN_RETENTION\)"):
        call("db", "delete-run", third, "--yes")
    words = ("db", "prune", "--older-than", "1d", "--yes", "--out", "reports")
    printed = call(*words, "--hold", first)
    assert "runs stay for 10 days" in printed
    assert printed.count("deleted the data") == 1 and f"deleted reports/tiny-{second}" in printed
    assert [bool(rows_of(one)["item"]) for one in (first, second, third)] == [True, False, True]
    call(*words)
    assert [bool(rows_of(one)["item"]) for one in (first, second, third)] == [False, False, True]
    assert json.loads(Path(f"reports/tiny-{third}.json").read_text())["audited"]["run_id"] == third


def test_a_wrong_retention_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_RETENTION", "a year")
    with pytest.raises(ConfigurationError, match=r"TRANSEXPLAIN_RETENTION='a year'.*90d"):
        call("db", "check")
