"""Audits by an explainer: found, named by its bytes, refused early, run and verified."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gallery import prepare as prepared_audit
from learned_audits import explainer_for, learned, mixed
from store_samples import stored_again
from tiny_audit import make_audit

from orchestrator.plan import PreparedAudit
from orchestrator.plan.estimate import estimate
from orchestrator.spec import AuditSpec
from transexplain.errors import ConfigurationError
from transexplain.provenance.manifest import seeds
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


def prepare(folder: Path, task: Task = "audit", **keys: Any) -> PreparedAudit:
    spec = make_audit(folder, **({"evaluation": {"items": 0}} | keys))
    return prepared_audit(spec, folder, task=task)


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
    assert exact.method == MethodSpec(name="lrp", params={"epsilon": 0.2, "gamma": 0.0})
    other = prepare(tmp_path, explain=mixed(explainer, exact="gradient-x-input")).plan.exact
    assert other is not None and other.method == MethodSpec(name="gradient-x-input")
    with pytest.raises(ConfigurationError, match="can correct none"):
        prepare(tmp_path, explain=mixed(explainer, exact="learned"))


@pytest.mark.parametrize("place", ["method", "explain", "evaluation"])
def test_an_explainer_of_other_bytes_is_refused_before_a_model_is_loaded(
    tmp_path: Path, explainer: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("transexplain.models.load.load_model", None)
    section = learned(explainer, sha256="0" * 64)
    keys: dict[str, Any] = {
        "method": section,
        "explain": {"method": "learned", "params": section["params"], "exact_sample": 0.5},
        "evaluation": {"methods": [section]},
    }
    with pytest.raises(ConfigurationError, match="000000000000 was requested"):
        prepare(tmp_path, **{place: keys[place]})


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
        prepare(tmp_path, "evaluation", evaluation=evaluation, targets="predicted", items=3)


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
    plan = prepare(
        tmp_path, "evaluation", evaluation=keys, targets="predicted", items=3
    ).plan.evaluation
    found = {one.label: one.draws for one in plan.methods}
    assert found == {"lrp": 1, **draws}


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
