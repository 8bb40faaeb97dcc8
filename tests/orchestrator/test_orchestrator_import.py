"""Attributions made elsewhere, from a file to a report, and the verbs that read such a run."""

import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from attribution_rows import rows_of_run, write_rows
from everyday import only
from shard_pool import ShardPool
from tiny_audit import make_audit_with_authors

from orchestrator.dispatch.local import run_here
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan.import_plan import ImportRequest, import_spec, prepare_import
from transexplain.reports.report_formats import render_html
from transexplain.reports.report_section import merged
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import results, runs, shards
from transexplain.store.revisions import open_database
from workers.claim_to_commit import Workbench

URL = "sqlite:///transexplain.db"
CLASSES = "bad,so-so,good"
GROUPS = ("--lexicon", "groups.json", "--set", "groups.column=author")

Call = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def audited_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the audit; the first test that needs it makes it."""
    return tmp_path_factory.mktemp("audited")


@pytest.fixture
def audited(
    call: Call, tmp_path: Path, audited_once: Path, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """A small real audit by `run`, and its attributions as rows of a file."""
    if not any(audited_once.iterdir()):
        monkeypatch.chdir(audited_once)
        code, printed = call("run", str(make_audit_with_authors(audited_once)))
        assert code == 0, printed
        monkeypatch.chdir(tmp_path)
    shutil.copytree(audited_once, tmp_path, dirs_exist_ok=True)
    return rows_of_run(URL)


def report(call: Call, run_id: str = "latest") -> dict[str, Any]:
    code, printed = call("report", run_id, "--json")
    assert code == 0, printed
    found: dict[str, Any] = json.loads(printed)
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two values of a report are the same, numbers to 1e-6."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return one == pytest.approx(other, abs=1e-6)
    return bool(one == other)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", only("rows.parquet", of=["rows.jsonl", "rows.parquet"]))
def test_a_run_exported_and_imported_says_the_same(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]], name: str
) -> None:
    original = report(call)
    path = write_rows(tmp_path / name, audited)
    code, printed = call("import", path, "--classes", CLASSES, *GROUPS, "--name", "again")
    assert code == 0, printed
    assert "Not measured, because the model is not available" in printed
    assert len(list((tmp_path / "audits").glob("again-*.*"))) == 2
    imported = report(call)
    compared = [row for row in original["groups"]["rows"] if row["difference"] is not None]
    assert {row["group"] for row in compared} >= {"author/man", "author/woman"}
    for part in ("rows", "outcomes", "rankings", "never_mentioned", "placebo"):
        assert same(original["groups"][part], imported["groups"][part]), part
    for part in ("counts", "confusion"):
        assert imported[part] == original[part]
    assert imported["audited"]["task"] == "imported"
    assert (imported["conservation"], imported["class_sensitivity"]) == (None, None)
    means = [
        (view["target"], view["class_name"], view["mean_logit"]) for view in original["classes"]
    ]
    assert same(
        [list(one) for one in means],
        [[view["target"], view["class_name"], view["mean_logit"]] for view in imported["classes"]],
    )


def prepared(file: str, folder: Path, **settings: Any) -> Any:
    spec = import_spec(
        file,
        {"groups.lexicon": str(folder / "groups.json"), "groups.column": "author"},
        [f"{key}={value}" for key, value in settings.items()],
    )
    requested = ImportRequest(classes=tuple(CLASSES.split(",")))
    return prepare_import(spec, requested, Settings(snapshot_dir=folder / "snapshots"))


@pytest.mark.exhaustive
def test_one_shard_or_many_give_the_same_bits(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]]
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", audited)
    found = []
    with open_database(f"sqlite:///{tmp_path / 'other.db'}", upgrade=True) as db:
        for size in (1000, 3):
            made = prepared(path, tmp_path, shard_size=size)
            assert len(made.shards) == (1 if size == 1000 else 14)
            run_id = runs.create(db, made.plan, made.shards)
            run_here(db, run_id, Settings())
            summary = summarise(db, run_id)
            found.append((summary.groups, summary.classes, summary.confusion))
            assert "Not measured" in render_html(summary)
    assert asdict(found[0][0]) == asdict(found[1][0])
    assert found[0][1:] == found[1][1:]


@pytest.mark.exhaustive
def test_workers_and_a_stopped_import(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]]
) -> None:
    """A fleet's pipeline does an import as it does an audit, and what was stopped goes on."""
    made = prepared(write_rows(tmp_path / "rows.jsonl", audited), tmp_path, shard_size=8)
    with open_database(f"sqlite:///{tmp_path / 'other.db'}", upgrade=True) as db:
        run_id = runs.create(db, made.plan, made.shards)
        stop = threading.Event()
        with pytest.raises(KeyboardInterrupt):
            report = Reports(items=lambda _: stop.set())
            run_here(db, run_id, Settings(), report=report, stop=stop)
        state = runs.progress(db, run_id)
        assert (state.items_done, state.states["queued"]) == (8, 4)
        bench = Workbench(db=db, settings=Settings())
        free = [one.shard.index for one in shards.list_shards(db, run_id) if one.state == "queued"]
        assert ShardPool(bench).work(run_id, free) == dict.fromkeys(free, "done")
        assert runs.progress(db, run_id).state == "done"
        assert len(bench.models) == 0, "no model was loaded"
        assert len(list(results.iter_items(db, run_id))) == 40


