"""Pages in Chromium as axe-core sees them, and what hostile names and a running run do there."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from browser_pages import ATTACKS, FLAGS, chromium
from report_samples import explained_text, save_last_shard, stored_run
from served_pages import WIDER, every_page, faults, listening, looked_at

from orchestrator.serve.access import AccessRules
from orchestrator.serve.links import link
from transexplain.reports.sql_results import write
from transexplain.store import schedules, shards
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.exhaustive
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")


#: how far a table of scores that does not scroll by itself reaches beyond the page's column
_OUT = """Math.max(0, ...[...document.querySelectorAll(":not(.scroll) > table.scores")].map(
  one => Math.floor(one.getBoundingClientRect().right
    - one.parentElement.getBoundingClientRect().right)))"""


@pytest.mark.parametrize(
    ("scheme", "width"),
    [("light", 1200), ("dark", 800), ("light", 400)],
)
def test_every_page_is_without_faults_and_fits(
    browser: "Browser", server: str, run_id: str, scheme: str, width: int
) -> None:
    for address in every_page(run_id):
        page, complaints = looked_at(
            browser,
            server,
            address,
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
        )
        assert faults(page) == [], address
        assert page.evaluate(WIDER) <= 0, address
        assert page.evaluate(_OUT) <= 0, address
        assert complaints == [] or "404" in complaints[0], address
        page.context.close()


def test_attacks_run_nothing(browser: "Browser", server: str, db: Database) -> None:
    """They are names of everything that has a name, on every page."""
    explained = []
    for number, attack in enumerate(ATTACKS):
        outcome, made = explained_text(
            number, f"good {attack} Ann", "positive", raw_label=attack, meta={attack: attack}
        )
        made = replace(made, item_id=attack, notes=(attack,))
        explained.append((replace(outcome, item_id=attack), made))
    failed = [ItemFailure(item_id="f", index=len(ATTACKS), kind=ATTACKS[3], message=ATTACKS[1])]
    groups = [EntityGroup(name=one, terms=("Ann", one)) for one in ATTACKS]
    made = [
        stored_run(db, explained, failed, groups=groups, name=ATTACKS[0], previous=before)
        for before in (None, None)
    ]
    working = stored_run(db, explained, failed, name=ATTACKS[1], shard_size=2, leave=1)
    assert all(write(db, one) for one in made)
    assert shards.claim(db, working, ATTACKS[0], 600.0)
    named = {"time_zone": "UTC", "spec": {}}
    schedules.add(db, schedules.Planned(name=ATTACKS[0], cron="0 3 * * *", **named))
    addresses = ["/", "/fleet", "/schedules", link("runs", working), link("compare", a=made[0])]
    addresses += [link("compare", a=made[0], b=made[1]), link("runs", made[0], "failures")]
    addresses.append(link("runs", made[0], "classes", "positive", "clusters"))
    for one in ATTACKS:
        addresses += every_page(
            made[0], group=one, entity="Ann", item=one, audit=ATTACKS[0], **{"class": one}
        )
        addresses.append(link("runs", made[0], "items", text=one, word=one, sort="word-share"))
        addresses.append(link("runs", made[0], "items", label=one))
    for address in dict.fromkeys(addresses):
        page, complaints = looked_at(browser, server, address)
        assert page.evaluate("window.hacked") is None, address
        assert complaints == [] or "404" in complaints[0], (address, complaints)
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
    save_last_shard(db, run_id, words)
    page.get_by_text("14 of 14").or_(page.locator("dd", has_text="14")).first.wait_for(
        timeout=20_000
    )
    page.wait_for_function("1") if script else None
    assert complaints == []
    page.context.close()


_WITHOUT_FILTERS = """() => document.querySelectorAll('#examples :is(.find, .count)')
    .forEach(one => one.remove())"""


@pytest.mark.parametrize("script", [True, False])
def test_every_page_is_painted_without_a_script(
    browser: "Browser", server: str, run_id: str, script: bool
) -> None:
    """The words that can be seen are the same, but for the filters of a report's examples."""
    for address in every_page(run_id):
        plain, _ = looked_at(browser, server, address, java_script_enabled=False)
        assert plain.locator("h1").is_visible() and plain.locator("main").is_visible(), address
        words = plain.locator("main").inner_text()
        assert words.strip(), address
        if script:
            page, _ = looked_at(browser, server, address)
            moving = address == "/schedules"
            page.evaluate(_WITHOUT_FILTERS)
            assert moving or page.locator("main").inner_text() == words, address
            page.context.close()
        plain.context.close()


