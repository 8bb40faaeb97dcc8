"""The store behind the pages: read and nothing else, away and back, and by a role without texts."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from report_samples import biased_run, explained_text, save_last_shard, stored_run
from served_pages import addresses, every_page, listening, looked_at
from serving import told
from sqlalchemy import make_url, text
from starlette.testclient import TestClient
from tcp_proxy import TcpProxy

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


def shown(client: TestClient, run_id: str, *, texts: bool) -> None:
    """Every page is there, and says so where a role may not read texts."""
    for name, address in addresses(run_id).items():
        if name in ("live_report", "clusters"):  # made by a process of their own
            continue
        page = client.get(address, headers={"Accept": "text/html"})
        assert page.status_code == 200, (name, page.text)
        hides = name in ("items", "item", "entity", "failures", "class", "run")
        assert ("Texts are not readable" in page.text) == (hides and not texts), name
        assert texts or "Ann was bad" not in page.text
    if texts:
        assert len(told(client, link("runs", run_id, "items", text="was"))["items"]) == 36


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
            shown(serve(url=url), run_id, texts=False)
            with Database(url, read_only=True) as store:
                refuse_writing(store)
            grant_read(owner, role, texts=True)
            shown(serve(url=url), run_id, texts=True)
            with Database(postgres_url, read_only=True) as store:
                refuse_writing(store)
        finally:
            with owner.begin() as connection:
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))


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


@pytest.fixture
def store(postgres_url: str) -> Iterator[Database]:
    with open_database(postgres_url, upgrade=True) as database:
        yield database


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[TcpProxy]:
    place = make_url(postgres_url)
    found = TcpProxy(place.host or "127.0.0.1", place.port or 5432)
    yield found
    found.refuse()


def through(url: str, proxy: TcpProxy) -> str:
    place = make_url(url).set(host="127.0.0.1", port=proxy.port)
    return place.render_as_string(hide_password=False)


def status(client: TestClient, address: str) -> int:
    answer = client.get(address, headers={"Accept": "text/html"})
    if answer.status_code == 503:
        assert "database does not answer" in answer.text and answer.headers["retry-after"]
    code: int = answer.status_code
    return code


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_every_page_says_503_and_works_again(
    postgres_url: str, store: Database, proxy: TcpProxy, serve: Serve
) -> None:
    run_id = biased_run(store)
    assert write(store, run_id)
    client = serve(url=through(postgres_url, proxy))
    addresses = [one for one in every_page(run_id) if one != "/none"]
    assert {status(client, one) for one in addresses} == {200}
    proxy.refuse()
    assert {one: status(client, one) for one in addresses} == dict.fromkeys(addresses, 503)
    probes = [client.get(path).status_code for path in ("/readyz", "/healthz")]
    assert probes == [503, 200]
    proxy.listen()
    assert {status(client, one) for one in addresses} == {200}
    proxy.hang_up = True  # something listens, and ends every connection
    proxy.cut()
    assert {one: status(client, one) for one in addresses} == dict.fromkeys(addresses, 503)
    proxy.hang_up = False
    assert {status(client, one) for one in addresses} == {200}
    proxy.cut()  # idle connections die; the next page takes new ones
    assert {status(client, one) for one in addresses} == {200}


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_a_connection_that_dies_in_the_middle_of_a_statement(
    postgres_url: str, store: Database, proxy: TcpProxy, serve: Serve
) -> None:
    run_id = biased_run(store)
    assert write(store, run_id)
    client = serve(url=through(postgres_url, proxy))
    for address, words in (
        ("/", b"FROM run"),
        (link("runs", run_id, "items"), b"FROM item"),
        (link("runs", run_id, "items", sort="gap"), b"FROM attribution"),
        (link("runs", run_id, "classes", "positive"), b"FROM shard_aggregate"),
    ):
        proxy.cut_at(words)
        assert status(client, address) == 503, address
        assert status(client, address) == 200, address


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_a_page_that_is_open_goes_on_when_the_database_is_back(
    browser: Any, postgres_url: str, store: Database, proxy: TcpProxy
) -> None:
    words = [explained_text(number, "good tea", "positive") for number in range(14)]
    run_id = stored_run(store, words, leave=1)
    with listening(through(postgres_url, proxy)) as server:
        page, _ = looked_at(browser, server, link("runs", run_id))
        progress = page.locator("#progress")
        progress.get_by_text("of 14").wait_for()
        with page.expect_response(lambda one: one.status == 503, timeout=20_000):
            proxy.refuse()
        save_last_shard(store, run_id, words)
        assert "7" in progress.inner_text()
        proxy.listen()
        page.locator("#progress dd").first.filter(has_text="14 of 14").wait_for(timeout=20_000)
        page.context.close()
