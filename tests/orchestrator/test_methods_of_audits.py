"""Audits by an explainer: found, named by its bytes, refused early, run and verified."""

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learned_audits import explainer_for, learned, mixed
from store_samples import stored_again
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_here
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.plan.estimate import estimate
from orchestrator.spec import AuditSpec, load_spec
from transexplain.errors import ConfigurationError
from transexplain.provenance.manifest import seeds
from transexplain.reports.evaluation import tabulate
from transexplain.settings import Settings
from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.types.plans import Task
from transexplain.types.scores import DRAWS, RANDOM, Approximation, ExactPlan, MethodSpec

Call = Callable[..., tuple[int, str]]
WRITTEN = Approximation(
    teacher="lrp",
    mode="separate",
    items=12,
    rank_correlation=0.5,
    relative_error=0.75,
    forwards=1.25,
)


def settings_of(folder: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{folder / 's.db'}", snapshot_dir=folder / "snapshots")


def prepare(folder: Path, task: Task = "audit", **keys: Any) -> PreparedAudit:
    spec = load_spec(make_audit(folder, **({"evaluation": {"items": 0}} | keys)))
    return prepare_audit(spec, settings_of(folder), task)


@pytest.fixture
def explainer(tmp_path: Path) -> Path:
    return explainer_for(tmp_path)


def named(explainer: Path) -> MethodSpec:
    digest = hashlib.sha256(explainer.read_bytes()).hexdigest()
    return MethodSpec(name="learned", params={"explainer": str(explainer), "sha256": digest})


def test_the_plan_names_the_file_and_its_bytes(
    tmp_path: Path, explainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = prepare(tmp_path, method=learned(explainer.relative_to(tmp_path))).plan
    assert plan.method == named(explainer)
    assert plan.approximates == WRITTEN
    read = stored_again(plan)
    assert read == plan and read.digest == plan.digest
    requested = plan.method.params["sha256"]
    assert prepare(tmp_path, method=learned(explainer, sha256=requested)).plan == plan


@pytest.mark.exhaustive
def test_an_exact_sample_uses_the_teacher_by_default(tmp_path: Path) -> None:
    teacher = MethodSpec(name="lrp", params={"epsilon": 0.1, "gamma": 0.0})
    explainer = explainer_for(tmp_path, teacher=teacher)
    plan = prepare(tmp_path, explain=mixed(explainer)).plan
    assert plan.method == named(explainer)
    assert plan.exact == ExactPlan(method=teacher, share=0.5)
    more = mixed(explainer, exact_params={"epsilon": 0.2})
    exact = prepare(tmp_path, explain=more).plan.exact
    assert exact is not None
    assert exact.method == MethodSpec(name="lrp", params={"epsilon": 0.2, "gamma": 0.0})
    other = prepare(tmp_path, explain=mixed(explainer, exact="gradient-x-input")).plan.exact
    assert other is not None and other.method == MethodSpec(name="gradient-x-input")
    with pytest.raises(ConfigurationError, match="can correct none"):
        prepare(tmp_path, explain=mixed(explainer, exact="learned"))


def damaged(explainer: Path) -> Path:
    data = explainer.read_bytes()
    assert data.count(b"forwards") == 1
    explainer.write_bytes(data.replace(b"forwards", b"forwerds"))
    return explainer


@pytest.mark.parametrize("place", ["method", "explain", "evaluation"])
@pytest.mark.parametrize(
    ("make", "printed"),
    [
        (lambda explainer: {"name": "learned"}, "needs explainer=FILE"),
        (lambda explainer: learned(explainer.with_name("gone.safetensors")), "gone"),
        (lambda explainer: learned(explainer.parents[1] / "model/model.safetensors"), "no expl"),
        (lambda explainer: learned(explainer.parents[1] / "texts.jsonl"), "not a safetensors file"),
        (lambda explainer: learned(explainer, sha256="0" * 64), "and 000000000000 was requested"),
        (lambda explainer: learned(damaged(explainer)), r"explainer\.safetensors is damaged"),
    ],
)
def test_faults_of_an_explainer_are_reported_before_a_model_is_loaded(
    tmp_path: Path,
    explainer: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], dict[str, Any]],
    printed: str,
    place: str,
) -> None:
    monkeypatch.setattr("transexplain.models.load.load_model", None)
    section = make(explainer)
    mix = {"method": "learned", "params": section.get("params", {}), "exact_sample": 0.5}
    keys: dict[str, Any] = {
        "method": {"method": section},
        "explain": {"explain": mix},
        "evaluation": {"evaluation": {"methods": [section]}},
    }[place]
    with pytest.raises(ConfigurationError, match=printed):
        prepare(tmp_path, **keys)


