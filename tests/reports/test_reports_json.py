"""The JSON report: valid, documented, the same numbers as the summary."""

import json
from dataclasses import fields, replace

import jsonschema
import pytest
from report_samples import biased_run

from transexplain.reports.report_formats import render_json, schema
from transexplain.reports.report_records import SCHEMA_VERSION, Summary
from transexplain.reports.summary import summarise
from transexplain.store.database import Database


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_the_report_is_strict_json_of_the_documented_keys(db: Database) -> None:
    text = render_json(summarise(db, biased_run(db)))
    found = json.loads(text, parse_constant=refuse)
    assert text.isascii()
    assert set(found) == {field.name for field in fields(Summary)}
    assert found["schema_version"] == SCHEMA_VERSION
    jsonschema.validate(found, schema())


def test_its_numbers_are_those_of_the_summary(db: Database) -> None:
    summary = summarise(db, biased_run(db))
    found = json.loads(render_json(summary))
    assert found["counts"]["accuracy"] == summary.counts.accuracy
    assert summary.groups is not None
    assert found["groups"]["rows"][0]["difference"] == summary.groups.rows[0].difference
    word = summary.gallery.items[0].explanations[0].words[0]
    assert found["gallery"]["items"][0]["explanations"][0]["words"][0] == {
        "start": word.start,
        "end": word.end,
        "relevance": word.relevance,
    }


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_hold_are_null(db: Database, odd: float) -> None:
    summary = summarise(db, biased_run(db))
    summary = replace(summary, gallery=replace(summary.gallery, scale=odd))
    assert json.loads(render_json(summary), parse_constant=refuse)["gallery"]["scale"] is None
