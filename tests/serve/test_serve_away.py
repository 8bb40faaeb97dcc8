"""Pages over PostgreSQL that goes away and comes back."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from report_samples import biased_run, explained_text, save_last_shard, stored_run
from served_pages import every_page, listening, looked_at
from sqlalchemy import make_url
from starlette.testclient import TestClient
from tcp_proxy import TcpProxy

from orchestrator.serve.links import link
from transexplain.reports.sql_results import write
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Serve = Callable[..., TestClient]

pytestmark = [pytest.mark.exhaustive, pytest.mark.postgres]


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
    proxy.listen()
    assert {status(client, one) for one in addresses} == {200}
    proxy.hang_up = True  # something listens, and ends every connection
    proxy.cut()
    assert {one: status(client, one) for one in addresses} == dict.fromkeys(addresses, 503)
    proxy.hang_up = False
    assert {status(client, one) for one in addresses} == {200}
    proxy.cut()  # idle connections die; the next page takes new ones
    assert {status(client, one) for one in addresses} == {200}


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


def test_a_page_that_is_open_goes_on_when_the_database_is_back(
    browser: "Browser", postgres_url: str, store: Database, proxy: TcpProxy
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