@pytest.mark.parametrize("task", ["audit", "evaluation"])
def test_the_explainer_of_another_model(tmp_path: Path, task: Task) -> None:
    explainer = explainer_for(tmp_path, base="f" * 64, base_name="another")
    section: dict[str, Any] = {"method": learned(explainer)}
    if task == "evaluation":
        section = {"evaluation": {"methods": [learned(explainer)]}}
    with pytest.raises(ConfigurationError, match=r"explainer\.safetensors"):
        prepare(tmp_path, task, **section)


def test_no_randomised_model_is_compared(tmp_path: Path, explainer: Path) -> None:
    prepared = prepare(tmp_path, method=learned(explainer))
    check = prepared.plan.check
    assert check is not None and check.swap and not check.randomised
    assert any("randomised weights" in one for one in prepared.warnings)
    plain = prepare(tmp_path, method="gradient-x-input")
    assert plain.plan.check is not None and plain.plan.check.randomised
    assert not any("randomised weights" in one for one in plain.warnings)
    silent = {"lexicon": str(tmp_path / "groups.json"), "randomised": False}
    quiet = prepare(tmp_path, method=learned(explainer), groups=silent)
    assert not any("randomised weights" in one for one in quiet.warnings)


@pytest.mark.exhaustive
def test_from_the_command_line_with_two_processes(
    tmp_path: Path, explainer: Path, call: Call
) -> None:
    spec = make_audit(tmp_path, items=24, evaluation={"items": 4}, explain=mixed(explainer))
    db = ("--db", f"sqlite:///{tmp_path / 'cli.db'}")
    code, printed = call("run", str(spec), "--processes", "2", "--report-dir", "r", *db)
    assert code == 0, printed
    assert "Relevance was predicted by an explainer that approximates lrp" in printed.replace(
        "\n", " "
    )
    (report,) = (one for one in Path("r").glob("*.json") if not one.name.startswith("manifest"))
    content = json.loads(report.read_text())
    assert content["approximates"]["rank_correlation"] == 0.5
    assert content["mixed"]["items"] > 0
    assert content["audited"]["method"] == "learned"
    assert content["conservation"] is None
    code, printed = call("verify", *db)
    assert code == 0, printed
    assert f"explainers: 1 as planned ({explainer})" in printed.replace("\n", "")


def prepared_evaluation(folder: Path, evaluation: dict[str, Any], **keys: Any) -> PreparedAudit:
    return prepare(folder, "evaluation", evaluation=evaluation, **keys)


def test_an_evaluation_from_the_command_line_to_its_tables(call: Call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, items=12, targets="predicted", groups=None)
    out = tmp_path / "tables"
    chosen = ("--method", "lrp", "--method", "rollout", "--metric", "activation")
    more = ("--metric", "sparsity", "--baseline", "unk", "--report-dir", str(out))
    code, printed = call("evaluate", str(spec), *chosen, *more)
    assert code == 0, printed
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
    assert call("report", "--report-dir", "again")[0] == 0
    assert len(list((tmp_path / "again").iterdir())) == 5, "four forms and the manifest"
    assert json.loads(call("report", "--json")[1])["tables"] == document["tables"]


@pytest.mark.exhaustive
def test_an_evaluation_that_was_stopped_goes_on(tmp_path: Path) -> None:
    evaluation = {"methods": ["lrp"], "metrics": ["activation", "pruning"]}
    prepared = prepared_evaluation(tmp_path, evaluation, items=24, targets="predicted")
    settings = settings_of(tmp_path)
    with open_database(settings.database_url, upgrade=True) as db:
        whole = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, whole, settings, model=prepared.model)
        parts = runs.create(db, prepared.plan, prepared.shards)

        stop = threading.Event()
        with pytest.raises(KeyboardInterrupt):
            report = Reports(items=lambda _: stop.set())
            run_here(db, parts, settings, model=prepared.model, report=report, stop=stop)
        assert runs.get(db, parts).state == "running"
        run_here(db, parts, settings, model=prepared.model)
        assert list(readers.iter_scores(db, parts)) == list(readers.iter_scores(db, whole))
        assert len(list(readers.iter_scores(db, whole))) == 24 * 2 * 2
        assert not list(readers.iter_attributions(db, whole))
        tables = tabulate(db, whole).tables
    assert [table.metric for table in tables] == ["activation", "pruning"]


