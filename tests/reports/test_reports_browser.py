"""The report in a real browser: it searches, filters and sorts, and no text can act."""

from dataclasses import replace

import numpy as np
import pytest
from browser_pages import LoadedPage, LoadPage
from gallery import Gallery
from report_samples import ANNS, BOBS, explained_text, stored_run

from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup


def uneven_run(db: Database) -> str:
    """Names whose mentions differ, so that they can be ranked; a group too small to be compared."""
    explained = []
    for index in range(60):
        name = (*ANNS, *BOBS, "Zoe", "Zed", "Zach")[index % 15]
        outcome, one = explained_text(index, f"{name} was good today", None)
        stretched = one.relevance * np.float32(1.0 + 0.1 * (index * 7 % 11))
        explained.append((outcome, replace(one, relevance=stretched)))
    groups = {"anns": ANNS, "bobs": BOBS, "few": ("Zoe", "Zed", "Zach")}
    named = [EntityGroup(name=name, terms=terms) for name, terms in groups.items()]
    return stored_run(db, explained, groups=named)


@pytest.fixture
def uneven(db: Database, load_page: LoadPage) -> LoadedPage:
    return load_page(render_html(summarise(db, uneven_run(db))))


@pytest.fixture
def report(gallery: Gallery, load_page: LoadPage) -> LoadedPage:
    return load_page(gallery.page("biased"))


@pytest.mark.exhaustive
def test_searching_finds_words_in_any_order_and_case(report: LoadedPage) -> None:
    assert report.count == "36 of 36 examples"
    report.page.get_by_role("searchbox", name="Search").fill("BAD bob")
    assert report.count == f"{len(report.shown)} of 36 examples"
    texts = report.page.locator("article:visible .tx").all_text_contents()
    assert texts and set(texts) == {"Bob was bad today"}
    report.page.get_by_role("searchbox", name="Search").fill("row-7")
    assert report.shown == ["row-7"]
    assert " of " in report.page.locator("#examples h3:visible .soft").inner_text()
    report.page.get_by_role("searchbox", name="Search").fill("more characters")  # of the report
    assert report.shown == [] and report.count == "No example fits."
    assert report.page.locator("#examples .block:visible").count() == 0
    report.page.get_by_role("button", name="Clear").click()
    assert report.count == "36 of 36 examples"
    assert report.page.get_by_role("button", name="Clear").count() == 0
    assert report.complaints == []


@pytest.mark.exhaustive
def test_filters_narrow_together(report: LoadedPage) -> None:
    page = report.page
    page.get_by_role("combobox", name="Mentions", exact=True).select_option("anns")
    anns = set(report.shown)
    assert anns == {f"row-{n}" for n in range(36) if n % 12 < 6}
    page.get_by_role("combobox", name="Predicted", exact=True).select_option("negative")
    both = set(report.shown)
    assert both and both < anns
    assert both == {name for name in anns if int(name[4:]) % 3 == 0}
    assert page.locator("option[value=places]").count() == 0  # mentioned nowhere
    # all are right: nothing to choose
    assert page.get_by_role("combobox", name="Outcome", exact=True).count() == 0
    assert report.complaints == []


@pytest.mark.exhaustive
def test_wrong_and_unlabelled_items_are_distinguished(db: Database, load_page: LoadPage) -> None:
    labels = ["positive", "negative", None, "", "positive"]
    run = stored_run(db, [explained_text(n, "good", label) for n, label in enumerate(labels)])
    found = load_page(render_html(summarise(db, run)))
    expected = {"right": {"row-0", "row-4"}, "wrong": {"row-1", "row-3"}, "unlabelled": {"row-2"}}
    for outcome, ids in expected.items():
        found.page.get_by_role("combobox", name="Outcome", exact=True).select_option(outcome)
        assert set(found.shown) == ids
    found.page.get_by_role("combobox", name="Outcome", exact=True).select_option("any")
    found.page.get_by_role("combobox", name="Label", exact=True).select_option("")
    assert found.shown == ["row-3"]


