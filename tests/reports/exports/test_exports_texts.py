"""Texts for people: the pull request's comment, the model card's section, the Annex IV block."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gallery import Gallery
from report_samples import ANNS, BOBS, Visible, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports import markdown
from transexplain.reports.exports.export_run import export
from transexplain.reports.phrasing import markdown_text
from transexplain.reports.sections.item_fates import FailureExample, FailureKind
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
    assert text is not None
    body = text.split("---\n")[-1] if form == "model-card" else text
    assert not Visible(body).tags
    assert "<img" not in body and "`c`" not in body and "@everyone" not in body
    assert "](http" not in re.sub(r"\\.", "", body)
    for line in body.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 6, 9, 10), line


def test_the_comment_stays_short_whatever_there_is(gallery: Gallery) -> None:
    summary = gallery.summary("biased")
    assert summary.groups is not None
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
