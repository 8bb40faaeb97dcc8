"""Reports of a real tiny evaluation, and of an audit that carries a sample's scores."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from evaluation_samples import plan_of, scores, stored
from report_samples import Visible
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_local
from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec
from transexplain.reports import EVALUATION_REPORTS, REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.plans import Task
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MethodSpec, MetricSpec

pytestmark = pytest.mark.exhaustive

METRICS = ("activation", "pruning", "sparsity", "ledger-gap")
METHODS = ("lrp", "attention-last", "random")


def run_tiny(db: Database, folder: Path, task: Task, sample: int | None, **spec: Any) -> str:
    path = make_audit(folder, items=12, targets=["predicted"], **spec)
    settings = Settings(snapshot_dir=folder / "snapshots")
    prepared = prepare_audit(
        AuditSpec.model_validate(json.loads(path.read_text(encoding="utf-8"))), settings
    )
    evaluation = EvaluationPlan(
        methods=tuple(EvaluatedMethod(label=x, method=MethodSpec(name=x)) for x in METHODS),
        metrics=tuple(MetricSpec(name=name) for name in METRICS),
        items=sample,
    )
    plan = dataclasses.replace(prepared.plan, task=task, evaluation=evaluation)
    run_id = runs.create(db, plan, prepared.shards)
    run_local(db, run_id, settings, model=prepared.model)
    return run_id


def test_a_tiny_evaluation_from_run_to_reports(db: Database, tmp_path: Path) -> None:
    summary = tabulate(db, run_tiny(db, tmp_path, "evaluation", None))
    assert [one.metric for one in summary.tables] == list(METRICS)
    assert summary.evaluated.measured == 12
    activation, _, _, gap = summary.tables
    assert activation.x == pytest.approx([share / 10 for share in range(11)])
    for row in activation.rows:  # one item has one word, which has no order
        assert row.items + sum(row.missing.values()) == 12
        assert len(row.curve) == 11
        # by the trapezoidal rule the mean of the areas is the area of the mean curve
        area = (sum(row.curve) - (row.curve[0] + row.curve[-1]) / 2) / 10
        assert row.mean == pytest.approx(area, abs=1e-9)
    without = {row.method: dict(row.missing) for row in gap.rows if row.missing}
    assert without["attention-last"] == {"the method keeps no ledger": 12}
    for form in EVALUATION_REPORTS:
        text = EVALUATION_REPORTS.load(form)(summary)
        assert "attention-last" in text
    page = Visible(EVALUATION_REPORTS.load("html")(summary))
    assert sum(given.get("class") == "marks" for _, given in page.tags) == 2
    assert "12 \N{MULTIPLICATION SIGN} the method keeps no ledger" in page.text


def test_an_audit_with_a_sample_says_whether_its_method_is_faithful(
    db: Database, tmp_path: Path
) -> None:
    summary = summarise(db, run_tiny(db, tmp_path, "audit", 8))
    found = summary.faithfulness
    assert found is not None
    assert (found.method, found.items) == ("lrp", 8)
    assert [row.metric for row in found.rows] == list(METRICS)
    by_metric = {row.metric: row for row in found.rows}
    assert by_metric["sparsity"].beats is by_metric["ledger-gap"].beats is None
    assert by_metric["activation"].beats is not None
    page = Visible(REPORTS.load("html")(summary)).text
    assert "Is the method faithful here?" in page
    assert "Measured on 8 texts of this audit" in page
    assert "On a sample of 8 texts, lrp beats a random ranking on" in page
    data = json.loads(REPORTS.load("json")(summary))
    assert data["faithfulness"]["rows"][0]["mean"] == found.rows[0].mean


def test_the_comparison_with_random_by_hand(db: Database) -> None:
    plan = plan_of(
        ["lrp", "random"], MetricSpec(name="comprehensiveness"), MetricSpec(name="sufficiency")
    )
    own = [0.5 + 0.01 * n for n in range(8)]
    given = [
        *scores("comprehensiveness", {"lrp": own, "random": [0.3] * 8}),
        *scores("sufficiency", {"lrp": [0.6] * 7 + ["one position"], "random": [0.2, 1.0] * 4}),
    ]
    summary = summarise(db, stored(db, plan, given, 8, task="audit"))
    assert summary.faithfulness is not None
    first, second = summary.faithfulness.rows
    assert (first.mean, first.random) == pytest.approx((0.535, 0.3))
    assert first.difference == pytest.approx(0.235)
    # 2 of 2^8 changes of sign, times two rows
    assert first.p == pytest.approx(4 / 256)
    assert first.beats is True
    # seven common items: 0.4 four times and -0.4 three times; every change of sign is as far
    assert (second.common, second.missing) == (7, 1)
    assert second.difference == pytest.approx(0.4 / 7)
    assert second.p == pytest.approx(1.0)
    assert second.beats is False
    assert summary.headline[-1].kind == "problem"
    assert "on 1 of 2 measures of faithfulness" in summary.headline[-1].text
    assert "it does not beyond chance on Sufficiency (AOPC)" in summary.headline[-1].text


def test_an_audit_without_scores_says_nothing_of_faithfulness(db: Database) -> None:
    plan = plan_of(["lrp", "random"], MetricSpec(name="comprehensiveness"))
    for evaluation in (plan, None):
        summary = summarise(db, stored(db, plan, [], 2, task="audit", evaluation=evaluation))
        assert summary.faithfulness is None
        page = REPORTS.load("html")(summary)
        assert 'id="faithful"' not in page and "beats random" not in page
        assert "Whether explanations are faithful" in page  # among what was not tested
