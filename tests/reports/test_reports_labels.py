"""How labels were read: each as the data spell it, with the class that it counts as."""

import json

from jsonschema import Draft202012Validator
from report_samples import Visible, biased_run, explained_text, stored_run

from transexplain.reports.report_formats import render_html, schema
from transexplain.reports.report_formats import render_json as as_json
from transexplain.reports.sections.audited_run import LabelReading
from transexplain.reports.summary import redacted, summarise
from transexplain.store.database import Database

STARS = {"1": "negative", "3": None, "5": "positive"}


def starred(db: Database) -> str:
    """Twelve texts of one star, three of three, five of five."""
    stars = ["1"] * 12 + ["3"] * 3 + ["5"] * 5
    return stored_run(
        db,
        [
            explained_text(index, "good x", STARS[star], raw_label=star)
            for index, star in enumerate(stars)
        ],
    )


def test_every_label_is_listed_with_its_class(db: Database) -> None:
    summary = summarise(db, starred(db))
    found = summary.sections["labels"]
    assert [(one.label, one.class_name, one.items) for one in found.readings] == [
        ("1", "negative", 12),
        ("5", "positive", 5),
        ("3", None, 3),
    ]
    assert found.omitted == 0
    shown = Visible(render_html(summary)).text
    assert "How labels were read" in shown and "no class" in shown
    document = json.loads(as_json(summary))
    Draft202012Validator(schema()).validate(document)
    assert document["sections"]["labels"]["readings"][2]["class_name"] is None


def test_labels_of_few_items_are_not_published(db: Database) -> None:
    found = redacted(summarise(db, starred(db)), 5).sections["labels"]
    assert found.readings == (
        LabelReading(label="1", class_name="negative", items=12),
        LabelReading(label="5", class_name="positive", items=5),
    )


def test_a_run_of_older_software_has_none(db: Database) -> None:
    summary = summarise(db, biased_run(db))
    assert "labels" not in summary.sections
    assert "How labels were read" not in render_html(summary)
