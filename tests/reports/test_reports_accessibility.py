"""Pages as axe-core sees them: no fault that it calls serious or critical, light or dark."""

from dataclasses import replace
from typing import Any

import pytest
from browser_pages import LoadedPage, LoadPage
from gallery import Gallery
from report_samples import biased_run, explained_text, stored_run

from transexplain.analysis.groups.matching_sheet import precisions
from transexplain.reports import EVALUATION_REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import redacted, summarise
from transexplain.store.database import Database

pytestmark = pytest.mark.exhaustive

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
GRAVE = ("serious", "critical")
#: axe takes the places that the browser guesses for articles out of sight for their real ones
WHOLE = ".item{content-visibility:visible!important}"


def faults(found: LoadedPage) -> list[tuple[str, str]]:
    """(rule, element) of every grave fault, with everything unfolded."""
    from axe_playwright_python.sync_playwright import Axe

    page = found.page
    page.add_style_tag(content=WHOLE)
    page.locator("details").evaluate_all("all => all.forEach(one => (one.open = true))")
    drawing = page.evaluate("() => typeof window.vegaEmbed") == "function"  # else they are still
    for chart in page.locator(".chart:visible").all() if drawing else ():
        chart.scroll_into_view_if_needed()
        chart.locator("xpath=self::*[contains(@class,'drawn')]").wait_for()
    answer: dict[str, Any] = Axe().run(page).response
    return [
        (one["id"], node["html"][:200])
        for one in answer["violations"]
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_of_texts(db: Database, load_page: LoadPage, scheme: str) -> None:
    checked = precisions([("anns", True), ("anns", False)])
    summary = summarise(db, biased_run(db, sensitivity=0.9), precisions=checked)
    assert faults(load_page(render_html(summary), color_scheme=scheme)) == []
    assert faults(load_page(render_html(redacted(summary)), color_scheme=scheme)) == []


@pytest.mark.parametrize("name", ["pictures", "mixed"])
def test_reports_of_other_kinds(gallery: Gallery, load_page: LoadPage, name: str) -> None:
    assert faults(load_page(gallery.page(name), color_scheme="dark")) == []


def test_an_evaluation(gallery: Gallery, load_page: LoadPage) -> None:
    with gallery["evaluation"].open() as db:
        summary = tabulate(db, gallery["evaluation"].id)
    assert faults(load_page(EVALUATION_REPORTS.load("html")(summary))) == []


def test_a_fault_would_be_found(gallery: Gallery, load_page: LoadPage) -> None:
    document = gallery.page("biased")
    spoiled = document.replace("<main>", '<main><img src="data:,"><p style="color:#ddd">pale</p>')
    found = {rule for rule, _ in faults(load_page(spoiled))}
    assert {"image-alt", "color-contrast"} <= found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_long_texts_are_shown_whole_and_what_was_not_read_can_be_read(
    db: Database, load_page: LoadPage, scheme: str
) -> None:
    text = "good tea and bad Bob " * 120
    explained = []
    for number in range(3):
        outcome, one = explained_text(number, text[:100], "positive", truncated=True)
        explained.append((replace(outcome, text=text), replace(one, text=text)))
    found = load_page(render_html(summarise(db, stored_run(db, explained))), color_scheme=scheme)
    assert found.page.locator(".tx-unread").count() == 3
    assert faults(found) == []
    shown = found.page.locator("article").first
    assert shown.evaluate("one => one.scrollHeight <= one.clientHeight + 1")
