"""The layer of tables: the same columns as CSV and as Markdown, and heads of HTML tables."""

import io
from dataclasses import dataclass

from markupsafe import Markup

from transexplain.reports.tables import Column, Columns, headings, markdown_table, write_csv


@dataclass(frozen=True)
class Fruit:
    name: str
    weight: float | None


FRUITS: Columns[Fruit] = (
    Column("name", lambda one: one.name),
    Column("weight", lambda one: one.weight, right=True),
)
SHOWN: Columns[Fruit] = (
    Column("Name", lambda one: one.name),
    Column("Weight", lambda one: "" if one.weight is None else f"{one.weight:.1f}", right=True),
)
BASKET = [Fruit("apple", 0.25), Fruit("a|b *c*", None), Fruit("x" * 30, 2.0)]


def test_csv_keeps_numbers_in_full_and_leaves_what_is_missing_empty() -> None:
    """Of hostile cells, see test_exports_tables."""
    out = io.StringIO()
    write_csv(out, FRUITS, BASKET)
    assert out.getvalue().startswith("name,weight\r\napple,0.25\r\na|b *c*,\r\n")


def test_markdown_escapes_cells_aligns_numbers_and_cuts() -> None:
    lines = list(markdown_table(SHOWN, BASKET, longest=10))
    assert lines[:3] == ["| Name | Weight |", "|---|---:|", "| apple | 0.2 |"]
    assert lines[3] == r"| a\|b \*c\* |  |"
    assert lines[4] == f"| {'x' * 9}… | 2.0 |"
    assert list(markdown_table(SHOWN, BASKET, most=1)) == lines[:3]


def test_headings_escape_texts_keep_markup_and_leave_out_none() -> None:
    head = headings("<b>", ("Share [95\u00a0%]", "num"), None, "", (Markup("<svg></svg>"), "plot"))
    assert head == Markup(
        '<thead><tr><th scope="col">&lt;b&gt;</th><th scope="col" class="num">Share [95&nbsp;%]'
        '</th><td></td><th scope="col" class="plot"><svg></svg></th></tr></thead>'
    )
