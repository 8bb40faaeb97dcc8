"""Readability: colours of one meaning, nothing hidden, entities marked, plain words."""

import csv
import re
from importlib.resources import files
from pathlib import Path

import pytest
from report_samples import ANNS, BOBS, Visible, biased_run, explained_text, stored_run

from transexplain.reports.coloured_text import MentionMark, marked_html
from transexplain.reports.exports.export_run import export
from transexplain.reports.page import code, prose
from transexplain.reports.report_formats import document, render_html
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup
from transexplain.types.words import Span

MOST_FOLDED = 10


@pytest.fixture
def page(db: Database) -> str:
    return render_html(summarise(db, biased_run(db)))


def sheets() -> dict[str, str]:
    folder = files("transexplain.reports").joinpath("templates")
    return {
        one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".css")
    }


def test_nothing_is_folded_away_and_little_can_be(page: str) -> None:
    folded = re.findall(r"<details[^>]*>", page)
    assert 0 < len(folded) <= MOST_FOLDED
    assert all(" open" in one for one in folded)


def test_red_and_blue_mean_raising_and_lowering_only() -> None:
    """No other colour of a page is near them: in hue they are at 0 to 20 and 190 to 230 degrees."""
    found = "".join(sheets().values())
    taken = dict(re.findall(r"--(pos|neg|pos-soft|neg-soft):(#[0-9a-f]{6})", found))
    assert set(taken) == {"pos", "neg", "pos-soft", "neg-soft"}
    others = {
        (name, value)
        for name, value in re.findall(r"--([a-z0-9-]+):(#[0-9a-f]{6})", found)
        if name not in taken
    }
    assert len(others) > 20
    near = [one for one in others if _is_red_or_blue(one[1])]
    assert near == []


def _is_red_or_blue(value: str) -> bool:
    red, green, blue = (int(value[at : at + 2], 16) for at in (1, 3, 5))
    most, least = max(red, green, blue), min(red, green, blue)
    if most - least < 40:
        return False  # grey
    if most == red:
        hue = 60 * ((green - blue) / (most - least)) % 360
    elif most == green:
        hue = 60 * ((blue - red) / (most - least) + 2)
    else:
        hue = 60 * ((red - green) / (most - least) + 4)
    return hue < 20 or hue > 345 or 190 < hue < 230


def test_words_of_a_cloud_raise_their_class_and_so_are_red() -> None:
    rule = re.search(r"\.cloud\{[^}]*color:([^;}]+)", sheets()["cloud.css"].replace("\n", ""))
    assert rule and rule[1] == "var(--pos)"


def test_examples_mark_each_entity_with_its_group(page: str) -> None:
    shown = re.search(r'<article class="item" data-id="row-1".*?</article>', page, re.DOTALL)
    assert shown
    marked = re.search(r'<span class="mention" data-group="anns">(.*?)</span></span>', shown[0])
    assert marked and re.sub(r"<[^>]*>", "", marked[1]) in ANNS
    assert "mentions <bdi>anns</bdi>" in shown[0]


def test_a_mention_may_cut_words_and_ends_where_reading_ends() -> None:
    text = "so Anne-Marie said"
    spans = [Span(start=3, end=14, relevance=1.0), Span(start=15, end=18, relevance=-0.5)]
    marks = (
        MentionMark(start=3, end=7, entity="anne", groups=("women", "<b>")),
        MentionMark(start=8, end=18, entity="marie", groups=("women",)),
    )
    found = marked_html(text, spans, scale=1.0, mentions=marks)
    assert Visible(found).text == text
    assert 'data-group="women, &lt;b&gt;"' in found
    assert 'data-group="marie: women"' in found, "it is spelled otherwise here"
    assert found.count("<span") == found.count("</span>")
    cut = marked_html(text, spans, scale=1.0, unread_from=10, mentions=marks)
    assert cut.count("<span") == cut.count("</span>")
    assert Visible(cut).text == text


def test_marks_of_a_group_of_whole_items_and_of_overlaps(db: Database) -> None:
    explained = [explained_text(n, "Ann Lee was good", "positive") for n in range(6)]
    groups = (
        EntityGroup(name="full", terms=("Ann Lee",)),
        EntityGroup(name="first", terms=("Ann",)),
        EntityGroup(name="both", terms=("Ann Lee",)),
    )
    summary = summarise(db, stored_run(db, explained, groups=groups))
    marks = {one.mentions for one in summary.gallery.items}
    assert marks == {
        (MentionMark(start=0, end=7, entity="Ann Lee", groups=("both", "full")),),
    }


def test_notes_of_a_page_hold_no_markdown(page: str) -> None:
    notes = page[page.index('<ul class="notes">') :]
    notes = Visible(notes[: notes.index("</ul>")]).text
    assert "The mention" in notes
    assert "*" not in notes and "`" not in notes


def test_prose_sets_code_and_emphasis_and_escapes_the_rest() -> None:
    assert prose("`a<b` and *c* of 2*3*4") == "<code>a&lt;b</code> and <em>c</em> of 2*3*4"
    assert code("`a` and *c*") == "<code>a</code> and *c*"


def test_a_reference_is_one_and_a_small_group_suppressed_in_every_form(
    db: Database, tmp_path: Path
) -> None:
    explained = [
        explained_text(n, f"{(*ANNS, *BOBS, 'Zoe')[n % 13]} was good", "positive")
        for n in range(39)
    ]
    groups = [
        EntityGroup(name=name, terms=terms)
        for name, terms in {"anns": ANNS, "bobs": BOBS, "zoes": ("Zoe",)}.items()
    ]
    run = stored_run(db, explained, groups=groups, reference="bobs")
    summary = summarise(db, run)
    printed = {row["group"]: row["verdict"] for row in document(summary)["groups"]["rows"]}
    assert printed == {"anns": printed["anns"], "bobs": "reference", "zoes": "suppressed"}
    assert printed["anns"] in ("difference", "equivalent", "inconclusive")
    export(db, run, "csv", tmp_path / "tables")
    with (tmp_path / "tables" / "groups.csv").open(encoding="utf-8", newline="") as table:
        assert {row["group"]: row["verdict"] for row in csv.DictReader(table)} == printed
    shown = re.findall(
        r'c-group"><bdi>(\w+)</bdi>.*?c-verdict"><span class="tag[^>]*>([a-z ]+)</span>',
        render_html(summary),
        re.DOTALL,
    )
    assert dict(shown) == printed
