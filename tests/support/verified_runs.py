"""Small real audits for the tests of `verify`, and ways to tamper with them."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_local
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.provenance.verification import Check, VerifyRequest
from transexplain.provenance.verify import verify
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

#: a small audit: 20 items in 3 shards, nothing measured beside
SMALL: dict[str, Any] = {"items": 20, "payload": "float16", "evaluation": {"items": 0}}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A finished run and where everything of it lies."""

    folder: Path
    url: str
    id: str

    def checks(self, url: str | None = None, **requested: Any) -> dict[str, Check]:
        """What `verify` says, by the name of the check."""
        with open_database(url or self.url) as db:
            found = list(verify(db, self.id, VerifyRequest(**({"items": 4} | requested))))
        by_name: dict[str, Check] = {}
        for one in found:
            assert one.name not in by_name, one
            by_name[one.name] = one
        return by_name

    def copy(self, to: Path) -> str:
        """URL of a copy of the (SQLite) store, to be tampered with."""
        with (
            closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as store,
            closing(sqlite3.connect(to)) as copy,
        ):
            store.backup(copy)
        return f"sqlite:///{to}"


def audited(folder: Path, url: str = "", *, processes: int = 1, **keys: Any) -> Run:
    """Make and run a small audit below `folder`."""
    settings = Settings(
        database_url=url or f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
    )
    spec = load_spec(make_audit(folder, **(SMALL | keys)))
    prepared = prepare_audit(spec, settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_local(db, run_id, settings, processes, model=prepared.model)
    return Run(folder=folder, url=settings.database_url, id=run_id)


def failed(checks: dict[str, Check]) -> list[str]:
    """Names of the checks that failed."""
    return [name for name, one in checks.items() if one.status == "FAIL"]


def flipped(data: bytes, place: int = -1) -> bytes:
    """The bytes with the lowest bit of one of them turned."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


@contextmanager
def tampered(path: Path, data: bytes) -> Iterator[None]:
    """The file with other bytes; put back afterwards."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def execute(url: str, statement: str, **values: Any) -> int:
    """Change rows behind the program's back; returns how many."""
    with Database(url) as db, db.begin() as connection:
        return connection.execute(text(statement), values).rowcount


def rows(url: str, statement: str, **values: Any) -> Sequence[Any]:
    """Read rows behind the program's back."""
    with Database(url) as db, db.read() as connection:
        return connection.execute(text(statement), values).all()


def change_plan(url: str, run_id: str, **keys: Any) -> None:
    """Change keys of the stored plan."""
    ((plan,),) = rows(url, "SELECT plan FROM run WHERE id = :id", id=run_id)
    changed = json.dumps({**json.loads(plan), **keys})
    assert execute(url, "UPDATE run SET plan = :plan WHERE id = :id", plan=changed, id=run_id) == 1
