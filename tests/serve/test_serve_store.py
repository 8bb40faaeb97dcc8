"""The store behind the pages: read and nothing else, away and back, and by a role without texts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from report_samples import biased_run
from sqlalchemy import text
from starlette.testclient import TestClient

from orchestrator.serve.links import link
from transexplain.errors import DatabaseError
from transexplain.reports.sql_results import write
from transexplain.store import browsing, runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.upkeep import grant_read

Serve = Callable[..., TestClient]


def refuse_writing(store: Database) -> None:
    with pytest.raises(DatabaseError, match=r"read.?only"), store.begin() as connection:
        connection.execute(text("UPDATE run SET name = 'changed'"))
    with pytest.raises(DatabaseError, match=r"read.?only"), store.read() as connection:
        connection.execute(text("DELETE FROM run"))


def test_sqlite_is_read_and_nothing_else(db: Database, run_id: str, tmp_path: Path) -> None:
    with open_database(f"sqlite:///{db.path}", read_only=True) as store:
        assert runs.get(store, run_id).id == run_id
        refuse_writing(store)
        with store.read() as connection:
            connection.execute(text("PRAGMA query_only = OFF"))
            with pytest.raises(DatabaseError, match="readonly"), store.translated():
                connection.execute(text("DELETE FROM run"))
    absent = tmp_path / "absent.db"
    with pytest.raises(DatabaseError):
        open_database(f"sqlite:///{absent}", read_only=True)
    with pytest.raises(DatabaseError), Database(f"sqlite:///{absent}", read_only=True).read():
        pass
    assert not absent.exists()


def test_sqlite_by_an_address_of_its_own_and_an_odd_name(tmp_path: Path, db: Database) -> None:
    odd = tmp_path / "a %41 b.db"
    assert db.path is not None
    odd.write_bytes(db.path.read_bytes())
    for url in (f"sqlite:///file:{db.path}?uri=true", f"sqlite:///{quote(str(odd))}"):
        with Database(url, read_only=True) as store:
            assert browsing.list_page(store) == []
            refuse_writing(store)


def test_a_store_that_is_away_is_said_and_comes_back(
    client: TestClient, db: Database, run_id: str
) -> None:
    assert db.path is not None
    db.close()
    away = db.path.with_suffix(".away")
    db.path.rename(away)
    page = client.get(link("runs", run_id), headers={"Accept": "text/html"})
    assert page.status_code == 503 and "database does not answer" in page.text
    assert page.headers["retry-after"] and str(db.path) not in page.text
    assert client.get("/runs.json").json()["error"]
    assert not db.path.exists()
    away.rename(db.path)
    assert client.get(link("runs", run_id)).status_code == 200


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


#: what takes much memory, or seconds to import
HEAVY = {"torch", "scipy", "celery", "altair"}


@pytest.mark.exhaustive
def test_the_verb_serves_without_heavy_libraries_and_ends_by_sigterm(
    db: Database, run_id: str
) -> None:
    port, program = (
        free_port(),
        (
            "import sys\n"
            "from orchestrator.cli import main\n"
            f"try:\n    main()\nfinally:\n    print({HEAVY} & set(sys.modules), file=sys.stderr)\n"
        ),
    )
    words = ["serve", "--db", f"sqlite:///{db.path}", "--port", str(port)]
    running = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert running.stdout is not None
        assert f"http://127.0.0.1:{port}/" in running.stdout.readline()
        paths = ("/runs", link("runs", run_id, "items", "row-0"), link("runs", run_id), "/fleet")
        for path in paths:
            found = json.loads(_read(f"http://127.0.0.1:{port}{path}.json"))
            assert found
    finally:
        running.send_signal(signal.SIGTERM)
        _, complaints = running.communicate(timeout=30)
    assert running.returncode == 0, complaints
    assert complaints == "set()\n"


def _read(url: str) -> bytes:
    for _ in range(100):
        try:
            with urllib.request.urlopen(url) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_postgresql_by_a_role_without_texts_and_with_them(postgres_url: str, serve: Serve) -> None:
    role = f"reader_{os.getpid()}"
    with open_database(postgres_url, upgrade=True) as owner:
        run_id = biased_run(owner)
        assert write(owner, run_id)
        with owner.begin() as connection:
            connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        try:
            grant_read(owner, role)
            url = postgres_url.replace("//postgres@", f"//{role}@")
            _without_texts(serve(url=url), run_id)
            with Database(url, read_only=True) as store:
                refuse_writing(store)
            grant_read(owner, role, texts=True)
            _with_texts(serve(url=url), run_id)
            with Database(postgres_url, read_only=True) as store:
                refuse_writing(store)
        finally:
            with owner.begin() as connection:
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))


def _addresses(run_id: str) -> dict[str, str]:
    return {
        "items": link("runs", run_id, "items", text="was"),
        "item": link("runs", run_id, "items", "row-0"),
        "entity": link("runs", run_id, "groups", "anns", "entities", "Ann"),
        "failures": link("runs", run_id, "failures"),
        "class": link("runs", run_id, "classes", "positive"),
        "run": link("runs", run_id),
        "group": link("runs", run_id, "groups", "anns"),
        "runs": "/runs?model=m",
        "audit": link("audits", "sample audit"),
        "compare": link("compare", a=run_id, b=run_id),
        "fleet": "/fleet",
        "schedules": "/schedules",
    }


def _without_texts(client: TestClient, run_id: str) -> None:
    for name, address in _addresses(run_id).items():
        page = client.get(address, headers={"Accept": "text/html"})
        assert page.status_code == 200, (name, page.text)
        says = "Texts are not readable" in page.text
        assert says == (name in ("items", "item", "entity", "failures", "class", "run")), name
        assert "Ann was bad" not in page.text


def _with_texts(client: TestClient, run_id: str) -> None:
    for name, address in _addresses(run_id).items():
        page = client.get(address, headers={"Accept": "text/html"})
        assert page.status_code == 200 and "not readable" not in page.text, name
    found = client.get(_addresses(run_id)["items"], headers={"Accept": "application/json"}).json()
    assert len(found["items"]) == 36


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_a_plan_that_sql_cannot_read_is_no_obstacle_to_a_search(postgres_url: str) -> None:
    """PostgreSQL reads no JSON in which any string has a NUL."""
    with open_database(postgres_url, upgrade=True) as db:
        run_id = biased_run(db)
        with db.begin() as connection:
            connection.execute(
                text("UPDATE run SET plan = replace(CAST(plan AS text), :of, :by)::json"),
                {"of": '"text"', "by": '"te\\u0000xt"'},
            )
            connection.execute(text("DELETE FROM run_result"))
        assert browsing.list_page(db, model="no such model") == []
        assert run_id in [one.id for one in browsing.list_page(db)]