@pytest.mark.exhaustive
def test_bad_rows_are_in_the_report(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]]
) -> None:
    rows = [row for row in audited if row["target"] == "predicted"]
    rows[3] = {**rows[3], "scores": [1.0]}
    rows[5] = {**rows[5], "text": ""}
    path = write_rows(tmp_path / "rows.jsonl", rows)
    code, printed = call("import", path, "--classes", CLASSES, *GROUPS)
    assert code == 3, "two of forty failed, and none may"
    assert "2 rows are no attribution" in printed
    assert (
        "38 of 40 texts were explained; 2 failed (1 empty-text and 1 length-mismatch)." in printed
    )
    kinds = {one["kind"]: one["examples"][0] for one in report(call)["failures"]}
    assert kinds["length-mismatch"]["message"].startswith("row 3: 1 scores for ")
    assert kinds["empty-text"]["item_id"] == rows[5]["id"]
    code, printed = call("import", path, "--classes", CLASSES, *GROUPS, "--set", "tolerance=0.1")
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
    assert (code, compared["predictions"]["common"], compared["predictions"]["changed"]) == (
        0,
        40,
        0,
    )
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
    (page,) = (tmp_path / "audits").glob(f"*-{second}.html")
    document = page.read_text(encoding="utf-8")
    assert "by attributions made elsewhere" in document
    assert "imported under the name shap" in document


@pytest.mark.exhaustive
def test_predictions_that_turned_without_logits(
    call: Call, tmp_path: Path, audited: list[dict[str, Any]]
) -> None:
    rows = [
        {key: value for key, value in row.items() if key not in ("logits", "logit", "offsets")}
        for row in audited
        if row["target"] == "predicted"
    ]
    before = write_rows(tmp_path / "before.jsonl", rows)
    for row in rows:
        row["class"] = row["prediction"] = "bad" if row["prediction"] != "bad" else "good"
    after = write_rows(tmp_path / "after.jsonl", rows)
    for path in (before, after):
        code, printed = call("import", path, "--classes", CLASSES, "--name", Path(path).stem)
        assert code == 0, printed
    ids = [one["run_id"] for one in json.loads(call("status", "--json")[1])]
    code, printed = call("compare", ids[1], ids[0], "--json")
    assert code == 0, printed
    assert json.loads(printed)["predictions"]["changed"] == 40


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


@pytest.mark.exhaustive
def test_labels_that_are_never_predicted_are_pointed_out(call: Call, tmp_path: Path) -> None:
    row = {"text": "nice", "tokens": ["nice"], "scores": [1], "prediction": "good", "label": "1"}
    path = write_rows(tmp_path / "rows.jsonl", [row])
    code, printed = call("import", path)
    assert (code, "labels that are never predicted: '1'" in printed) == (0, True)
    code, printed = call("import", path, "--set", "labels={'1': good}")
    assert (code, "never predicted" in printed, "accuracy 1.000" in printed) == (0, False, True)


@pytest.mark.exhaustive
def test_slices(call: Call, tmp_path: Path, audited: list[dict[str, Any]]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", audited)
    words = ("--lexicon", "groups.json", "--slice", "author", "--practical", "0.5")
    code, printed = call("import", path, "--classes", CLASSES, *words, "--reference", "praise")
    assert code == 0, printed
    with open_database(URL) as db:
        run = runs.get(db, "latest")
        assert (run.plan.slice, run.plan.practical, run.plan.reference) == ("author", 0.5, "praise")
        totals = merged(db, run.id).entities.to_json()
        unsliced = prepared(path, tmp_path).plan
    assert all(f'"{author}"' in json.dumps(totals) for author in ("woman", "man"))
    assert unsliced.slice is None


def test_the_example_of_the_page_runs(call: Call, tmp_path: Path) -> None:
    from tiny_models import bert, wordpiece

    page = (Path(__file__).parents[2] / "docs" / "how-to" / "import.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    model = bert(id2label={0: "bad", 1: "so-so", 2: "good"})
    exec(
        code, {"model": model, "tokenizer": wordpiece(), "texts": ["a nice film", "unbelievably x"]}
    )
    done, printed = call(
        "import", "captum.jsonl", "--classes", CLASSES, "--method-name", "captum-ig"
    )
    assert done == 0, printed
    words = {row["word"] for view in report(call)["classes"] for row in view["raising_by_total"]}
    assert words <= {"a", "nice", "film", "unbelievably", "x"}
    with open_database(URL) as db:
        first, second = results.iter_attributions(db, runs.get(db, "latest").id)
    assert [token.text for token in first.features if not token.special] == ["a", "nice", "film"]  # type: ignore[union-attr]
    assert [word.text for word in second.words()] == ["unbelievably", "x"]
    assert first.notes == (), "the logit is that of the class"


@pytest.mark.shared
@pytest.mark.exhaustive
def test_a_real_audit_comes_back_with_offsets_or_without(
    call: Call, tmp_path: Path, shared_dir: Path
) -> None:
    """150 tweets by MiniLM: the group table of the import is the audit's, however tokens stand."""
    real = shared_dir / "real"
    lexicon = str(real / "lexicons" / "entity_groups.json")
    settings = ("data.limit=150", "payload=float32", "evaluation.items=0", "groups.check=0")
    code, printed = call(
        *("run", "--model", str(real / "models" / "minilm-sst2"), "--lexicon", lexicon),
        *("--data", str(real / "text" / "tweeteval_hate_train.tsv.gz")),
        *(word for setting in settings for word in ("--set", setting)),
    )
    assert code == 0, printed
    original, rows = report(call)["groups"], rows_of_run(URL)
    assert any(row["difference"] is not None for row in original["rows"])
    words = ("--classes", "negative,positive", "--lexicon", lexicon)
    for left_out in ((), ("offsets", "special")):
        kept = [{key: one[key] for key in one if key not in left_out} for one in rows]
        code, printed = call("import", write_rows(tmp_path / "rows.parquet", kept), *words)
        assert code == 0, printed
        assert same(original["rows"], report(call)["groups"]["rows"])
