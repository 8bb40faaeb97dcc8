"""Pages in Chromium as axe-core sees them, and what hostile names and a running run do there."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from browser_pages import ATTACKS, CHROMIUM, FLAGS
from report_samples import explained_text, stored_run

from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application
from orchestrator.serve.links import link
from transexplain.reports.sql_results import write
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.types.plans import ShardResult

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.exhaustive
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get(CHROMIUM) or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip(f"no Chromium: install it, or say where it is with {CHROMIUM}")
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def server(db: Database) -> Iterator[str]:
    """The address of a real server over the store."""
    with Database(f"sqlite:///{db.path}", read_only=True) as store, socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        config = uvicorn.Config(application(store, AccessRules()), log_level="error")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [port]})
        thread.start()
        while not running.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port.getsockname()[1]}"
        running.should_exit = True
        thread.join()


def looked_at(browser: "Browser", server: str, address: str, **settings: Any) -> tuple[Any, list]:
    """An open page, and what the browser complains about."""
    complaints: list[str] = []
    page = browser.new_context(**settings).new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None,
    )
    page.on(
        "request",
        lambda one: (
            None
            if one.url.startswith((server, "data:"))
            else complaints.append(f"asked for {one.url}")
        ),
    )
    page.goto(server + address)
    return page, complaints


def faults(page: Any) -> list[tuple[str, str]]:
    from axe_playwright_python.sync_playwright import Axe

    return [
        (one["id"], node["html"][:200])
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 400), ("dark", 400)]
)
def test_every_page_is_without_faults_and_fits(
    browser: "Browser", server: str, run_id: str, scheme: str, width: int
) -> None:
    below = ("groups", "classes", "items", "failures")
    addresses = ["/", "/fleet", "/schedules", "/compare", link("compare", a=run_id, b=run_id)]
    addresses += [link("runs", run_id), link("audits", "sample audit"), "/none"]
    addresses += [link("runs", run_id, *more) for more in ((below[2],), (below[3],))]
    addresses += [link("runs", run_id, "groups", "anns"), link("runs", run_id, "items", "row-0")]
    addresses += [link("runs", run_id, "groups", "anns", "entities", "Ann")]
    addresses += [link("runs", run_id, "classes", "positive")]
    for address in addresses:
        page, complaints = looked_at(
            browser,
            server,
            address,
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
        )
        assert faults(page) == [], address
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0, address
        assert complaints == [] or "404" in complaints[0], address
        page.context.close()


def test_attacks_run_nothing(browser: "Browser", server: str, db: Database) -> None:
    explained = []
    for number, attack in enumerate(ATTACKS):
        outcome, made = explained_text(
            number, f"good {attack}", "positive", raw_label=attack, meta={attack: attack}
        )
        explained.append((outcome, made))
    run_id = stored_run(db, explained, name=ATTACKS[0])
    assert write(db, run_id)
    for address in (
        *("/", link("runs", run_id), link("audits", ATTACKS[0])),
        link("runs", run_id, "items", text=ATTACKS[1]),
        *(link("runs", run_id, "items", f"row-{number}") for number in range(len(ATTACKS))),
        link("runs", run_id, "classes", ATTACKS[2]),
    ):
        page, complaints = looked_at(browser, server, address)
        assert page.evaluate("window.hacked") is None
        assert complaints == [] or "404" in complaints[0]
        page.context.close()


def test_a_search_by_keyboard(browser: "Browser", server: str, run_id: str) -> None:
    page, complaints = looked_at(browser, server, link("runs", run_id, "items"))
    page.get_by_label("Entity").focus()
    page.keyboard.type("Ben")
    page.keyboard.press("Enter")
    page.wait_for_url("**entity=Ben**")
    assert page.locator(".hits li").count() == 3 and complaints == []
    page.context.close()


@pytest.mark.parametrize("script", [True, False])
def test_progress_goes_on_while_one_looks(
    browser: "Browser", server: str, db: Database, script: bool
) -> None:
    words = [explained_text(number, "good tea", "positive") for number in range(14)]
    run_id = stored_run(db, words, leave=1)
    page, complaints = looked_at(browser, server, link("runs", run_id), java_script_enabled=script)
    progress = page.locator("#progress")
    assert "7 of 14" in progress.inner_text().replace("\n", " ")
    claim = shards.claim(db, run_id, "tester", 60.0)
    assert claim is not None
    rest = words[7:]
    made = ShardResult(
        shard=claim.shard,
        outcomes=tuple(one for one, _ in rest),
        attributions=tuple(one for _, one in rest),
        failures=(),
        mentions=(),
        aggregate={},
        seconds=0.1,
    )
    results.save(db, claim, made)
    assert runs.finalise(db, run_id)
    page.get_by_text("14 of 14").or_(page.locator("dd", has_text="14")).first.wait_for(
        timeout=20_000
    )
    page.wait_for_function("1") if script else None
    assert complaints == []
    page.context.close()
