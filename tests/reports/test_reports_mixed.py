"""A mixed audit from its specification to its report: on SQLite, verified, and redacted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from local_audits import audited_in
from tiny_audit import make_audit

from transexplain.provenance.verification import VerifyRequest
from transexplain.provenance.verify import verify
from transexplain.reports import report_formats
from transexplain.reports.report_formats import render_html
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import merged
from transexplain.reports.sections.group_relevance import group_rows
from transexplain.reports.summary import redacted, summarise
from transexplain.store import runs
from transexplain.store.database import Database

WORDS = ("film", "goods", "x", "unbelievably", "a"), ("nice", "good", "e", "bad", "so")
MIXED = {"method": "gradient-x-input", "exact_sample": 0.6}


def keys(folder: Path, **more: Any) -> dict[str, Any]:
    made = make_audit(folder, items=80, evaluation={"items": 0}, shard_size=16, **more)
    lexicon = {"things": list(WORDS[0]), "praise": list(WORDS[1])}
    (folder / "groups.json").write_text(json.dumps(lexicon), encoding="utf-8")
    rows = (
        {"text": " ".join(WORDS[j % 2][(i * 3 + j) % 5] for j in range(2 + i % 5))}
        for i in range(80)
    )
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, str]]:
    folder = tmp_path_factory.mktemp("mixed")
    with audited_in(folder, **keys(folder, explain=MIXED)) as found:
        yield found


@pytest.fixture(scope="module")
def summary(run: tuple[Database, str]) -> Summary:
    return summarise(*run)


def test_the_record(summary: Summary) -> None:
    mixed = summary.mixed
    assert mixed is not None
    assert (mixed.method, mixed.exact, mixed.share, mixed.failed) == (
        "gradient-x-input",
        "lrp",
        0.6,
        0,
    )
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
    run: tuple[Database, str], summary: Summary
) -> None:
    db, run_id = run
    assert summary.groups is not None and summary.mixed is not None
    rows = {(row.group, row.target, row.class_name): row for row in summary.groups.rows}
    corrected = {
        (one.group, one.target, one.class_name): one.corrected
        for one in summary.mixed.groups
        if one.corrected is not None
    }
    reported = [key for key, row in rows.items() if "not corrected" not in row.note]
    assert reported
    for key in reported:
        assert rows[key].mean == pytest.approx(corrected[key], rel=1e-9)
    again = group_rows(runs.get(db, run_id), merged(db, run_id))
    assert [row.difference for row in again] == [row.difference for row in summary.groups.rows]


def test_the_page_says_that_it_was_mixed(summary: Summary) -> None:
    page = render_html(summary)
    assert "How far the cheap method can be trusted here" in page
    assert 'href="#mixed"' in page
    assert summary.verdict is not None
    assert "gradient-x-input explained every item in the place of lrp" in summary.verdict.text
    assert any(one.what == "Relevance of every item by lrp" for one in summary.untested)


def test_the_json_report_keeps_its_schema(summary: Summary) -> None:
    Draft202012Validator(report_formats.schema()).validate(
        json.loads(report_formats.render_json(summary))
    )


def test_redaction_leaves_small_rows_out(summary: Summary) -> None:
    assert summary.mixed is not None
    counts = sorted(one.items for one in summary.mixed.groups)
    shown = redacted(summary, counts[-1])
    assert shown.mixed is not None
    assert {one.items for one in shown.mixed.groups} == {counts[-1]}
    assert redacted(summary, summary.mixed.items + 1).mixed is None
    render_html(shown)


def test_the_run_verifies(run: tuple[Database, str]) -> None:
    found = list(verify(*run, VerifyRequest(items=5)))
    assert [one for one in found if one.status == "FAIL"] == []
    assert any(one.name == "aggregates" for one in found)


@pytest.mark.exhaustive
def test_a_plain_run_says_nothing_of_it(tmp_path: Path) -> None:
    with audited_in(tmp_path, **keys(tmp_path, method="gradient-x-input")) as (db, run_id):
        found = summarise(db, run_id)
    assert found.mixed is None
    page = render_html(found)
    assert 'id="mixed"' not in page and "#mixed" not in page and "approximates" not in page
