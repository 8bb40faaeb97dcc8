"""The published schemas: those of this version, valid themselves, and kept by real documents."""

import json
from pathlib import Path

import jsonschema
import pytest
from evaluation_samples import plan_of, scores, stored
from report_samples import biased_run

from transexplain.reports import DRIFT_REPORTS, EVALUATION_REPORTS, REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.exports.export_run import export
from transexplain.reports.exports.text_exports import SCHEMAS, file_name, schema_text
from transexplain.reports.runs_compared import compare_runs
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.scores import MetricSpec

PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / "schema"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_file_is_the_schema_of_the_records(name: str) -> None:
    text = schema_text(name)
    again = f'write exports.schema.schema_text("{name}") to docs/schema/{file_name(name)}'
    assert (PUBLISHED / file_name(name)).read_text(encoding="utf-8") == text, again
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    assert json.loads(text)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def valid(name: str, document: str) -> None:
    """Raises where the document is not valid or holds NaN or infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    schema = json.loads((PUBLISHED / file_name(name)).read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(document, parse_constant=refuse), schema)


def test_reports_comparisons_and_evaluations_keep_their_schema(
    db: Database, tmp_path: Path
) -> None:
    first, second = biased_run(db, sensitivity=0.5), biased_run(db)
    document = REPORTS.load("json")(summarise(db, first))
    valid("report", document)
    found = compare_runs(db, first, second)
    valid("comparison", DRIFT_REPORTS.load("json")(found))
    measured = scores("hiding", {"lrp": [0.1, 0.2], "random": [0.5, 0.6]})
    run_id = stored(db, plan_of(["lrp", "random"], MetricSpec(name="hiding")), measured, 2)
    valid("evaluation", EVALUATION_REPORTS.load("json")(tabulate(db, run_id)))
    for one, name in ((first, "report"), (run_id, "evaluation")):
        assert export(db, one, "schema", None) == schema_text(name)


@pytest.mark.parametrize("change", ["gone", "other version", "text for a number"])
def test_a_document_that_is_not_one_is_not_valid(db: Database, change: str) -> None:
    document = json.loads(REPORTS.load("json")(summarise(db, biased_run(db))))
    if change == "gone":
        del document["previous"]
    elif change == "other version":
        document["schema_version"] += 1
    else:
        document["counts"]["done"] = "36"
    with pytest.raises(jsonschema.ValidationError):
        valid("report", json.dumps(document))