def test_an_audit_whose_model_has_no_baseline_is_audited_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_token(*_: Any) -> Any:
        raise ConfigurationError("the tokenizer has no mask, unknown or padding token")

    monkeypatch.setattr("transexplain.methods.presence.absence", no_token)
    prepared = prepare(tmp_path, evaluation={})
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
        prepared_evaluation(tmp_path, evaluation, targets="predicted", items=3)


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
    plan = prepared_evaluation(tmp_path, keys, targets="predicted", items=3).plan.evaluation
    assert plan is not None
    found = {one.label: one.draws for one in plan.methods}
    assert found == {"lrp": 1, **draws}


MIXED = {"method": "gradient-x-input", "exact_sample": 0.5}
QUICK = {"explain": MIXED, "evaluation": {"items": 0}}


def document() -> dict[str, Any]:
    (found,) = Path("audits").glob("tiny-*.json")
    read: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize(
    "keys",
    [
        {"targets": "all"},
        {"targets": ["predicted", "top:2"], "long_text": "window", "window": 6, "stride": 2},
        {"store_text": "hashed"},
    ],
    ids=["all classes", "windows", "hashed texts"],
)
@pytest.mark.exhaustive
def test_runs_of_every_kind(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", "0" * 64)
    spec = make_audit(tmp_path, **QUICK, **keys)
    code, printed = call("run", str(spec))
    assert code == 0, printed
    mixed = document()["mixed"]
    assert mixed["failed"] == 0 and 5 < mixed["items"] < 35
    by_target: dict[str, int] = {}
    for row in mixed["classes"]:
        by_target[row["target"]] = by_target.get(row["target"], 0) + row["items"]
        assert abs(row["cheap"]) > 0 and abs(row["exact"]) > 0
    every = {"all": 3, "predicted": 1, "top:2": 2}
    for target, count in by_target.items():
        assert count == every.get(target, 1) * mixed["items"]
    code, printed = call("verify", "latest")
    assert code == 0, printed


@pytest.mark.exhaustive
def test_the_plan_is_read_back_and_counted(tmp_path: Path) -> None:
    explain = {"method": "gradient-x-input", "exact_sample": 0.25, "seed": 7}
    explain |= {"exact_params": {"epsilon": 0.1}}
    prepared = prepare(tmp_path, explain=explain)
    plan = prepared.plan
    assert plan.method == MethodSpec(name="gradient-x-input")
    wanted = MethodSpec(name="lrp", params={"epsilon": 0.1})
    assert plan.exact == ExactPlan(method=wanted, share=0.25, seed=7)
    read = stored_again(plan)
    assert read == plan and read.digest == plan.digest
    assert dict(seeds(plan.document()))["exact.seed"] == 7
    mixed = estimate(prepared)
    cheap, exact = (
        estimate(replace(prepared, plan=replace(plan, method=method, exact=None)))
        for method in (plan.method, wanted)
    )
    assert mixed.forwards == pytest.approx(cheap.forwards + 0.25 * exact.forwards)
    assert mixed.backwards == pytest.approx(cheap.backwards + 0.25 * exact.backwards)
    assert "lrp on 25.0% of the items" in mixed.summary_text()
    assert "of the items" not in cheap.summary_text()


@pytest.mark.parametrize(
    ("explain", "printed"),
    [
        ({"method": "rollout"}, "explain.method: 'rollout' measures score"),
        ({"method": "gradient-x-input", "exact": "rollout"}, "explain.exact: 'rollout'"),
        ({"method": "lrp"}, "are both 'lrp'"),
        ({"method": "lrp", "exact": "no-such"}, "no-such"),
        ({"method": "gradient-x-input", "exact_params": {"no": 1}}, "no parameter 'no'"),
    ],
)
@pytest.mark.exhaustive
def test_methods_that_cannot_be_mixed(explain: dict[str, Any], printed: str) -> None:
    document = {"model": "m", "data": "d.csv", "explain": {"exact_sample": 0.1, **explain}}
    with pytest.raises(ConfigurationError, match=printed):
        AuditSpec.model_validate(document).exact_plan()
