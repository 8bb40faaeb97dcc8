"""Texts by length: parts worked by hand, a sentence only beyond chance, and what is published."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from jsonschema import Draft202012Validator
from report_samples import CLASSES, Visible, biased_run, explained_text, stored_run

from transexplain.reports.redaction import gaps
from transexplain.reports.report_formats import render_html, schema
from transexplain.reports.report_formats import render_json as as_json
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.texts_by_length import TextsByLength, _parts
from transexplain.reports.summary import redacted, rules, summarise
from transexplain.store.database import Database


def run_of(db: Database, lengths: Sequence[int], wrong: Sequence[int] = ()) -> str:
    """A text of so many words each, and two special tokens; labels of `wrong` do not match."""
    explained = []
    for index, words in enumerate(lengths):
        text = " ".join(["good", *["x"] * (words - 1)])
        explained.append(explained_text(index, text, CLASSES[index not in wrong]))
    return stored_run(db, explained)


def test_parts_worked_by_hand(db: Database) -> None:
    summary = summarise(db, run_of(db, [1, 1, 1, 2, 3, 4, 5, 6], wrong=[7]))
    found = summary.sections["texts_by_length"]
    assert [(one.shortest, one.longest, one.items) for one in found.parts] == [
        (3, 3, 3),
        (4, 4, 1),
        (5, 6, 2),
        (7, 8, 2),
    ]
    assert [one.accuracy for one in found.parts] == [1.0, 1.0, 1.0, 0.5]
    assert found.parts[-1].interval[0] < 0.5 < found.parts[-1].interval[1]
    assert sum(one.items for one in found.parts) == summary.counts.done


@pytest.mark.parametrize("counts", [[1] * 7, [9, 1, 1], [1, 1, 9], [100], [3, 3, 3, 3], [1, 2]])
def test_no_text_is_lost_or_counted_twice(counts: list[int]) -> None:
    parts = list(_parts([(place, many, many, 0, 0) for place, many in enumerate(counts)]))
    assert sum(one.items for one in parts) == sum(counts)
    assert 1 <= len(parts) <= 4
    assert all(before.longest < after.shortest for before, after in pairwise(parts))


def test_texts_of_one_length_have_no_section(db: Database) -> None:
    summary = summarise(db, run_of(db, [3] * 8))
    assert summary.sections == {}
    assert 'id="lengths"' not in render_html(summary)


def test_a_sentence_only_beyond_chance(db: Database) -> None:
    lengths = [*[2] * 40, *[9] * 40]
    few = summarise(db, run_of(db, lengths, wrong=[41, 42]))
    assert not [one for one in few.headline if "length" in one.text]
    many = summarise(db, run_of(db, lengths, wrong=range(40, 80)))
    assert [one.text for one in many.headline if "length" in one.text] == [
        "Accuracy depends on length: 1.000 on texts of up to 4 tokens, 0.000 from 11 on."
    ]


def test_the_page_and_the_document_have_it(db: Database) -> None:
    summary = summarise(db, run_of(db, [2] * 40 + [9] * 40))
    page = render_html(summary)
    assert "Texts by length" in Visible(page).text
    assert '<a href="#lengths">Lengths</a>' in page
    document = json.loads(as_json(summary))
    assert len(document["sections"]["texts_by_length"]["parts"]) == 2
    Draft202012Validator(schema()).validate(document)
    del document["sections"]["texts_by_length"]["parts"][0]["accuracy"]
    assert not Draft202012Validator(schema()).is_valid(document)


def test_few_texts_are_not_published(db: Database) -> None:
    lengths = [*[2] * 40, *[5] * 40, *[9] * 40, *[12] * 3]
    summary = summarise(db, run_of(db, lengths, wrong=[40, 41]))
    parts = redacted(summary, 10).sections["texts_by_length"].parts
    assert [one.items for one in parts] == [40, 40, 43]
    assert [one.accuracy for one in parts] == [1.0, None, 1.0]
    assert [one.correct for one in parts] == [40, None, 43]
    assert render_html(redacted(summary, 10))
    assert len(redacted(summary, 42).sections["texts_by_length"].parts) == 1
    assert 'id="lengths"' not in render_html(redacted(summary, 42))


def test_records_of_sections_have_rules() -> None:
    records = [SECTIONS.load(name).record for name in SECTIONS]
    assert TextsByLength in records
    for record in records:
        assert record is None or list(gaps(record, rules())) == []


def test_a_biased_run_has_texts_of_one_length(db: Database) -> None:
    assert summarise(db, biased_run(db)).sections == {}
