"""Audits that mix methods, from the specification to the plan and its cost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.plan.estimate import estimate
from orchestrator.spec import AuditSpec, load_spec
from transexplain.errors import ConfigurationError
from transexplain.provenance.manifest import seeds
from transexplain.settings import Settings
from transexplain.store.runs import plan_from_json, plan_to_json
from transexplain.types.scores import ExactPlan, MethodSpec

pytestmark = pytest.mark.exhaustive


def prepare(folder: Path, **keys: object) -> Prepared:
    spec = load_spec(make_audit(folder, **keys), settings=("evaluation.items=0",))
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))


def test_the_plan_is_read_back_and_counted(tmp_path: Path) -> None:
    explain = {
        "method": "gradient-x-input",
        "exact_params": {"epsilon": 0.1},
        "exact_sample": 0.25,
        "seed": 7,
    }
    prepared = prepare(tmp_path, explain=explain)
    plan = prepared.plan
    assert plan.method == MethodSpec(name="gradient-x-input")
    wanted = MethodSpec(name="lrp", params={"epsilon": 0.1})
    assert plan.exact == ExactPlan(method=wanted, share=0.25, seed=7)
    read = plan_from_json(plan_to_json(plan))
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
def test_methods_that_cannot_be_mixed(explain: dict[str, Any], printed: str) -> None:
    document = {"model": "m", "data": "d.csv", "explain": {"exact_sample": 0.1, **explain}}
    with pytest.raises(ConfigurationError, match=printed):
        AuditSpec.model_validate(document).exact_plan()


def test_one_method_with_two_sets_of_parameters_can_be_mixed() -> None:
    explain = {"method": "lrp", "params": {"gamma": 0.25}, "exact_sample": 0.1}
    spec = AuditSpec.model_validate({"model": "m", "data": "d.csv", "explain": explain})
    found = spec.exact_plan()
    assert found is not None and found.method == MethodSpec(name="lrp")
