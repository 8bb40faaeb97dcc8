"""Charts, clouds and the choice of a class in a real browser: no other script runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from browser_pages import ATTACKS, LoadedPage, LoadPage
from evaluation_samples import plan_of, scores, stored
from report_samples import CLASSES, explained_text, stored_run

from transexplain.reports import EVALUATION_REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.plans import ModelRef
from transexplain.types.scores import MetricSpec

pytestmark = pytest.mark.exhaustive

TEXTS = ("good Ann", "good tea", "bad Bob", "dull bad day", "good fine day", "bad tea")


def two_classes(db: Database, names: Sequence[str] = CLASSES, word: str = "", **plan: Any) -> str:
    """Every text explained for the class that the made-up model answers."""
    explained = []
    for index in range(24):
        outcome, one = explained_text(index, f"{TEXTS[index % 6]}{word}", None)
        place = CLASSES.index(outcome.predicted)
        outcome = replace(outcome, predicted=names[place])
        one = replace(one, target="predicted", class_name=names[place], class_index=place)
        explained.append((outcome, one))
    return stored_run(db, explained, targets=("predicted",), **plan)


def document_of(db: Database, **changes: Any) -> str:
    return render_html(summarise(db, two_classes(db, **changes)))


@pytest.fixture
def report(db: Database, load_page: LoadPage) -> LoadedPage:
    return load_page(document_of(db))


def shown_charts(found: LoadedPage) -> None:
    """Scroll to the charts that can be seen, and wait until they answer."""
    for chart in found.page.locator(".chart:visible").all():
        chart.scroll_into_view_if_needed()
        chart.locator("xpath=self::*[contains(@class,'drawn')]").wait_for()


def test_charts_become_interactive_and_load_nothing(report: LoadedPage) -> None:
    page = report.page
    page.get_by_role("combobox", name="Class").select_option("negative")
    shown_charts(report)
    assert page.locator(".chart:visible").count() == 3, "two of the class, one of conservation"
    assert page.locator(".chart .interactive svg:visible").count() == 3
    assert page.locator(".chart .still:visible").count() == 0
    assert page.locator(".chart[role=img][aria-label]").count() == 5  # of both classes
    assert report.complaints == [] and len(report.requests) == 1


def test_pointing_at_a_mark_shows_its_value(report: LoadedPage) -> None:
    page = report.page
    shown_charts(report)
    tip = page.locator("#vg-tooltip-element")
    assert not tip.is_visible()
    of_classes = page.locator(".class-block .chart:visible")
    mark = of_classes.nth(1).locator(".interactive .mark-symbol path").last
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    tip.wait_for()
    assert "mean of a position" in tip.inner_text() and "%" in tip.inner_text()
    of_classes.first.locator(".interactive .mark-symbol path").first.hover(force=True)
    page.wait_for_function(
        "() => document.querySelector('#vg-tooltip-element').innerText.includes('rarity')"
    )
    assert report.complaints == []


def test_ctrl_and_the_wheel_zoom_while_the_wheel_alone_scrolls(report: LoadedPage) -> None:
    page = report.page
    shown_charts(report)
    chart = page.locator(".chart:visible").first
    chart.scroll_into_view_if_needed()
    ticks = "axis => axis.innerHTML"
    axis = chart.locator(".interactive .role-axis").last
    before = axis.evaluate(ticks)
    chart.locator(".interactive svg").hover()
    page.mouse.wheel(0, -60)
    page.wait_for_timeout(200)
    assert axis.evaluate(ticks) == before
    chart.scroll_into_view_if_needed()
    chart.locator(".interactive svg").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_timeout(300)
    assert chart.locator(".interactive .role-axis").last.evaluate(ticks) != before
    assert report.complaints == []


def test_the_legend_lets_a_line_stand_out_by_keyboard(report: LoadedPage) -> None:
    report.page.get_by_role("combobox", name="Class").select_option("negative")
    shown_charts(report)
    figure = report.page.locator("figure:visible", has=report.page.locator(".legend"))
    buttons = figure.locator(".legend button")
    assert buttons.count() == 2
    buttons.nth(1).press("Enter")
    assert buttons.nth(1).get_attribute("aria-pressed") == "true"
    faint = figure.locator(".interactive .mark-line path[opacity='0.15']")
    faint.wait_for()
    assert faint.count() == 1
    buttons.nth(1).press("Space")
    report.page.wait_for_function(
        "() => !document.querySelector('.interactive path[opacity=\"0.15\"]')"
    )
    assert buttons.nth(1).get_attribute("aria-pressed") == "false"
    assert report.complaints == []


def test_one_class_is_seen_at_a_time(report: LoadedPage) -> None:
    page = report.page
    choice = page.get_by_role("combobox", name="Class")
    assert choice.locator("option").all_inner_texts() == ["all classes", "negative", "positive"]
    assert page.locator(".class-block:visible").count() == 2, "nothing is left out unasked"
    for name in ("negative", "positive"):
        choice.select_option(name)
        assert page.locator(".class-block:visible h3 bdi").all_inner_texts() == [name]
        for part in (".wordlists", ".cloud", ".rare", ".chart"):
            seen = f":is(.class-block, .class-part) {part}:visible"
            holders = page.locator(seen).evaluate_all(
                "all => all.map(one => one.closest('.class-block, .class-part').dataset.name)"
            )
            assert holders and set(holders) == {name}
        shown_charts(report)
    choice.focus()
    choice.press("Home")
    assert page.locator(".class-block:visible").count() == 2
    assert report.complaints == []


def test_paper_has_all_classes_and_still_pictures(report: LoadedPage) -> None:
    page = report.page
    shown_charts(report)
    page.emulate_media(media="print")
    assert page.locator(".class-block:visible").count() == 2
    assert page.locator(".chart .still svg:visible").count() == 5
    assert page.locator(".chart .interactive:visible").count() == 0
    assert page.locator(".hint:visible").count() == 0
    assert not page.locator(".class-switch").is_visible()
    assert page.locator(".cloud:visible").count() == 2


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_word_or_class_can_run_in_a_chart(
    db: Database, load_page: LoadPage, attack: str
) -> None:
    names = (f"no {attack}", f"yes {attack}")
    glued = "".join(attack.split())
    model = ModelRef(source="m", classes=names, digest="d")
    found = load_page(document_of(db, names=names, word=f" {glued} x{glued}", model=model))
    page = found.page
    page.get_by_role("combobox", name="Class").select_option(index=2)
    shown_charts(found)
    assert page.locator(".class-block:visible h3 bdi").inner_text() == names[1]
    words = page.locator(".class-block .chart:visible").first
    for mark in words.locator(".interactive .mark-symbol path").all():
        mark.dispatch_event("pointermove")
        mark.hover(force=True)
    page.wait_for_timeout(100)
    assert page.locator("#vg-tooltip-element.visible").count() == 1
    assert page.locator("#vg-tooltip-element :is(img, script, a)").count() == 0
    assert page.evaluate("() => typeof window.hacked") == "undefined"
    assert len(found.requests) == 1 and found.complaints == []


def test_the_curves_of_an_evaluation_are_interactive_too(db: Database, load_page: LoadPage) -> None:
    attack = ATTACKS[0]
    spec = MetricSpec(name="hiding", params={"shares": (0.1, 0.5), "baseline": "unk"})
    values = {"lrp": [0.1, 0.2, 0.3], attack: [0.4, 0.2, 0.1]}
    curves = [replace(one, curve=(one.value, one.value)) for one in scores("hiding", values)]
    summary = tabulate(db, stored(db, plan_of(list(values), spec), curves, 3))
    report = load_page(EVALUATION_REPORTS.load("html")(summary))
    shown_charts(report)
    page = report.page
    page.locator(".chart .interactive .mark-symbol path").last.hover(force=True)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert tip.locator("img").count() == 0
    assert page.locator(".legend button").count() == 2
    assert page.evaluate("() => typeof window.hacked") == "undefined"
    assert report.complaints == [] and len(report.requests) == 1
