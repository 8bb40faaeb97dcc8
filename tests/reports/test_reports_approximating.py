"""A report on predicted relevance says so, of what, and how near it is known to come."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from gallery import Gallery
from report_samples import biased_run

from transexplain.provenance.verification import VerifyRequest
from transexplain.provenance.verify import verify
from transexplain.reports.report_formats import render_html
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import merged
from transexplain.reports.sections.group_relevance import group_rows
from transexplain.reports.summary import redacted, summarise
from transexplain.store import runs
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
LEFT_OUT = "Relevance of these items by lrp"


@pytest.fixture
def summary(db: Database) -> Summary:
    return summarise(db, biased_run(db, method=METHOD, approximates=NEAR))


def test_what_was_measured_is_said_where_relevance_is_predicted(summary: Summary) -> None:
    assert summary.approximates == NEAR
    assert summary.verdict is not None and "approximates lrp" in summary.verdict.text
    (line,) = (line for line in summary.headline if "0.87 (mean)" in line.text)
    assert line.kind == "unknown"
    (row,) = (row for row in summary.untested if row.what == LEFT_OUT)
    assert "exact_sample: 0.05" in row.remedy and "0.87 (mean)" in row.why


@pytest.mark.exhaustive
def test_a_mixed_run_points_to_its_section(db: Database) -> None:
    exact = ExactPlan(method=MethodSpec(name="lrp"), share=0.2)
    summary = summarise(db, biased_run(db, method=METHOD, approximates=NEAR, exact=exact))
    whats = {row.what for row in summary.untested}
    assert LEFT_OUT not in whats and "Relevance of every item by lrp" in whats
    page = render_html(replace(summary, conservation=None))  # of the sample there are ledgers
    assert '<a href="#mixed">' in page
    other = ExactPlan(method=MethodSpec(name="gradient-x-input"), share=0.2)
    summary = summarise(db, biased_run(db, method=METHOD, approximates=NEAR, exact=other))
    assert LEFT_OUT in {row.what for row in summary.untested}


@pytest.mark.exhaustive
def test_redaction_keeps_it_without_the_folder(summary: Summary) -> None:
    shown = redacted(summary, 2)
    assert shown.approximates == NEAR
    assert shown.audited.parameters == {"explainer": "e.safetensors", "sha256": "a" * 64}
    assert "/home/someone" not in render_html(shown)


# ---- a mixed audit from its specification to its report -----------------------------------------


@pytest.fixture(scope="module")
def mixed_run(gallery: Gallery) -> Iterator[tuple[Database, str]]:
    with gallery["mixed"].open() as db:
        yield db, gallery["mixed"].id


@pytest.fixture(scope="module")
def mixed_summary(gallery: Gallery) -> Summary:
    return gallery.summary("mixed")


def test_the_record(mixed_summary: Summary) -> None:
    mixed = mixed_summary.mixed
    assert (mixed.method, mixed.exact) == ("gradient-x-input", "lrp")
    assert (mixed.share, mixed.failed) == (0.6, 0)
    assert 30 < mixed.items < 66
    assert sum(one.items for one in mixed.classes if one.target == "predicted") == mixed.items
    assert all(one.correlation is not None for one in mixed.classes)
    corrected = [one for one in mixed.groups if one.interval is not None]
    assert corrected
    for one in corrected:
        assert one.interval is not None and one.corrected is not None
        assert one.interval[0] < one.corrected < one.interval[1]
        assert one.items >= 30


def test_the_table_of_groups_is_the_corrected_one(
    mixed_run: tuple[Database, str], mixed_summary: Summary
) -> None:
    db, run_id = mixed_run
    rows = {(row.group, row.target, row.class_name): row for row in mixed_summary.groups.rows}
    corrected = {
        (one.group, one.target, one.class_name): one.corrected
        for one in mixed_summary.mixed.groups
        if one.corrected is not None
    }
    reported = [key for key, row in rows.items() if "not corrected" not in row.note]
    assert reported
    for key in reported:
        assert rows[key].mean == pytest.approx(corrected[key], rel=1e-9)
    again = group_rows(runs.get(db, run_id), merged(db, run_id))
    assert [row.difference for row in again] == [
        row.difference for row in mixed_summary.groups.rows
    ]


def test_redaction_leaves_small_rows_out(mixed_summary: Summary) -> None:
    counts = sorted(one.items for one in mixed_summary.mixed.groups)
    shown = redacted(mixed_summary, counts[-1])
    assert {one.items for one in shown.mixed.groups} == {counts[-1]}
    assert redacted(mixed_summary, mixed_summary.mixed.items + 1).mixed is None
    render_html(shown)


def test_the_run_verifies(mixed_run: tuple[Database, str]) -> None:
    found = list(verify(*mixed_run, VerifyRequest(items=5)))
    assert [one for one in found if one.status == "FAIL"] == []
    assert any(one.name == "aggregates" for one in found)
