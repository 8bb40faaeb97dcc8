"""Texts for people: the pull request's comment, the model card's section, the Annex IV block."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gallery import Gallery
from markupsafe import Markup
from report_samples import ANNS, BOBS, Visible, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports import markdown
from transexplain.reports.exports.export_run import export
from transexplain.reports.phrasing import markdown_text
from transexplain.reports.sections.item_fates import FailureExample, FailureKind
from transexplain.reports.tables import Column, Columns, headings, markdown_table
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure

HOSTILE = "a|b `c` <img src=x onerror=alert(1)> **d** [e](http://f) @everyone"


def hostile_run(db: Database) -> str:
    explained = [
        explained_text(number, f"{(*ANNS, *BOBS)[number % 12]} was good", None)
        for number in range(36)
    ]
    failure = ItemFailure(item_id=HOSTILE, index=36, kind="null", message=f"{HOSTILE}\n# x")
    groups = [EntityGroup(name=HOSTILE, terms=ANNS), EntityGroup(name="bobs", terms=BOBS)]
    return stored_run(db, explained, [failure], groups=groups, name=HOSTILE)


@pytest.mark.parametrize("form", ["markdown", "model-card", "annex-iv"])
def test_what_the_data_says_is_neither_markup_nor_html(db: Database, form: str) -> None:
    text = export(db, hostile_run(db), form, None)
    body = text.split("---\n")[-1] if form == "model-card" else text
    assert not Visible(body).tags
    assert "<img" not in body and "`c`" not in body and "@everyone" not in body
    assert "](http" not in re.sub(r"\\.", "", body)
    for line in body.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 6, 9, 10), line


def test_the_comment_stays_short_whatever_there_is(gallery: Gallery) -> None:
    summary = gallery.summary("biased")
    row = summary.groups.rows[0]
    rows = tuple(replace(row, group=f"group {number}") for number in range(200))
    failures = tuple(
        FailureKind(kind=f"kind-{n}", count=1, examples=(FailureExample(item_id="i", message="m"),))
        for n in range(50)
    )
    large = replace(summary, groups=replace(summary.groups, rows=rows), failures=failures)
    text = markdown.render(large)
    assert len(text.splitlines()) < 60
    assert "188 more: see the report." in text and "44 more: see the report." in text


def test_the_text_of_markdown_notifies_nobody() -> None:
    assert "@everyone" not in markdown_text(HOSTILE)
    assert markdown_text("a\n\n# b") == r"a \# b"


@pytest.mark.parametrize("form", ["markdown", "model-card", "annex-iv", "parquet", "jsonl"])
def test_an_evaluation_has_no_explanations(gallery: Gallery, tmp_path: Path, form: str) -> None:
    evaluation = gallery["evaluation"]
    with evaluation.open() as db, pytest.raises(ConfigurationError, match="is an evaluation"):
        export(db, evaluation.id, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- the tables of texts and pages


def test_markdown_escapes_cells_aligns_numbers_and_cuts() -> None:
    columns: Columns[tuple[str, float | None]] = (
        Column("Name", lambda row: row[0]),
        Column("Weight", lambda row: "" if row[1] is None else f"{row[1]:.1f}", right=True),
    )
    basket = [("apple", 0.25), ("a|b *c*", None), ("x" * 30, 2.0)]
    lines = list(markdown_table(columns, basket, longest=10))
    assert lines[:3] == ["| Name | Weight |", "|---|---:|", "| apple | 0.2 |"]
    assert lines[3:] == [r"| a\|b \*c\* |  |", f"| {'x' * 9}… | 2.0 |"]
    assert list(markdown_table(columns, basket, most=1)) == lines[:3]


def test_headings_escape_texts_keep_markup_and_leave_out_none() -> None:
    head = headings("<b>", ("Share [95\u00a0%]", "num"), None, "", (Markup("<svg></svg>"), "plot"))
    assert head == Markup(
        '<thead><tr><th scope="col">&lt;b&gt;</th><th scope="col" class="num">Share [95&nbsp;%]'
        '</th><td></td><th scope="col" class="plot"><svg></svg></th></tr></thead>'
    )
