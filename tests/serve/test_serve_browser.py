"""Pages in Chromium as axe-core sees them, and what hostile names and a running run do there."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from browser_pages import ATTACKS
from report_samples import explained_text, stored_run
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


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 400)])
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
    names = {"group": ATTACKS[1], "item": ATTACKS[2], "class": ATTACKS[3], "audit": ATTACKS[0]}
    addresses += every_page(made[0], entity="Ann", **names)
    for one in ATTACKS:
        addresses.append(link("runs", made[0], "items", one))
        addresses.append(link("runs", made[0], "items", text=one, word=one, sort="word-share"))
        addresses.append(link("runs", made[0], "items", label=one))
    for address in dict.fromkeys(addresses):
        page, complaints = looked_at(browser, server, address)
        assert page.evaluate("window.hacked") is None, address
        assert complaints == [] or "404" in complaints[0], (address, complaints)
        page.context.close()


_WITHOUT_FILTERS = """() => document.querySelectorAll('#examples :is(.find, .count)')
    .forEach(one => one.remove())"""


def test_every_page_is_painted_without_a_script(
    browser: "Browser", server: str, run_id: str
) -> None:
    """The words that can be seen are the same, but for the filters of a report's examples."""
    for address in every_page(run_id):
        plain, _ = looked_at(browser, server, address, java_script_enabled=False)
        assert plain.locator("h1").is_visible() and plain.locator("main").is_visible(), address
        words = plain.locator("main").inner_text()
        assert words.strip(), address
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
