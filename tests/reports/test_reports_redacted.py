"""A redacted report: nothing of an item, nothing that rests on few, and a schema that it keeps."""

import json
import os
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from gallery import Gallery
from jsonschema import Draft202012Validator
from redaction_gaps import gaps

from transexplain.analysis.groups.intervals import ItemRate
from transexplain.errors import ConfigurationError
from transexplain.reports import report_formats
from transexplain.reports.redaction import (
    RedactionRules,
    Redactor,
    empty,
    is_large,
    keep,
    kept,
    usual,
)
from transexplain.reports.report_formats import render_html
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.item_fates import Confusion, FailureExample, FailureKind
from transexplain.reports.summary import redacted, rules


@pytest.fixture
def summary(gallery: Gallery) -> Summary:
    found = gallery.summary("biased")
    failures = (
        FailureKind(
            kind="empty-text", count=40, examples=(FailureExample(item_id="id-77", message="m-88"),)
        ),
        FailureKind(kind="null", count=2, examples=()),
    )
    return replace(found, failures=failures)


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [one for entry in value.values() for one in strings(entry)]
    if isinstance(value, list):
        return [one for entry in value for one in strings(entry)]
    return [value] if isinstance(value, str) else []


def test_texts_ids_and_messages_are_gone(summary: Summary) -> None:
    shown = redacted(summary, 2)
    page, document = render_html(shown), json.dumps(report_formats.plain(shown))
    for item in summary.gallery.items:
        assert item.text and item.text not in page + document
    ids = {item.item_id for item in summary.gallery.items}
    assert ids and not ids & set(strings(report_formats.plain(shown)))
    assert "id-77" not in page + document and "m-88" not in page + document
    assert [item.item_id for item in shown.gallery.items][:2] == ["item 1", "item 2"]


def test_examples_keep_their_colours_over_blocks(summary: Summary) -> None:
    shown = redacted(summary)
    for before, after in zip(summary.gallery.items, shown.gallery.items, strict=True):
        for old, new in zip(before.explanations, after.explanations, strict=True):
            assert [w.relevance for w in old.words] == [w.relevance for w in new.words]
            assert {after.text[w.start : w.end] for w in new.words} <= {"▮"}
            assert old.words


def test_rows_of_few_items_are_gone_and_others_stay(summary: Summary) -> None:
    documents = sorted(row.documents for row in summary.groups.rows)
    fewest = documents[-1]
    assert documents[0] <= fewest
    for least in (2, fewest, fewest + 1):
        shown = redacted(summary, least)
        wanted = [row for row in summary.groups.rows if row.documents >= least]
        assert list(shown.groups.rows) == wanted
        words = [w for view in shown.classes for w in (*view.raising_by_mean, *view.rare)]
        assert all(word.documents >= least for word in words)
        assert all(one.documents >= least for r in shown.groups.rankings for one in r.entities)
        assert all(one.own.selected.total >= least for one in shown.groups.outcomes)
        assert render_html(shown)
    assert [kind.kind for kind in redacted(summary, 3).failures] == ["empty-text"]


def test_small_cells_say_so(summary: Summary) -> None:
    table = Confusion(labels=("a", ""), predicted=("a", "b"), counts=((12, 3), (0, 9)), omitted=0)
    shown = redacted(replace(summary, confusion=table), 10)
    assert shown.confusion.counts == ((12, None), (0, None))
    assert render_html(shown).count("&lt;&nbsp;10") == 2


def test_rates_are_small_from_either_side() -> None:
    rates = [ItemRate(count=n, total=30, interval=(0.0, 1.0)) for n in (0, 1, 10, 20, 21, 30)]
    assert [is_large(rate.count, rate.total, 10) for rate in rates] == [True, False, True] * 2


def test_the_schema_is_kept_and_the_note_is_there(summary: Summary) -> None:
    shown = redacted(summary)
    Draft202012Validator(report_formats.schema()).validate(report_formats.plain(shown))
    assert (shown.fewest, summary.fewest) == (10, None)
    assert any("redacted" in note for note in shown.notes)
    with pytest.raises(ConfigurationError, match="--min-count 1"):
        redacted(summary, 1)


def test_every_field_of_every_record_has_a_rule() -> None:
    assert list(gaps(Summary, rules())) == []


NUMBERS = Path(__file__).with_name("published_numbers.txt")


def test_every_number_that_a_redacted_report_keeps_is_listed() -> None:
    """A number needs no rule, so a new one is published: may it be, where few items are behind it?

    Then add it, by running this file with `TRANSEXPLAIN_WRITE_NUMBERS=1`.
    """
    published = sorted(
        f"{record.__name__}.{name}"
        for record, known in rules().items()
        if not record.__module__.startswith("transexplain.extras.")
        for name, rule in {**usual(record), **known.fields}.items()
        if rule is keep
    )
    if os.environ.get("TRANSEXPLAIN_WRITE_NUMBERS"):
        NUMBERS.write_text("".join(f"{name}\n" for name in published), encoding="utf-8")
    assert published == NUMBERS.read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Inner:
    secret: str


@dataclass(frozen=True)
class Outer:
    items: int
    inner: tuple[Inner, ...]
    kind: Literal["a", "b"] = "a"
    interval: tuple[float, float] | None = None
    words: tuple[str, ...] = ()
    points: tuple[float, ...] = ()


EMPTIED = {"inner": empty(())}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (None, "Outer has no redaction rules"),
        (kept("words") | EMPTIED, "Outer.points has no redaction rule"),
        (kept("points") | EMPTIED, "Outer.words has no redaction rule"),
        (kept("words points inner"), "Outer.inner holds records that are kept without their rules"),
        (kept("words points"), "Inner has no redaction rules"),
        (kept("words points gone") | EMPTIED, "Outer has no field gone"),
        (kept("words points") | EMPTIED, None),
    ],
)
def test_what_has_no_rule_is_named(fields: dict[str, Any] | None, complaint: str | None) -> None:
    known = {} if fields is None else {Outer: RedactionRules(fields=fields)}
    assert list(gaps(Outer, known)) == ([] if complaint is None else [complaint])


def test_numbers_choices_and_pairs_are_published_by_themselves() -> None:
    published = {name for name, rule in usual(Outer).items() if rule is keep}
    assert published == {"items", "kind", "interval"} == set(usual(Outer)) - {"inner"}


def test_a_field_without_a_rule_is_never_published() -> None:
    wider = make_dataclass("Wider", [("new", str, "a text")], bases=(Inner,), frozen=True)
    redactor = Redactor(rules={wider: RedactionRules(fields=kept("secret"))}, fewest=2)
    with pytest.raises(LookupError, match="new has no redaction rule"):
        redactor.record(wider(secret="s"))
    with pytest.raises(LookupError, match="Inner has no redaction rules"):
        redactor.within((Inner(secret="s"),))
