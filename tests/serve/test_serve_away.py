"""Pages over PostgreSQL that goes away and comes back, and a fleet of which a worker is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line_here import run_here
from report_samples import biased_run, explained_text, save_last_shard, stored_run
from served_pages import every_page, listening, looked_at
from sqlalchemy import make_url, select
from starlette.testclient import TestClient
from tcp_proxy import TcpProxy
from tiny_audit import make_audit

from orchestrator.serve.links import link
from transexplain.reports.sql_results import write
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import shard

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Serve = Callable[..., TestClient]
ROOT = Path(__file__).resolve().parents[2]

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
        (link("runs", run_id, "items"), b"FROM result_part"),
        (link("runs", run_id, "items", sort="gap"), b"FROM result_part"),
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


@contextmanager
def worker(env: dict[str, str], folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process in a session of its own."""
    words = [sys.executable, "-m", "orchestrator.cli", "worker", "--threads", "1"]
    with (folder / f"{name}.log").open("wb") as log:
        started = subprocess.Popen(
            words, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                started.terminate()
                started.wait(timeout=60)


def _killed_at_work(store: Database, run_id: str, victim: subprocess.Popen[bytes]) -> str:
    """Kill the worker while it holds a shard; the name by which the store knows it."""
    query = select(shard.c.worker).where(shard.c.run_id == run_id, shard.c.state == "running")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        os.killpg(victim.pid, signal.SIGSTOP)
        with store.read() as connection:
            held = list(connection.scalars(query))
        if held:
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
            return str(held[0])
        os.killpg(victim.pid, signal.SIGCONT)
        time.sleep(0.05)
    raise AssertionError("it never held a shard")


@pytest.mark.redis
@pytest.mark.timeout(300)
def test_progress_of_a_fleet_goes_on_when_a_worker_is_killed(
    browser: "Browser",
    tmp_path: Path,
    postgres_url: str,
    store: Database,
    redis_url: str,
    queue_name: str,
) -> None:
    """One worker is killed with a shard in its hands; another one does that shard again."""
    spec = str(make_audit(tmp_path, items=400))
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(tmp_path / "snapshots"),
        "TRANSEXPLAIN_DATABASE_URL": postgres_url,
        "TRANSEXPLAIN_BROKER_URL": redis_url,
        "TRANSEXPLAIN_QUEUE": queue_name,
        "TRANSEXPLAIN_LEASE_SECONDS": "8",
    }
    run_here(env, tmp_path, "submit", spec)
    run_id = runs.get(store, "latest").id
    with listening(postgres_url) as server, worker(env, tmp_path, "first") as first:
        page, complaints = looked_at(browser, server, link("runs", run_id))
        done = page.locator("#progress dd").first
        done.filter(has_text="of 400").wait_for()
        name = _killed_at_work(store, run_id, first)
        left = runs.progress(store, run_id).items_done
        assert left < 400
        fleet, _ = looked_at(browser, server, "/fleet")
        fleet.get_by_role("cell", name=name).first.wait_for()
        with worker(env, tmp_path, "second"):
            # what the first one had fetched is sent again
            run_here(env, tmp_path, "resume", run_id, "--queue")
            done.filter(has_text="400 of 400").wait_for(timeout=30_000)
        fleet.reload()
        assert "No worker holds a shard" in fleet.locator("main").inner_text()
        assert complaints == []
        page.reload()
        assert page.locator(".verdict").is_visible(), "the run is over, and has its results"
        page.context.close()
        fleet.context.close()