_REACHABLE = """() => [...document.querySelectorAll(
    'a[href], button, input:not([type=radio]:not(:checked)), select, summary, [tabindex="0"]')]
    .filter(one => one.checkVisibility()).map((one, n) => { one.dataset.n = n; return n })"""
_FOCUSED = """() => { const one = document.activeElement, style = getComputedStyle(one);
    return [one.dataset.n ?? null, style.outlineStyle !== 'none' || style.boxShadow !== 'none'] }"""


def test_the_keyboard_reaches_everything(browser: "Browser", server: str, run_id: str) -> None:
    for address in every_page(run_id):
        page, _ = looked_at(browser, server, address)
        wanted = set(map(str, page.evaluate(_REACHABLE)))
        reached: set[str] = set()
        for _ in range(len(wanted) + 5):
            page.keyboard.press("Tab")
            number, seen = page.evaluate(_FOCUSED)
            if number is not None:
                assert seen, (address, number)
                reached.add(number)
        assert reached == wanted, address
        page.context.close()


def test_a_wrong_token_and_the_right_one(browser: "Browser", db: Database, run_id: str) -> None:
    token = "a-token-of-thirty-two-characters"
    with listening(f"sqlite:///{db.path}", AccessRules(token=token)) as server:
        page, _ = looked_at(browser, server, link("runs", run_id))
        assert page.url.startswith(f"{server}/login") and faults(page) == []
        assert run_id not in page.locator("main").inner_text()
        page.get_by_label("Token of this server").fill("wrong" * 8)
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("not the token").wait_for()
        assert run_id not in page.locator("body").inner_text()
        page.get_by_label("Token of this server").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_url(server + link("runs", run_id))
        assert run_id in page.locator("main").inner_text() + page.locator("header").inner_text()
        page.context.close()


@contextmanager
def another_site() -> Iterator[str]:
    """The address of a page of somebody else on this machine."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>other</title><p>other")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{other.server_port}"
        finally:
            other.shutdown()
            thread.join()


_FETCHED = """async address => { try { return await (await fetch(address)).text() }
    catch (error) { return String(error) } }"""
_FRAMED = """async address => { const frame = document.createElement('iframe');
    frame.src = address; document.body.append(frame);
    await new Promise(resolve => frame.onload = resolve); return frame.contentDocument === null }"""


def test_another_origin_reads_nothing(browser: "Browser", server: str, run_id: str) -> None:
    with another_site() as other:
        page, _ = looked_at(browser, other, "/")
        found = page.evaluate(_FETCHED, f"{server}/runs.json")
        assert "Failed to fetch" in found and run_id not in found
        assert page.evaluate(_FRAMED, f"{server}/")
        assert all(run_id not in frame.content() for frame in page.frames[1:])
        posted = page.request.post(f"{server}/runs", headers={"Origin": other})
        assert posted.status == 405
        page.context.close()


def test_a_name_that_was_led_here_is_refused(browser: "Browser", server: str, run_id: str) -> None:
    """DNS rebinding: the page of `evil.example`, whose address is now this machine's."""
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    other = browser.browser_type.launch(executable_path=chromium(), args=[*FLAGS, rule])
    page = other.new_page()
    answer = page.goto(server.replace("127.0.0.1", "evil.example"))
    assert answer is not None and answer.status == 421
    assert run_id not in page.content()
    other.close()