def test_a_table_sorts_by_mouse_and_keyboard_and_back(uneven: LoadedPage) -> None:
    found = uneven
    table = "details:has(h3:text('Entities')) table.groups"
    as_reported = found.column(table, 1)
    head = found.page.locator(f"{table} th").first
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert found.column(table, 1) == sorted(as_reported)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert found.column(table, 1) == sorted(as_reported, reverse=True)
    head.get_by_role("button").press("Space")
    assert head.get_attribute("aria-sort") is None
    assert found.column(table, 1) == as_reported
    numbers = found.page.locator(f"{table} th", has_text="Mentions / items")
    numbers.get_by_role("button").click()
    assert numbers.get_attribute("aria-sort") == "descending"
    assert found.page.locator(f"{table} th[aria-sort]").count() == 1
    assert found.complaints == []


@pytest.mark.exhaustive
def test_numbers_sort_as_numbers_and_missing_ones_stay_last(uneven: LoadedPage) -> None:
    table = "#groups .relevance > table.groups"
    head = uneven.page.locator(f"{table} th", has_text="Difference")
    for way in ("descending", "ascending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == way
        values = uneven.page.locator(f"{table} td.c-diff").evaluate_all(
            "cells => cells.map(cell => cell.dataset.value)"
        )
        numbers = [float(one) for one in values if one]
        assert numbers == sorted(numbers, reverse=way == "descending") and numbers
        assert values[len(numbers) :] == [""] * (len(values) - len(numbers))
    assert "" in values


def test_the_policy_stops_any_other_script(gallery: Gallery, load_page: LoadPage) -> None:
    planted = "<script>window.hacked=1</script><img src='data:,' onerror='window.hacked=1'></body>"
    before, _, after = gallery.page("biased").rpartition("</body>")
    document = before + planted + after
    found = load_page(document)
    assert found.page.evaluate("() => typeof window.hacked") == "undefined"
    assert len(found.complaints) == 2
    assert all("Content Security Policy" in one for one in found.complaints)


@pytest.mark.exhaustive
def test_print_has_no_controls_and_opens_what_is_folded(report: LoadedPage) -> None:
    table = report.page.locator(".rarity").first
    assert table.is_visible()
    report.page.locator("summary:has(h3:text('Numbers by class'))").click()
    assert not table.is_visible()
    report.page.emulate_media(media="print", color_scheme="dark")
    report.page.set_viewport_size({"width": 680, "height": 900})  # A4 within its margins
    assert not report.page.locator(".find").is_visible()
    assert table.is_visible()
    heads = report.page.locator("table.groups th.c-diff").first
    assert heads.is_visible()  # tables stay tables, whatever the paper's width
    paper = report.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"


@pytest.mark.exhaustive
def test_one_explained_class_can_be_chosen(db: Database, load_page: LoadPage) -> None:
    explained = []
    for index in range(4):
        outcome, one = explained_text(index, f"good tea {index}", "positive")
        printed = ("positive", "negative", "it's <b>")[index % 3]
        explained.append((outcome, replace(one, class_name=printed)))
    found = load_page(render_html(summarise(db, stored_run(db, explained))))
    choice = found.page.get_by_role("combobox", name="Explained", exact=True)
    choice.select_option("it's <b>")
    assert found.shown == ["row-2"] and found.count == "1 of 4 examples"
    classes = found.page.locator("article [data-class]:visible").evaluate_all(
        "all => all.map(one => one.dataset.class)"
    )
    assert classes == ["it's <b>"]
    found.page.get_by_role("button", name="Clear").click()
    assert found.page.locator("article [data-class]:visible").count() == 4
    assert found.complaints == []


@pytest.mark.exhaustive
def test_words_can_be_drawn_on_the_scale_of_their_own_text(
    db: Database, load_page: LoadPage
) -> None:
    """A weak text is pale beside strong ones, and full on its own scale."""
    explained = [explained_text(n, "good tea", "positive") for n in range(12)]
    outcome, weak = explained_text(12, "good faint", "positive")
    explained.append((outcome, replace(weak, relevance=weak.relevance * np.float32(0.01))))
    found = load_page(render_html(summarise(db, stored_run(db, explained))))

    def opacities() -> list[float]:
        colours = found.page.locator(".tx .p").evaluate_all(
            "all => all.filter(one => one.textContent === 'good')"
            ".map(one => getComputedStyle(one).backgroundColor)"
        )
        return sorted(float(one.rstrip(")").split(",")[3]) for one in colours)

    shared = opacities()
    assert shared[0] == pytest.approx(0.72 * 0.01, abs=0.003)
    assert shared[-1] == pytest.approx(0.72, abs=0.01)
    found.page.get_by_role("radio", name="each its own").check()
    assert opacities() == pytest.approx([0.72] * len(shared), abs=0.01)
