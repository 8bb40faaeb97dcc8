"""Eight questions to the pages of `transexplain serve`, answered by a stranger: clicks and seconds.

    python -m benchmarks.serve_tasks [--url http://127.0.0.1:8321] [--rows N]

The stranger is Chromium under Playwright. It begins every question at the start page, follows
links that can be seen and nothing else, and reads the answer from the page it ends on. Without
`--url` a run is made up in a file (`benchmarks.report_at_scale`), another after it and a
schedule, and served.
Aim: no question takes more than three clicks.
"""

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report_at_scale import made_up_database, store
from benchmarks.report_rows import Corpus
from benchmarks.services import end_cleanly
from benchmarks.serving import PORT, served
from transexplain.reports.sql_results import write
from transexplain.store import schedules
from transexplain.store.revisions import open_database

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
MOST_CLICKS = 3
Step = Callable[["Page"], "Locator"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a stranger wants to know."""

    asked: str
    steps: Sequence[Step]  #: the link to follow on each page
    answer: Step  #: the element that says it


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """How a stranger came to an answer."""

    answer: str
    clicks: int
    seconds: float


def _newest_run(page: "Page") -> "Locator":
    return page.locator("main table tbody tr").first.get_by_role("link").first


def _worst_group(page: "Page") -> "Locator":
    return page.locator("#groups tbody tr").first.get_by_role("link").first


def _driver(page: "Page") -> "Locator":
    return page.locator("#drivers tbody tr").first.get_by_role("link").first


def _named(name: str) -> Step:
    return lambda page: page.get_by_role("link", name=name).first


def _row(of: str) -> Step:
    return lambda page: page.locator(f"{of} tbody tr").first


QUESTIONS: Sequence[Question] = (
    Question(asked="which group is worst", steps=(_newest_run,), answer=_row("#groups")),
    Question(asked="who drives it", steps=(_newest_run, _worst_group), answer=_row("#drivers")),
    Question(
        asked="an example",
        steps=(_newest_run, _worst_group, _driver),
        answer=lambda page: page.locator("#mentions .hits li").first,
    ),
    Question(
        asked="is the method faithful",
        steps=(_newest_run,),
        answer=lambda page: page.locator("#faithfulness"),
    ),
    Question(
        asked="what failed",
        steps=(_newest_run, _named("Failures")),
        answer=lambda page: page.locator("main p").first,
    ),
    Question(
        asked="what changed since the last run",
        steps=(_newest_run, _named("What changed since")),
        answer=lambda page: page.locator("#changed"),
    ),
    Question(
        asked="when is the next one",
        steps=(_named("Schedules"),),
        answer=lambda page: page.locator("main section p").first,
    ),
    Question(
        asked="how fast is the fleet",
        steps=(_named("Fleet"),),
        answer=lambda page: page.locator(".figures div", has_text="Rate"),
    ),
)


def ask(page: "Page", start: str, question: Question) -> Answered:
    """Go from the start page to the answer; a link that cannot be seen is an error."""
    begun, clicks = time.perf_counter(), 0
    page.goto(start)
    for step in question.steps:
        link = step(page)
        link.wait_for(state="visible")
        link.click()
        page.wait_for_load_state()
        clicks += 1
    found = question.answer(page)
    found.wait_for(state="visible")
    words = " ".join(found.inner_text().split())
    return Answered(answer=words, clicks=clicks, seconds=time.perf_counter() - begun)


@contextmanager
def opened_page() -> Iterator["Page"]:
    """A page in Chromium, of which `TRANSEXPLAIN_TEST_CHROMIUM` says where it is."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("TRANSEXPLAIN_TEST_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser.new_page()
        browser.close()


def answer_all(start: str) -> None:
    """Print a line for each question."""
    with opened_page() as page:
        print(f"{'question':<34}{'clicks':>8}{'seconds':>9}   answer (aim: {MOST_CLICKS} clicks)")
        for one in QUESTIONS:
            found = ask(page, start, one)
            print(f"{one.asked:<34}{found.clicks:>8}{found.seconds:>9.2f}   {found.answer[:120]}")


@contextmanager
def made_up_store(options: argparse.Namespace) -> Iterator[str]:
    """The URL of a file with two runs of one audit and a schedule."""
    corpus = Corpus(
        items=options.rows, entities=options.entities, groups=options.groups, size="auto"
    )
    with made_up_database(options) as url:
        first = store(url, corpus, options.pool, options.processes)
        second = store(url, corpus, options.pool, options.processes, first)
        with open_database(url) as db:
            for run_id in (first, second):
                if not write(db, run_id):
                    raise SystemExit("the run has no rows for SQL")
            schedules.add(
                db,
                schedules.Planned(name="nightly", cron="0 3 * * *", time_zone="UTC", spec={}),
            )
        yield url


def main() -> None:
    """Parse, make up and serve a store unless one is served, ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="of the start page of a server; default: one of its own")
    parser.add_argument("--rows", type=int, default=20_000, help="items of each run")
    parser.add_argument("--entities", type=int, default=400)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--pool", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    options.sqlite = True
    end_cleanly()
    if options.url:
        answer_all(options.url)
        return
    with made_up_store(options) as url, served(url):
        answer_all(f"http://127.0.0.1:{PORT}/")


if __name__ == "__main__":
    main()
