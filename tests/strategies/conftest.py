"""Runs to discover strategies in."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database, open_database

Audit = Callable[..., tuple[Database, str]]


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    """Runs a specification in this process: the store, and the run's id."""
    opened: list[Database] = []

    def audit(**keys: Any) -> tuple[Database, str]:
        folder = tmp_path_factory.mktemp("audited")
        settings = Settings(
            database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
        )
        prepared = prepare_audit(AuditSpec.model_validate(keys), settings)
        db = open_database(settings.database_url, upgrade=True)
        opened.append(db)
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, run_id, settings, model=prepared.model)
        return db, run_id

    yield audit
    for db in opened:
        db.close()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty SQLite database at the newest revision."""
    with open_database(f"sqlite:///{tmp_path / 'strategies.db'}", upgrade=True) as database:
        yield database
