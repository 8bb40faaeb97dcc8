"""Audits by an explainer: found, named by its bytes, refused early, run and verified."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learned_audits import explainer_for, learned, mixed
from store_samples import make_plan
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.plan.estimate import estimate
from orchestrator.spec import load_spec
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from transexplain.store.runs import plan_from_json, plan_to_json
from transexplain.types.plans import Task
from transexplain.types.scores import Approximation, ExactPlan, MethodSpec

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


def prepare(folder: Path, task: Task = "audit", **keys: Any) -> Prepared:
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
    read = plan_from_json(plan_to_json(plan))
    assert read == plan and read.digest == plan.digest
    requested = plan.method.params["sha256"]
    assert prepare(tmp_path, method=learned(explainer, sha256=requested)).plan == plan


def test_what_a_method_approximates_is_part_of_the_plan() -> None:
    plan = make_plan()
    assert plan.document()["approximates"] is None
    assert replace(plan, approximates=WRITTEN).digest != plan.digest


def test_an_explainer_whose_nearness_was_not_measured(tmp_path: Path) -> None:
    explainer = explainer_for(tmp_path, agreement=None)
    prepared = prepare(tmp_path, method=learned(explainer))
    unknown = replace(WRITTEN, items=0, rank_correlation=None, relative_error=None)
    assert prepared.plan.approximates == unknown
    assert "how near it comes to lrp was not measured" in estimate(prepared).summary_text()


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


def no_explainer(explainer: Path) -> dict[str, Any]:
    return {"name": "learned"}


def no_file(explainer: Path) -> dict[str, Any]:
    return learned(explainer.with_name("gone.safetensors"))


def a_model(explainer: Path) -> dict[str, Any]:
    return learned(explainer.parent.parent / "model" / "model.safetensors")


def a_text(explainer: Path) -> dict[str, Any]:
    return learned(explainer.parent.parent / "texts.jsonl")


def other_bytes(explainer: Path) -> dict[str, Any]:
    return learned(explainer, sha256="0" * 64)


def a_damaged_header(explainer: Path) -> dict[str, Any]:
    data = explainer.read_bytes()
    assert data.count(b"forwards") == 1
    explainer.write_bytes(data.replace(b"forwards", b"forwerds"))
    return learned(explainer)


@pytest.mark.parametrize("place", ["method", "explain", "evaluation"])
@pytest.mark.parametrize(
    ("make", "printed"),
    [
        (no_explainer, "needs explainer=FILE"),
        (no_file, r"cannot read the explainer .*gone\.safetensors"),
        (a_model, r"model\.safetensors holds no explainer"),
        (a_text, r"texts\.jsonl is not a safetensors file"),
        (other_bytes, "and 000000000000 was requested"),
        (a_damaged_header, r"explainer\.safetensors is damaged"),
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
    def load_model(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("transexplain.models.load.load_model", load_model)
    section = make(explainer)
    params = section.get("params", {})
    keys: dict[str, Any] = {
        "method": {"method": section},
        "explain": {"explain": {"method": "learned", "params": params, "exact_sample": 0.5}},
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
    with pytest.raises(ConfigurationError, match=r"explainer\.safetensors was trained for another"):
        prepare(tmp_path, task, **section)


def test_rows_of_an_evaluation_are_named_by_their_bytes(
    tmp_path: Path, explainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [learned("trained/explainer.safetensors"), "gradient-x-input"]
    evaluation = {"methods": rows, "metrics": ["pruning"]}
    plan = prepare(tmp_path, "evaluation", evaluation=evaluation, targets="predicted").plan
    assert plan.evaluation is not None
    assert [one.method for one in plan.evaluation.methods[:2]] == [
        named(explainer),
        MethodSpec(name="gradient-x-input"),
    ]


def test_all_methods_but_the_one_that_needs_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transexplain.methods import METHODS

    monkeypatch.setattr(
        "orchestrator.spec.evaluation_section.METHODS", ("learned", "gradient-x-input")
    )
    assert "learned" in METHODS
    evaluation = {"methods": "all", "metrics": ["pruning"]}
    prepared = prepare(tmp_path, "evaluation", evaluation=evaluation, targets="predicted")
    assert prepared.plan.evaluation is not None
    labels = [one.label for one in prepared.plan.evaluation.methods]
    assert labels == ["gradient-x-input", "random"]
    assert any("learned is left out: method 'learned' needs" in one for one in prepared.warnings)


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
def test_the_verb_plan_says_cost_and_nearness(tmp_path: Path, explainer: Path, call: Call) -> None:
    spec = make_audit(tmp_path, evaluation={"items": 0})
    by = ("--set", f"method.params.explainer={explainer}")
    code, printed = call("plan", str(spec), "--method", "learned", *by)
    assert code == 0, printed
    assert "approximates lrp: rank correlation 0.50 (mean) and relative error 0.75" in printed
    assert "12 items held out" in printed
    assert "1.25 forward and 0 backward passes an item" in printed
    spec = make_audit(tmp_path, evaluation={"items": 0}, explain=mixed(explainer, 0.3))
    code, printed = call("plan", str(spec))
    assert code == 0, printed
    assert "approximates lrp" in printed and "lrp on 30.0% of the items" in printed
    assert "1.55 forward and 0.6 backward passes an item" in printed
    _, printed = call("plan", str(spec), "--json")
    reported = json.loads(printed[printed.index("{\n") : printed.rindex("}") + 1])
    assert reported["approximates"]["teacher"] == "lrp"


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
