"""A report on predicted relevance says so, of what, and how near it is known to come."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from report_samples import Visible, biased_run

from transexplain.reports import report_formats
from transexplain.reports.exports import annex_iv, markdown, model_card
from transexplain.reports.phrasing import approximation_sentences, method_of, nearness
from transexplain.reports.report_formats import render_html
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import redacted, summarise
from transexplain.store.database import Database
from transexplain.types.scores import Approximation, ExactPlan, MethodSpec

NEAR = Approximation(
    teacher="lrp",
    mode="joint",
    items=1200,
    rank_correlation=0.871,
    relative_error=0.334,
    forwards=1.01,
)
METHOD = MethodSpec(
    name="learned", params={"explainer": "/home/someone/e.safetensors", "sha256": "a" * 64}
)
MEASURED = "rank correlation 0.87 (mean) and relative error 0.33 (median) on 1,200 items"


@pytest.fixture
def summary(db: Database) -> Summary:
    return summarise(db, biased_run(db, method=METHOD, approximates=NEAR))


def test_the_sentences(summary: Summary) -> None:
    assert summary.approximates == NEAR
    (line,) = (one for one in summary.headline if "predicted by an explainer" in one.text)
    assert line.kind == "unknown"
    assert MEASURED in line.text and "There is no ledger" in line.text
    assert not any("ledgers close for every explanation" in one.text for one in summary.headline)
    assert summary.verdict is not None
    assert "predicted by an explainer, which approximates lrp." in summary.verdict.text
    (left,) = (one for one in summary.untested if one.what == "Relevance of these items by lrp")
    assert "exact_sample: 0.05" in left.remedy and MEASURED in left.why
    notes = " ".join(summary.notes)
    assert "predicted, not computed, with learned" in notes
    assert "trained together with the model" in notes
    assert "exact_sample: 0.05" in notes
    assert "their share is in the ledger" not in notes


@pytest.mark.exhaustive
def test_the_page_and_the_document(summary: Summary) -> None:
    text = Visible(render_html(summary)).text
    assert "learned, which approximates lrp" in text
    assert MEASURED in text
    document = json.loads(report_formats.render_json(summary))
    assert document["approximates"]["rank_correlation"] == 0.871
    Draft202012Validator(report_formats.schema()).validate(document)
    (file,) = (one for one in document["provenance"]["files"] if one["part"] == "explainer")
    assert file["name"] == "e.safetensors"


def test_exports_say_it(summary: Summary) -> None:
    for form in (model_card, annex_iv):
        printed = form.render(summary).replace("\\", "")
        assert "by learned, which approximates lrp" in printed
        assert "rank correlation 0.87" in printed
    comment = markdown.render(summary)
    assert "method learned, which approximates lrp" in comment
    assert "rank correlation 0.87" in comment


def test_the_remedy_of_a_control_that_cannot_be(summary: Summary) -> None:
    (left,) = (one for one in summary.untested if one.what == "The effect of the words alone")
    assert left.remedy == "method: lrp"
    assert "cannot read one" in left.why


@pytest.mark.exhaustive
def test_a_mixed_run_points_to_its_section(db: Database) -> None:
    exact = ExactPlan(method=MethodSpec(name="lrp"), share=0.2)
    found = summarise(db, biased_run(db, method=METHOD, approximates=NEAR, exact=exact))
    assert not any(one.what == "Relevance of these items by lrp" for one in found.untested)
    assert any(one.what == "Relevance of every item by lrp" for one in found.untested)
    notes = " ".join(found.notes)
    assert "in the section on the cheap method" in notes and "exact_sample: 0.05" not in notes
    page = render_html(replace(found, conservation=None))  # the sample's attributions have ledgers
    assert 'How near it comes here: <a href="#mixed">' in page
    other = ExactPlan(method=MethodSpec(name="gradient-x-input"), share=0.2)
    found = summarise(db, biased_run(db, method=METHOD, approximates=NEAR, exact=other))
    assert any(one.what == "Relevance of these items by lrp" for one in found.untested)


@pytest.mark.exhaustive
def test_redaction_keeps_it_without_the_folder(summary: Summary) -> None:
    shown = redacted(summary, 2)
    assert shown.approximates == NEAR
    assert shown.audited.parameters == {"explainer": "e.safetensors", "sha256": "a" * 64}
    assert "/home/someone" not in render_html(shown)


def test_what_was_not_measured_is_not_shown() -> None:
    unknown = Approximation(
        teacher="lrp",
        mode="separate",
        items=0,
        rank_correlation=None,
        relative_error=None,
        forwards=1.0,
    )
    assert "was not measured" in nearness(unknown) and "correlation" not in approximation_sentences(
        unknown
    )
    assert method_of("lrp", None) == "lrp"


@pytest.mark.exhaustive
def test_a_plain_run_says_nothing_of_it(db: Database, tmp_path: Path) -> None:
    found = summarise(db, biased_run(db))
    assert found.approximates is None
    assert json.loads(report_formats.render_json(found))["approximates"] is None
    page = render_html(found)
    assert "approximates" not in page and "explainer" not in page
