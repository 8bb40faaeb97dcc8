"""The verbs of `transexplain db` as a person or a cron job calls them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import update
from store_samples import make_plan, make_result, make_shards
from typer.testing import CliRunner

from orchestrator.cli import app
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store import results, run_totals, runs, shards, upkeep
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import run as runs_table

DAY = 86_400.0


def call(url: str, *arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(
        app, ["db", *arguments, "--db", url], catch_exceptions=False, **options
    )


def worked(db: Database, days: float) -> str:
    """A run that is over for so many days."""
    run_id = runs.create(db, make_plan(), make_shards())
    while (claim := shards.claim(db, run_id, "w", 60)) is not None:
        results.save(db, claim, make_result(claim.shard))
    assert runs.finalise(db, run_id)
    with db.begin() as connection:
        connection.execute(
            update(runs_table)
            .where(runs_table.c.id == run_id)
            .values(finished=DatabaseTime() - days * DAY)
        )
    return run_id


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_sqlite_from_upgrade_to_backup(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="transexplain db upgrade"):
        call(url, "check")
    for verb in ("upgrade", "check"):
        assert "is at this version" in call(url, verb).output
    assert "no partitions" in call(url, "maintain").output
    with open_database(url) as db:
        old, young = worked(db, 91), worked(db, 1)
    copy = tmp_path / "copy.db"
    assert f"{copy}: 0." in call(url, "backup", str(copy)).output
    dry = call(url, "prune", "--older-than", "90d", "--dry-run").output
    assert f"1 runs with 12 items:\n  {old}  sample audit  over since" in dry
    assert "deleted" not in dry
    assert "deleted 1 runs with 12 items" in call(url, "prune", "--older-than", "90d", "-y").output
    assert "no run is that old" in call(url, "prune", "--older-than", "90d").output
    assert "before" in call(url, "vacuum").output
    for file, left in ((url, {young}), (f"sqlite:///{copy}", {old, young})):
        with open_database(file) as db:
            assert {one.id for one in runs.list_runs(db)} == left


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_prune_confirms_at_a_terminal(url: str, answer: str, stays: bool) -> None:
    with open_database(url, upgrade=True) as db:
        old = worked(db, 91)
    with mock.patch("orchestrator.cli.operator_commands.sys", mock.Mock(wraps=sys)) as here:
        here.stdin.isatty = lambda: True
        found = call(url, "prune", "--older-than", "12w", input=answer)
    assert "delete these 1 runs for good? [y/N]" in found.output
    with open_database(url) as db:
        assert [one.id for one in runs.list_runs(db)] == [old] * stays


def test_prune_refuses_without_a_terminal(url: str) -> None:
    with open_database(url, upgrade=True) as db:
        old = worked(db, 91)
    with pytest.raises(ConfigurationError, match=r"--yes.*--dry-run"):
        call(url, "prune", "--older-than", "36h")
    with open_database(url) as db:
        assert runs.get(db, "latest").id == old
    assert call(url, "prune", "--older-than", "36h", "--keep-last", "1", "--yes").exit_code == 0
    with open_database(url) as db:
        assert runs.get(db, "latest").id == old


@pytest.mark.parametrize("age", ["90", "d", "-1d", "1.5d", "3 months"])
def test_an_age_that_cannot_be_read(url: str, age: str) -> None:
    with pytest.raises(ConfigurationError, match="36h, 90d or 12w"):
        call(url, "prune", f"--older-than={age}", "--yes")


@pytest.mark.postgres
def test_postgresql_gets_its_partitions(postgres_url: str) -> None:
    assert "partitions made: 20" in call(postgres_url, "upgrade").output
    assert "every partition is there" in call(postgres_url, "maintain").output
    with open_database(postgres_url) as db:
        with db.read() as connection:
            assert len(upkeep.months(connection)) == 4
        with mock.patch.object(runs, "_new_id", return_value="20260105-00000000"):
            worked(db, 200)
    assert "partitions made: 202601" in call(postgres_url, "maintain").output
    found = call(postgres_url, "prune", "--older-than", "90d", "--yes").output
    assert "deleted 1 runs with 12 items\ndropped the partitions of 202601: 0." in found
    assert "after" in call(postgres_url, "vacuum").output
    with pytest.raises(ConfigurationError, match="pg_dump"):
        call(postgres_url, "backup", "copy.db")


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", [["resume"], ["retry"], ["retry", "--failed"]])
def test_a_run_with_aggregates_of_another_version_goes_on_with_nothing(
    url: str, tmp_path: Path, verb: list[str], request: pytest.FixtureRequest
) -> None:
    """Its saved aggregates cannot be read: that is reported before a shard is claimed."""
    main = request.getfixturevalue("call")
    with open_database(url, upgrade=True) as db:
        run_id = begun(db, version=1)
        code, printed = main(*verb, run_id, "--db", url, "--report-dir", str(tmp_path))
        assert code == 2
        for reported in (
            f"run {run_id} cannot go on",
            "of version 1",
            f"transexplain cancel {run_id}",
        ):
            assert reported in printed
        states = [(one.state, one.attempt) for one in shards.list_shards(db, run_id)]
        assert states == [("done", 1), ("queued", 0), ("queued", 0)]
    assert main("cancel", run_id, "--db", url)[0] == 0


def test_versions_of_aggregates_are_reported_by_their_beginning(url: str) -> None:
    with open_database(url, upgrade=True) as db:
        run_id = begun(db, version=1)
        assert run_totals.aggregate_versions(db, run_id) == {1}
        (claim,) = filter(None, [shards.claim(db, run_id, "w", 60)])
        many = {f"word{n}": [n, 1, n << 50, n] for n in range(20_000)}
        made = make_result(claim.shard)
        results.save(db, claim, replace(made, aggregate={"version": 12, "words": many}))
        assert run_totals.aggregate_versions(db, run_id) == {1, 12}
        assert run_totals.aggregate_versions(db, "nowhere") == frozenset()


def begun(db: Database, version: int) -> str:
    """A run with one of three shards saved by software that wrote aggregates of this version."""
    run_id = runs.create(db, make_plan(), make_shards())
    claim = shards.claim(db, run_id, "w", 60)
    assert claim is not None
    saved = {**ShardAggregate().to_json(), "version": version}
    results.save(db, claim, replace(make_result(claim.shard), aggregate=saved))
    return run_id
