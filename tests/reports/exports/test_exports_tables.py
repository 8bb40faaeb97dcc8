"""CSV tables: tidy, complete, the summary's numbers, safe in a spreadsheet."""

import copy
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gallery import AUDITS, Gallery
from hypothesis import given
from hypothesis import strategies as st
from report_samples import ANNS, BOBS, biased_run, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports import DRIFT_REPORTS, EVALUATION_REPORTS, REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.exports.export_run import export
from transexplain.reports.exports.text_exports import SCHEMAS, file_name, schema_text
from transexplain.reports.phrasing import spreadsheet_safe
from transexplain.reports.runs_compared import compare_runs
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure

Rows = list[dict[str, str]]


def tables(db: Database, run_id: str, path: Path) -> dict[str, Rows]:
    assert export(db, run_id, "csv", path) is None
    found = {}
    for file in path.iterdir():
        with file.open(encoding="utf-8", newline="") as stream:
            found[file.stem] = list(csv.DictReader(stream, strict=True))
    return found


def test_the_tables_hold_the_numbers_of_the_summary(db: Database, tmp_path: Path) -> None:
    run_id = biased_run(db)
    found = tables(db, run_id, tmp_path / "out")
    summary = summarise(db, run_id)
    whole = [row for row in found["groups"] if not row["split_by"]]
    assert len(whole) == len(summary.groups.rows) == 2
    for cells, row in zip(whole, summary.groups.rows, strict=True):
        assert (cells["group_name"], cells["verdict"]) == (row.group, row.verdict)
        assert row.difference_interval is not None and row.adjusted_p is not None
        assert float(cells["difference"]) == row.difference
        assert float(cells["difference_low"]) == row.difference_interval[0]
        assert float(cells["adjusted_p"]) == row.adjusted_p
    described = {(row["file"], row["column"]): row["meaning"] for row in found["columns"]}
    for name in ("verdicts", "measures", "groups", "outcomes", "failures", "words"):
        assert all(described[name, column] for column in found[name][0])
    assert described["predictions", "prediction"] and described["entities", "mean"]
    assert {row["kind"] for row in found["failures"]} == {"empty-text", "null"}
    assert {row["entity"] for row in found["entities"]} == {*ANNS, *BOBS}
    assert float(found["entities"][0]["mean"]) == pytest.approx(0.5, abs=1e-3)
    ids = [row["id"] for row in found["predictions"]]
    assert len(ids) == 36 and {row["id"] for row in found["mentions"]} == set(ids)
    assert float(found["predictions"][0]["logit_positive"]) == pytest.approx(
        -float(found["predictions"][0]["logit_negative"])
    )


def test_what_a_run_has_not_has_no_file(db: Database, tmp_path: Path) -> None:
    run_id = stored_run(db, [explained_text(0, "good", None)])
    assert set(tables(db, run_id, tmp_path / "out")) == {"predictions", "words", "columns"}


def test_an_evaluation_has_its_scores(gallery: Gallery, tmp_path: Path) -> None:
    with gallery["evaluation"].open() as db:
        rows = tables(db, "latest", tmp_path / "out")["metrics"]
    assert sorted(float(row["value"]) for row in rows if row["method"] == "lrp") == [
        *(0.1, 0.11, 0.12, 0.15, 0.18, 0.2)
    ]
    assert len(rows) == 12


def test_hostile_cells(db: Database, tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://x")'
    texts = [
        explained_text(0, "@Ann says\nhi", "positive", item_id=formula, meta={"a": "\0"}),
        explained_text(1, "Bob", None, item_id="-5"),
    ]
    failure = ItemFailure(item_id="+x", index=2, kind="null", message='a\r\n"b"\0\ud800')
    groups = [EntityGroup(name="-anns", terms=("@Ann", "Ann")), EntityGroup(name="b", terms=BOBS)]
    found = tables(db, stored_run(db, texts, [failure], groups=groups), tmp_path / "out")
    assert [row["id"] for row in found["predictions"]] == [f"'{formula}", "-5"]
    assert found["failures"][0]["id"] == "'+x"
    assert found["failures"][0]["message"] == 'a\r\n"b"\ufffd\ufffd'
    assert {row["group_name"] for row in found["mentions"]} == {"'-anns", "b"}


@given(st.text())
def test_no_cell_begins_a_formula(text: str) -> None:
    cell = spreadsheet_safe(text)
    assert cell in (text, f"'{text}")
    if cell.startswith(("=", "@", "\t", "\r")):
        raise AssertionError(cell)
    if cell.startswith(("+", "-")):
        float(cell)


def test_a_folder_that_holds_something_or_cannot_be_made(db: Database, tmp_path: Path) -> None:
    run_id = biased_run(db)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("keep", encoding="utf-8")
    for place in (full, full / "mine.txt", full / "mine.txt" / "out"):
        with pytest.raises(ConfigurationError, match=str(place)):
            export(db, run_id, "csv", place)
    assert [path.name for path in full.iterdir()] == ["mine.txt"]
    empty = tmp_path / "empty"
    empty.mkdir()
    export(db, run_id, "csv", empty)
    assert (empty / "groups.csv").is_file()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


# ---- the published schemas ----------------------------------------------------------------------


PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / "schema"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_file_is_the_schema_of_the_records(name: str) -> None:
    text = schema_text(name)
    again = f'write text_exports.schema_text("{name}") to docs/schema/{file_name(name)}'
    assert (PUBLISHED / file_name(name)).read_text(encoding="utf-8") == text, again
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    assert json.loads(text)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def valid(name: str, document: str) -> None:
    """Raises where the document is not valid or holds NaN or infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    schema = json.loads((PUBLISHED / file_name(name)).read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(document, parse_constant=refuse), schema)


def test_comparisons_and_evaluations_keep_their_schema(gallery: Gallery) -> None:
    with gallery["compared"].open() as db:
        valid("comparison", DRIFT_REPORTS.load("json")(compare_runs(db, *gallery["compared"].runs)))
        assert export(db, "latest", "schema", None) == schema_text("report")
    with gallery["evaluation"].open() as db:
        valid("evaluation", EVALUATION_REPORTS.load("json")(tabulate(db, "latest")))
        assert export(db, "latest", "schema", None) == schema_text("evaluation")


@pytest.mark.parametrize("name", [name for name in AUDITS if name != "evaluation"])
def test_a_report_of_any_kind_keeps_its_schema(gallery: Gallery, name: str) -> None:
    document = REPORTS.load("json")(gallery.summary(name))
    assert document.isascii()
    valid("report", document)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("previous"),
        lambda document: document.update(schema_version=document["schema_version"] + 1),
        lambda document: document["counts"].update(done="36"),
        lambda document: document["sections"]["impact"]["answers"][0]["tables"][0].pop("unknown"),
    ],
    ids=["gone", "other version", "text for a number", "gone from a section"],
)
def test_a_document_that_is_not_one_is_not_valid(
    gallery: Gallery, change: Callable[[Any], Any]
) -> None:
    document = copy.deepcopy(gallery.document("filing"))
    change(document)
    with pytest.raises(jsonschema.ValidationError):
        valid("report", json.dumps(document))
