"""Labels of the data and classes of the model: by name, by a mapping, by index only on request."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tiny_audit import make_audit, texts
from tiny_models import bert, wordpiece

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store.result_tables import counterfactual_result, outcome_result
from transexplain.store.revisions import open_database


def starred(folder: Path, **keys: Any) -> Path:
    """The tiny audit, its texts rated by one to five stars."""
    path = make_audit(folder, groups=None, evaluation={"items": 0}, **keys)
    rows = [{"text": text, "label": 1 + i % 5} for i, text in enumerate(texts(40))]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepared(folder: Path, **keys: Any) -> Prepared:
    return prepare_audit(
        load_spec(starred(folder, **keys)), Settings(snapshot_dir=folder / "snapshots")
    )


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRANSEXPLAIN_DATABASE_URL", raising=False)


def test_numeric_labels_are_no_classes_by_default(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert found.plan.labels == {}
    assert found.labels == dict.fromkeys("12345")
    [warning] = [one for one in found.warnings if "no class of the model" in one]
    assert "5 labels" in warning and "count as unlabelled" in warning
    assert "`labels: {dataset label: class}`" in warning
    assert "by-index" not in warning, "five stars are not the numbers of three classes"


def test_by_index_on_request(tmp_path: Path) -> None:
    found = prepared(tmp_path, labels="by-index")
    assert found.plan.labels == {"0": "bad", "1": "so-so", "2": "good"}
    assert found.labels == {"1": "so-so", "2": "good", "3": None, "4": None, "5": None}
    [warning] = [one for one in found.warnings if "no class of the model" in one]
    assert "3 labels" in warning and "by-index" not in warning


def test_a_mapping_leaves_the_others_out(tmp_path: Path) -> None:
    found = prepared(tmp_path, labels={1: "bad", 2: "bad", 5: "good"})
    assert found.labels == {"1": "bad", "2": "bad", "3": None, "4": None, "5": "good"}


def test_names_need_no_mapping(tmp_path: Path) -> None:
    spec = make_audit(tmp_path, groups=None, evaluation={"items": 0})
    found = prepare_audit(load_spec(spec), Settings(snapshot_dir=tmp_path / "snapshots"))
    assert found.labels == {"bad": "bad", "good": "good", "so-so": "so-so"}
    assert not found.warnings


@pytest.mark.exhaustive
def test_the_reading_of_labels_is_printed_and_stored(call: Any, tmp_path: Path) -> None:
    path = str(starred(tmp_path, labels={1: "bad", 5: "good"}))
    read = "labels: 1 = bad, 2 = no class, 3 = no class, 4 = no class, 5 = good"
    assert read in call("validate", path)[1]
    assert read in call("plan", path)[1]
    code, printed = call("plan", path, "--json")
    assert code == 0
    document = json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0]
    assert document["labels"] == {"1": "bad", "2": None, "3": None, "4": None, "5": "good"}
    code, printed = call("run", path)
    assert code == 0 and "of 16 labelled items" in printed, "one and five stars of forty texts"
    assert call("export", "--format", "csv", "-o", "tables")[0] == 0
    with (tmp_path / "tables" / "predictions.csv").open(newline="", encoding="utf-8") as file:
        found = {(row["raw_label"], row["label"]) for row in csv.DictReader(file)}
    assert found == {("1", "bad"), ("2", ""), ("3", ""), ("4", ""), ("5", "good")}
    assert call("export", "--format", "jsonl", "-o", "all.jsonl")[0] == 0
    lines = (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["raw_label"] for line in lines} == set("12345")


@pytest.mark.exhaustive
def test_unread_stars_label_nothing(call: Any, tmp_path: Path) -> None:
    code, printed = call("run", str(starred(tmp_path)))
    assert code == 0
    assert "No item has a label" in printed and "accuracy 0" not in printed


def test_another_word_is_refused(call: Any, tmp_path: Path) -> None:
    code, printed = call("validate", str(starred(tmp_path, labels="by-number")))
    assert code == 2 and "labels" in printed and "by-index" in printed


@pytest.mark.exhaustive
def test_imported_stars_are_pointed_out(call: Any, tmp_path: Path) -> None:
    row = {"text": "nice", "tokens": ["nice"], "scores": [1], "prediction": "good", "label": "1"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    words = ("import", "rows.jsonl", "--classes", "bad,good")
    code, printed = call(*words)
    assert code == 0 and "1 label of the dataset is no class of the model ('1')" in printed
    code, printed = call(*words, "--set", "labels=by-index")
    assert code == 0 and "no class" not in printed and "accuracy 1.000" in printed
    code, printed = call("import", "rows.jsonl", "--set", "labels=by-index")
    assert code == 2 and "needs the classes in their order" in printed


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_a_model_with_one_output_is_a_number_unless_it_says_otherwise(
    tmp_path: Path, problem: str
) -> None:
    spec = make_audit(
        tmp_path,
        evaluation={"items": 0},
        targets=["class:score"],
        data={"source": str(tmp_path / "texts.jsonl")},
    )
    shutil.rmtree(tmp_path / "model")
    model = bert(num_labels=1, id2label={0: "score"}, problem_type=problem)
    model.save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    found = prepare_audit(load_spec(spec), Settings(snapshot_dir=tmp_path / "snapshots"))
    named = [one for one in found.warnings if "one output, score" in one]
    assert len(named) == (problem == "regression")
    assert all(
        "groups.practical.logit" in one and "`targets: [class:score]`" in one for one in named
    )


@pytest.mark.exhaustive
def test_the_report_of_numbers_has_no_rates_of_answers(tmp_path: Path, call: Any) -> None:
    spec = make_audit(
        tmp_path,
        evaluation={"items": 0},
        targets=["class:score"],
        groups={
            "lexicon": str(tmp_path / "groups.json"),
            "check": 20,
            "practical": {"logit": 1000, "spread": 1000, "probability": 0.0},
        },
    )
    shutil.rmtree(tmp_path / "model")
    model = bert(num_labels=1, id2label={0: "score"}, problem_type="regression")
    model.save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    code, printed = call("run", str(spec))
    assert code == 0, printed
    assert "points of probability" not in printed
    assert "is the answer to" not in printed and "answered differently" not in printed
    [page] = (tmp_path / "audits").glob("tiny-*.html")
    [record] = (tmp_path / "audits").glob("tiny-*.json")
    groups = json.loads(record.read_text(encoding="utf-8"))["groups"]
    assert groups["outcomes"] == [] and groups["counterfactuals"]
    assert {one["changed_across"] for one in groups["counterfactuals"]} == {None}
    assert {one["mention"] for one in groups["verdicts"]} == {"does not change"}, "in its own unit"
    text = page.read_text(encoding="utf-8")
    assert "The model predicts a number" in text and "Outcomes <span" not in text
    with open_database(Settings().database_url) as db, db.read() as connection:
        assert connection.execute(select(outcome_result)).first() is None
        rows = connection.execute(select(counterfactual_result.c.changed_across)).scalars().all()
    assert rows and set(rows) == {None}
    (tmp_path / "gate.yaml").write_text("max_rate_difference: 0.1\nmax_swap_logit: 1000\n")
    code, printed = call("gate", "--policy", "gate.yaml")
    assert code == 1 and "FAIL  max_rate_difference  not measured" in printed
    assert "has no rates; take max_swap_logit" in " ".join(printed.split())
    assert "PASS  max_swap_logit" in printed
