"""`evaluate` from a specification to its tables, and what is measured on a sample of an audit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.dispatch.local import run_here
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from orchestrator.spec.data_section import EVALUATED_ITEMS
from orchestrator.spec.evaluation_section import USUAL
from transexplain.errors import ConfigurationError, SpecError
from transexplain.evaluating.metrics import METRICS, metric_facts
from transexplain.reports.evaluation import tabulate
from transexplain.settings import Settings
from transexplain.store import results, runs
from transexplain.store.revisions import open_database
from transexplain.types.scores import DRAWS, RANDOM


def settings_of(folder: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snaps")


def prepare(folder: Path, evaluation: dict[str, Any], **keys: Any) -> Prepared:
    spec = load_spec(make_audit(folder, evaluation=evaluation, **keys))
    return prepare_audit(spec, settings_of(folder), "evaluation")


def run(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", settings_of(folder).database_url)
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", str(folder / "snaps"))
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_an_evaluation_from_the_command_line_to_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_audit(tmp_path, items=12, targets="predicted", groups=None)
    out = tmp_path / "tables"
    chosen = ["--method", "lrp", "--method", "rollout", "--metric", "activation"]
    more = ["--metric", "sparsity", "--baseline", "unk", "--report-dir", str(out)]
    found = run(["evaluate", str(spec), *chosen, *more], tmp_path, monkeypatch)
    assert found.exit_code == 0, found.output
    (page,) = out.glob("*.html")
    assert {path.suffix for path in out.iterdir()} == {".html", ".json", ".csv", ".md"}
    document = json.loads(next(iter(out.glob("tiny-*.json"))).read_text())
    assert [table["metric"] for table in document["tables"]] == ["activation", "sparsity"]
    assert document["tables"][0]["baseline"] == "unk"
    for table in document["tables"]:
        assert {row["method"] for row in table["rows"]} == {"lrp", "rollout", "random"}
        # one of the twelve texts has one token
        counted = 11 if table["metric"] == "activation" else 12
        assert {row["items"] for row in table["rows"]} == {counted}
    assert "one position" in page.read_text()
    again = run(["report", "--report-dir", str(tmp_path / "again")], tmp_path, monkeypatch)
    assert again.exit_code == 0, again.output
    assert len(list((tmp_path / "again").iterdir())) == 5, "four forms and the manifest"
    printed = run(["report", "--json"], tmp_path, monkeypatch)
    assert json.loads(printed.output)["tables"] == document["tables"]


@pytest.mark.exhaustive
def test_an_evaluation_that_was_stopped_goes_on(tmp_path: Path) -> None:
    evaluation = {"methods": ["lrp"], "metrics": ["activation", "pruning"]}
    prepared = prepare(tmp_path, evaluation, items=24, targets="predicted")
    settings = settings_of(tmp_path)
    with open_database(settings.database_url, upgrade=True) as db:
        whole = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, whole, settings, model=prepared.model)
        parts = runs.create(db, prepared.plan, prepared.shards)

        import threading

        stop = threading.Event()
        done: list[int] = []

        def on_items(count: int) -> None:
            done.append(count)
            if sum(done) > 8:
                stop.set()

        with pytest.raises(KeyboardInterrupt):
            report = Reports(items=on_items)
            run_here(db, parts, settings, model=prepared.model, report=report, stop=stop)
        assert runs.get(db, parts).state == "running"
        run_here(db, parts, settings, model=prepared.model)
        assert list(results.iter_scores(db, parts)) == list(results.iter_scores(db, whole))
        assert len(list(results.iter_scores(db, whole))) == 24 * 2 * 2
        assert not list(results.iter_attributions(db, whole))
        tables = tabulate(db, whole).tables
    assert [table.metric for table in tables] == ["activation", "pruning"]


def test_the_usual_evaluation(tmp_path: Path) -> None:
    plan = prepare(tmp_path, {}, targets="predicted", items=6).plan.evaluation
    assert plan is not None
    assert [one.label for one in plan.methods] == [*USUAL, RANDOM]
    wanted = [
        name
        for name in METRICS
        if "text" in metric_facts(name).modalities
        and metric_facts(name).usual
        and not metric_facts(name).needs_evidence
    ]
    assert [one.name for one in plan.metrics] == wanted
    assert all(
        one.items is not None for one in plan.metrics if metric_facts(one.name).kind == "model"
    )


def test_the_usual_sample(tmp_path: Path) -> None:
    plain = load_spec(make_audit(tmp_path))
    assert plain.data.with_sample_of(None).sample == EVALUATED_ITEMS
    assert plain.data.with_sample_of(60).sample == 60
    assert plain.data.with_sample_of(0).sample is None
    for setting in ("data.limit=7", "data.sample=7", "data.sample=null"):
        reported = load_spec(make_audit(tmp_path), None, [setting])
        assert reported.data.with_sample_of(60) == reported.data


@pytest.mark.exhaustive
def test_all_methods_leave_out_those_that_are_not_defined(tmp_path: Path) -> None:
    metric = {"name": "fidelity", "items": 1}
    prepared = prepare(tmp_path, {"methods": "all", "metrics": [metric]}, targets="predicted")
    assert prepared.plan.evaluation is not None
    labels = [one.label for one in prepared.plan.evaluation.methods]
    assert "decoded-gradcam" not in labels
    assert {"lrp", "lime", "rollout", "random"} <= set(labels)
    assert any("decoded-gradcam is left out" in warning for warning in prepared.warnings)
    limits = {one.label: one.items for one in prepared.plan.evaluation.methods}
    assert limits["lime"] is not None
    assert limits["lrp"] is None


@pytest.mark.exhaustive
def test_an_audit_measures_its_own_method_on_a_sample(tmp_path: Path) -> None:
    spec = load_spec(make_audit(tmp_path, items=40, evaluation={"items": 5}))
    prepared = prepare_audit(spec, settings_of(tmp_path))
    plan = prepared.plan
    assert plan.task == "audit"
    assert plan.evaluation is not None
    assert [one.label for one in plan.evaluation.methods] == ["lrp", RANDOM]
    assert plan.evaluation.targets == ("predicted",)
    with open_database(settings_of(tmp_path).database_url, upgrade=True) as db:
        run_id = runs.create(db, plan, prepared.shards)
        run_here(db, run_id, settings_of(tmp_path), model=prepared.model)
        scores = list(results.iter_scores(db, run_id))
        assert len({score.item_id for score in scores}) == 5
        assert {score.metric for score in scores} == {"activation", "pruning"}
        assert len(list(results.iter_attributions(db, run_id))) == 40 * 2
        assert runs.progress(db, run_id).items_done == 40


def test_an_audit_can_leave_it(tmp_path: Path) -> None:
    spec = load_spec(make_audit(tmp_path, evaluation={"items": 0}))
    assert prepare_audit(spec, settings_of(tmp_path)).plan.evaluation is None


def test_an_audit_whose_model_has_no_baseline_is_audited_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_token(*_: Any) -> Any:
        raise ConfigurationError("the tokenizer has no mask, unknown or padding token")

    monkeypatch.setattr("transexplain.methods.presence.absence", no_token)
    prepared = prepare_audit(load_spec(make_audit(tmp_path)), settings_of(tmp_path))
    assert prepared.plan.evaluation is None
    assert any("not measured: the tokenizer" in warning for warning in prepared.warnings)


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"methods": ["lrpp"]}, "did you mean 'lrp'"),
        ({"methods": ["lrp", "lrp"]}, "lrp more than once; give each a `label`"),
        ({"methods": [{"name": "lrp", "params": {"gama": 1}}]}, "no parameter 'gama'"),
        ({"methods": ["decoded-gradcam"]}, "head"),
        ({"metrics": ["hiding", "hiding"]}, "metrics has hiding more than once"),
        ({"metrics": ["activatoin"]}, "did you mean 'activation'"),
        ({"metrics": ["insertion"]}, "is for image, not for text"),
        ({"metrics": ["token-f1"]}, "name its column with data.evidence"),
        ({"metrics": ["activation"], "baseline": "grey"}, "unknown baseline 'grey'"),
        ({"metrics": [{"name": "activation", "params": {"steps": 0}}]}, "at least 1"),
        ({"methods": [{"name": "lrp", "label": "oracle"}]}, "the label 'oracle'"),
        ({"methods": [{"name": "lrp", "label": "prediction"}]}, "the label 'prediction'"),
        ({"methods": [{"name": "lrp", "draws": 2}]}, "draws=2 of lrp"),
    ],
)
def test_invalid_evaluations_are_reported_before_anything_runs(
    tmp_path: Path, evaluation: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        prepare(tmp_path, evaluation, targets="predicted", items=3)


def test_targets_of_several_classes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="one class an item"):
        prepare(tmp_path, {"methods": ["lrp"]}, targets="top:2", items=3)


def test_unknown_keys_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"evaluation.method: .* did you mean 'methods'\? known"):
        load_spec(make_audit(tmp_path, evaluation={"method": ["lrp"]}))


def test_labels_distinguish_parameters(tmp_path: Path) -> None:
    evaluation = {
        "methods": ["lrp", {"name": "lrp", "params": {"gamma": 0.25}, "label": "lrp 1/4"}],
        "metrics": ["sparsity"],
    }
    plan = prepare(tmp_path, evaluation, targets="predicted", items=3).plan
    assert plan.evaluation is not None
    assert [one.label for one in plan.evaluation.methods] == ["lrp", "lrp 1/4", RANDOM]
    assert replace(plan, evaluation=None).digest != plan.digest


@pytest.mark.parametrize(
    ("methods", "draws"),
    [
        (["lrp"], {RANDOM: DRAWS}),
        (["lrp", "random"], {RANDOM: DRAWS}),
        (["lrp", {"name": "random", "draws": 3}], {RANDOM: 3}),
        (["lrp", {"name": "random", "label": "chance", "draws": 1}], {"chance": 1, RANDOM: DRAWS}),
    ],
)
def test_random_relevance_is_drawn_often_unless_the_row_says_otherwise(
    tmp_path: Path, methods: list[Any], draws: dict[str, int]
) -> None:
    keys = {"methods": methods, "metrics": ["sparsity"]}
    plan = prepare(tmp_path, keys, targets="predicted", items=3).plan.evaluation
    assert plan is not None
    found = {one.label: one.draws for one in plan.methods}
    assert found == {"lrp": 1, **draws}


def test_an_audit_draws_random_relevance_once(tmp_path: Path) -> None:
    for methods, draws in (([], 1), (["lrp", {"name": "random", "draws": 2}], 2)):
        file = make_audit(tmp_path, evaluation={"items": 3, "methods": methods})
        plan = prepare_audit(load_spec(file), Settings.from_environment(), "audit").plan.evaluation
        assert plan is not None
        assert {one.label: one.draws for one in plan.methods} == {"lrp": 1, RANDOM: draws}


def test_all_metrics_are_more_than_the_usual_ones(tmp_path: Path) -> None:
    plan = prepare(tmp_path, {"metrics": "all"}, targets="predicted", items=3).plan.evaluation
    assert plan is not None
    found = {one.name for one in plan.metrics}
    assert {"auac", "hiding-accuracy", "revealing-accuracy", "activation"} <= found
    assert "positive-perturbation-accuracy" not in found
