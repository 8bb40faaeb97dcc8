"""Attributions made elsewhere, from a file to a report, and the verbs that read such a run."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from attribution_rows import rows_of_run, write_rows
from gallery import Gallery
from report_samples import biased_run
from tiny_audit import make_audit, make_audit_with_authors

from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store import readers, runs, shards
from transexplain.store.revisions import open_database

URL = "sqlite:///transexplain.db"
CLASSES = "bad,so-so,good"
GROUPS = ("--lexicon", "groups.json", "--set", "groups.column=author")

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def audited(gallery: Gallery, tmp_path: Path) -> list[dict[str, Any]]:
    """The attributions of a small audit as rows of a file, each by an author."""
    shutil.copy(gallery["texts"].folder / "groups.json", tmp_path)
    rows = rows_of_run(gallery["texts"].copy_store(tmp_path / "audited.db"))
    return [{**row, "author": ("woman", "man")[int(row["id"]) % 3 == 0]} for row in rows]


def report(call: Call, run_id: str = "latest") -> dict[str, Any]:
    code, printed = call("report", run_id, "--json")
    assert code == 0, printed
    found: dict[str, Any] = json.loads(printed)
    return found


@pytest.mark.exhaustive
def test_bad_rows_are_in_the_report(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]]
) -> None:
    rows = [row for row in audited if row["target"] == "predicted"]
    rows[3] = {**rows[3], "scores": [1.0]}
    rows[5] = {**rows[5], "text": ""}
    path = write_rows(tmp_path / "rows.jsonl", rows)
    code, printed = call("import", path, "--classes", CLASSES, *GROUPS)
    assert code == 3, "two of twenty failed, and none may"
    assert "2 rows are no attribution" in printed
    assert (
        "18 of 20 texts were explained; 2 failed (1 empty-text and 1 length-mismatch)." in printed
    )
    kinds = {one["kind"]: one["examples"][0] for one in report(call)["failures"]}
    assert kinds["length-mismatch"]["message"].startswith("row 3: 1 scores for ")
    assert kinds["empty-text"]["item_id"] == rows[5]["id"]
    code, printed = call("import", path, "--classes", CLASSES, *GROUPS, "--set", "tolerance=0.2")
    assert code == 0, printed
    assert call("resume")[0] == 0, "a finished import has nothing left to do"
    assert "nothing to try again" in call("retry")[1]


@pytest.mark.exhaustive
def test_compare_gate_strategies_and_matches(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]]
) -> None:
    rows = [row for row in audited if row["target"] == "predicted"]
    before = write_rows(tmp_path / "before.jsonl", rows)
    turned = [{**row, "scores": [-score for score in row["scores"]]} for row in rows]
    after = write_rows(tmp_path / "after.jsonl", turned)
    options = ("--classes", CLASSES, *GROUPS, "--method-name", "shap", "--model-name", "mine")
    assert call("import", before, *options)[0] == 0
    first = report(call)["audited"]["run_id"]
    code, printed = call("import", after, *options, "--previous", first)
    assert code == 0, printed
    assert f"since run {first}" in printed
    second = report(call)["audited"]["run_id"]
    code, printed = call("compare", first, second, "--json")
    compared = json.loads(printed)
    predictions = compared["predictions"]
    assert (code, predictions["common"], predictions["changed"]) == (0, 20, 0)
    assert not compared["disparities"], "one corpus, other scores"
    assert not any("audited the same model" in one["text"] for one in compared["headline"])
    (tmp_path / "policy.yaml").write_text("max_failed: 0\nmax_gap_above: 0\n", encoding="utf-8")
    code, printed = call("gate", second, "--policy", "policy.yaml")
    assert (code, "not measured: the attributions were imported" in printed) == (1, True)
    (tmp_path / "policy.yaml").write_text("max_failed: 0\n", encoding="utf-8")
    assert call("gate", second, "--policy", "policy.yaml")[0] == 0
    code, printed = call("strategies", second, "--json")
    assert (code, json.loads(printed)["explored"]["model"]) == (0, "mine")
    code, printed = call("matches", second, "--sample", "4")
    assert (code, printed.startswith("4 matches are in")) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--column", "scores"), "--column 'scores' is not meaning=column"),
        (("--column", "scores=attr"), "has no column 'attr'; it has 'id', 'text'"),
        (("--unit", "logit"), "unit 'logit': use one of logits, unit_relevance, score"),
        (("--classes", "good,good"), "names a class twice"),
        ((), "name the classes in their order with --classes"),
        (("--classes", CLASSES, *GROUPS, "--slice", "region"), "has no column 'region'"),
        (("--classes", CLASSES, "--lexicon", "none.json"), "none.json"),
        (("--classes", CLASSES, *GROUPS, "--reference", "men"), "'men', which is not among"),
        (("--classes", CLASSES, "--set", "data.image=x"), "data.image is not read"),
        (("--previous", "nothing", "--classes", CLASSES), "no run 'nothing'"),
    ],
)
def test_wrong_options_are_named(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]], words: tuple[str, ...], message: str
) -> None:
    code, printed = call("import", write_rows(tmp_path / "rows.jsonl", audited), *words)
    assert (code, message in printed) == (2, True), printed


def test_the_example_of_the_page_runs(call: Call, tmp_path: Path) -> None:
    from tiny_models import bert, wordpiece

    page = (Path(__file__).parents[2] / "docs" / "how-to" / "import.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    model = bert(id2label={0: "bad", 1: "so-so", 2: "good"})
    texts = ["a nice film", "unbelievably x"]
    exec(code, {"model": model, "tokenizer": wordpiece(), "texts": texts})
    done, printed = call("import", "captum.jsonl", "--classes", CLASSES)
    assert done == 0, printed
    words = {row["word"] for view in report(call)["classes"] for row in view["raising_by_total"]}
    assert words <= {"a", "nice", "film", "unbelievably", "x"}
    with open_database(URL) as db:
        first, second = readers.iter_attributions(db, runs.get(db, "latest").id)
    assert [token.text for token in first.features if not token.special] == ["a", "nice", "film"]  # type: ignore[union-attr]
    assert [word.text for word in second.words()] == ["unbelievably", "x"]
    assert first.notes == (), "the logit is that of the class"


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_imported_again_has_the_same_statistics(
    call: Call, tmp_path: Path, form: str
) -> None:
    spec = make_audit_with_authors(tmp_path)
    assert call("run", str(spec))[0] == 0
    path = f"out/run.{form}"
    assert call("export", "--format", form, "-o", path) == (0, f"{form}: {path}\n")
    original = report(call)
    classes = ("--classes", CLASSES, "--column", "logits=predictions")
    code, printed = call("import", path, *GROUPS, *classes, "--name", "again")
    assert code == 0 and "Not measured, because the model is not available" in printed, printed
    assert len(list((tmp_path / "audits").glob("again-*.*"))) == 2
    imported = report(call)
    assert imported["audited"]["task"] == "imported"
    assert (imported["conservation"], imported["class_sensitivity"]) == (None, None)
    assert all(imported[part] == original[part] for part in ("counts", "confusion"))
    before, after = original["groups"], imported["groups"]
    assert after["outcomes"] == before["outcomes"]
    compared = [row for row in before["rows"] if row["difference"] is not None]
    assert {row["group"] for row in compared} >= {"author/man", "author/woman"}
    for row, again in zip(before["rows"], after["rows"], strict=True):
        for name in ("group", "target", "class_name", "mentions", "entities", "verdict"):
            assert row[name] == again[name]
        assert again["difference"] == pytest.approx(row["difference"], abs=1e-6)
    if form == "parquet":
        assert call("export", "-f", form, "-o", "again.parquet")[0] == 0, "also of an import"
        first, second = pq.read_table(path), pq.read_table("again.parquet")
        for name in ("id", "text", "offsets", "special", "target", "class", "prediction", "label"):
            assert first[name].to_pylist() == second[name].to_pylist(), name


def test_a_text_is_printed_or_written(call: Call, tmp_path: Path) -> None:
    with open_database(URL, upgrade=True) as db:
        biased_run(db)
    code, printed = call("export", "--format", "markdown")
    assert code == 0 and printed.startswith("## sample audit: models/m on x.csv\n")
    assert call("export", "latest", "-f", "markdown", "-o", "new/pr.md")[0] == 0
    assert (tmp_path / "new" / "pr.md").read_text(encoding="utf-8") == printed
    assert call("export", "latest", "-f", "model-card", "-o", "new/pr.md")[0] == 0, "replaced"
    assert (tmp_path / "new" / "pr.md").read_text(encoding="utf-8").startswith("---\ntags:")


@pytest.mark.exhaustive
def test_a_file_that_is_gone_half_way_costs_its_shards_until_it_is_back(tmp_path: Path) -> None:
    """Five files of eight rows, one shard each."""
    audit = make_audit(tmp_path, evaluation={"items": 0})
    lines = (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for number in range(5):
        part = "".join(lines[8 * number : 8 * number + 8])
        (tmp_path / f"part-{number}.jsonl").write_text(part, encoding="utf-8")
    changes = {"data.source": f"{tmp_path}/part-*.jsonl", "data.snapshot": "manifest"}
    settings = Settings(snapshot_dir=tmp_path / "snapshots")
    prepared = prepare_audit(load_spec(audit, changes), settings)
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        shutil.move(tmp_path / "part-3.jsonl", tmp_path / "kept")
        run_here(db, run_id, settings, model=prepared.model)
        progress = runs.progress(db, run_id)
        assert (progress.states["done"], progress.states["dead"]) == (4, 1)
        (dead,) = shards.list_shards(db, run_id, states=("dead",))
        assert "part-3.jsonl" in str(dead.error) and "put it back and resume" in str(dead.error)
        shutil.move(tmp_path / "kept", tmp_path / "part-3.jsonl")
        assert shards.redrive(db, run_id) == 1
        run_here(db, run_id, settings, model=prepared.model)
        assert runs.progress(db, run_id).items_done == 40
