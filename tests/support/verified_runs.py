"""Small real audits for the tests of `verify`, and ways to tamper with them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gallery import Audit, run_audit
from sqlalchemy import text
from tiny_audit import make_audit

from transexplain.provenance.verification import VerifiedLine
from transexplain.store.database import Database

#: a small audit: 20 items in 3 shards, nothing measured beside
SMALL: dict[str, Any] = {"items": 20, "evaluation": {"items": 0}}


def audited(folder: Path, url: str = "", *, processes: int = 1, **keys: Any) -> Audit:
    """Make and run a small audit below `folder`."""
    return run_audit(make_audit(folder, **(SMALL | keys)), folder, url=url, processes=processes)


def failed(checks: dict[str, VerifiedLine]) -> list[str]:
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
