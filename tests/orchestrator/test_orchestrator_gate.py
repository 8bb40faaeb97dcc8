"""The gate: every rule kept and broken, what was not measured, and policies that are wrong."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_samples import ANNS, BOBS, WORTH, biased_run, explained_text, stored_run
from sqlalchemy import delete
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.gating import Check, judge, load_policy
from orchestrator.gating.checks import checks
from orchestrator.gating.policy import Policy
from transexplain.errors import ConfigurationError
from transexplain.evaluations import MethodSpec
from transexplain.plans import AuditPlan, DatasetRef, ModelRef, Shard
from transexplain.reports.faithfulness_records import Faithfulness, FaithfulnessRow
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.database import Database, open_database
from transexplain.store.schema import run
from transexplain.types import EntityGroup


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'gate.db'}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with open_database(url, upgrade=True) as database:
        yield database


def check(db: Database, run_id: str, **rules: Any) -> Check:
    """The one check of a policy of one rule."""
    found = judge(db, run_id, Policy.model_validate(rules))
    assert found.checks[0].rule == "finished" and found.checks[0].passed
    (one,) = found.checks[1:]
    assert found.passed == one.passed
    return one


#: what `biased_run` measures: 36 of 38 explained, accuracy 1, sensitivity as given, 0.49 apart
NUMBERS = [
    ("max_failed", 2 / 38, 0.06, 0.05),
    ("max_truncated", 0.0, 0.0, None),
    ("max_gap_above", 0.0, 0, None),
    ("min_accuracy", 1.0, 1.0, None),
    ("min_class_sensitivity", 0.6, 0.6, 0.61),
    ("max_difference", 0.49, 0.5, 0.48),
]


@pytest.mark.parametrize(("rule", "measured", "kept", "broken"), NUMBERS)
def test_a_limit_is_kept_up_to_its_number_and_broken_beyond(
    db: Database, rule: str, measured: float, kept: float, broken: float | None
) -> None:
    run_id = biased_run(db, sensitivity=0.6)
    found = check(db, run_id, **{rule: kept})
    assert found.passed and found.measured == pytest.approx(measured)
    assert found.threshold == kept
    if broken is not None:
        again = check(db, run_id, **{rule: broken})
        assert not again.passed and again.threshold == broken


def test_accuracy_gaps_and_cuts_that_break_their_limit(db: Database) -> None:
    texts = [
        explained_text(0, "good", "negative", truncated=True),
        explained_text(1, "good", "positive"),
    ]
    bad = [
        (outcome, replace(one, ledger=one.ledger and replace(one.ledger, gap=0.1)))
        for outcome, one in texts
    ]
    run_id = stored_run(db, bad)
    assert not check(db, run_id, min_accuracy=0.51).passed
    assert check(db, run_id, min_accuracy=0.5).passed
    assert not check(db, run_id, max_truncated=0.49).passed
    gaps = check(db, run_id, max_gap_above=1)
    assert (gaps.passed, gaps.measured) == (False, 2.0)
    assert check(db, run_id, max_gap_above=2).passed


def test_forbidden_verdicts_are_named_and_scopes_narrow_them(db: Database) -> None:
    run_id = biased_run(db)
    found = check(db, run_id, verdicts={"forbid": "difference"})
    assert not found.passed and found.measured == 2.0
    assert "anns for positive (class:positive) difference" in found.text
    assert check(db, run_id, verdicts={"forbid": ["inconclusive"]}).passed
    scoped = check(db, run_id, verdicts={"groups": ["anns"], "targets": "class:positive"})
    assert scoped.measured == 1.0 and "1 of 1 comparisons" in scoped.text
    for wrong in ({"groups": ["nobody"]}, {"targets": ["predicted"]}, {"groups": "places"}):
        assert "not measured: no comparison of" in check(db, run_id, verdicts=wrong).text


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"min_accuracy": 0.0}, "name `data.label`"),
        ({"max_gap_above": 9}, "gae keeps no ledger; audit with a method that conserves"),
        ({"min_class_sensitivity": 0.0}, "the run has no sample of it"),
        ({"verdicts": {}}, "audit with groups.lexicon"),
        ({"max_difference": 99.0}, "audit with groups.lexicon"),
        ({"faithfulness": {}}, "set evaluation.items"),
        ({"drift": {"max_flips": 1.0}}, "run with --previous"),
    ],
)
def test_what_was_not_measured_fails_and_says_what_to_run(
    db: Database, rule: dict[str, Any], reason: str
) -> None:
    outcome, one = explained_text(0, "Ann was good", None)
    method = MethodSpec(name="gae")
    run_id = stored_run(db, [(outcome, replace(one, ledger=None))], method=method)
    found = check(db, run_id, **rule)
    assert not found.passed and found.measured is None
    assert found.text.startswith("not measured: ") and reason in found.text


def test_too_few_entities_are_no_pass(db: Database) -> None:
    group = EntityGroup(name="anns", terms=ANNS)
    run_id = stored_run(db, [explained_text(0, "Ann was good", None)], groups=(group,))
    for rule in ({"verdicts": {}}, {"max_difference": 9.0}):
        found = check(db, run_id, **rule)
        assert not found.passed and "too few entities" in found.text


def test_half_precision_has_no_tolerance_to_keep(db: Database) -> None:
    model = ModelRef(source="m", classes=("negative", "positive"), dtype="bfloat16", digest="d")
    found = check(db, biased_run(db, model=model), max_gap_above=0)
    assert not found.passed and "no tolerance for bfloat16" in found.text


def faithful(metric: str, beats: bool | None) -> FaithfulnessRow:
    values: dict[str, Any] = dict.fromkeys(FaithfulnessRow.__dataclass_fields__)
    return FaithfulnessRow(
        **values
        | {"metric": metric, "title": metric.title(), "target": "predicted", "beats": beats}
    )


def test_faithfulness_wants_every_metric_that_was_judged(db: Database) -> None:
    rows = (faithful("activation", True), faithful("pruning", False), faithful("runtime", None))
    summary = replace(
        summarise(db, biased_run(db), gallery=0),
        faithfulness=Faithfulness(method="lrp", items=32, rows=rows),
    )

    def said(**rule: Any) -> Check:
        (one,) = checks(Policy.model_validate({"faithfulness": rule}), summary)
        return one

    assert (said().passed, said().measured, said().threshold) == (False, 1.0, 2.0)
    assert "not on Pruning (predicted)" in said().text
    assert said(metrics=["activation"]).passed
    assert "metric runtime" in said(metrics="runtime").text and not said(metrics="runtime").passed
    policy = Policy.model_validate({"faithfulness": {"beats_random": False}})
    assert list(checks(policy, summary)) == []


@pytest.fixture
def innocent(db: Database) -> str:
    """A run to whose model no name is worth anything and `bad` is good."""
    with pytest.MonkeyPatch.context() as patch:
        for word in (*ANNS, *BOBS):
            patch.setitem(WORTH, word, 0.0)
        patch.setitem(WORTH, "bad", 1.0)
        return biased_run(db)


def test_drift_against_the_run_before_or_a_named_one(db: Database, innocent: str) -> None:
    after = biased_run(db, previous=innocent)
    for against in ({}, {"against": innocent}):
        found = check(db, after, drift={"max_flips": 0.3, **against})
        assert (found.rule, found.passed) == ("drift.max_flips", False)
        assert found.measured == pytest.approx(1 / 3)
    assert check(db, after, drift={"max_flips": 0.34}).passed
    assert check(db, after, drift={"max_accuracy_drop": 0.0}).passed, "it rose"
    back = check(db, innocent, drift={"against": after, "max_accuracy_drop": 0.3})
    assert (back.passed, back.measured) == (False, pytest.approx(1 / 3))
    assert not check(db, after, drift={"min_agreement": 0.9}).passed
    change = check(db, after, drift={"max_group_change": 0.49})
    assert not change.passed and "the largest change: anns" in change.text
    new = check(db, after, drift={"forbid_new_differences": True})
    assert not new.passed and "2 new differences, none allowed: anns for positive" in new.text
    assert check(db, innocent, drift={"against": after, "forbid_new_differences": True}).passed


def test_drift_that_cannot_be_told_fails(db: Database, innocent: str) -> None:
    other = biased_run(db, previous=innocent, max_length=64)
    found = check(db, other, drift={"max_flips": 1.0})
    assert not found.passed and "long texts" in found.text
    assert check(db, other, drift={"max_flips": 1.0, "force": True}).passed
    with pytest.raises(ConfigurationError, match="no run 'nowhere'"):
        check(db, other, drift={"max_flips": 1.0, "against": "nowhere"})
    with db.begin() as connection:
        connection.execute(delete(run).where(run.c.id == innocent))
    assert "--previous" in check(db, other, drift={"max_flips": 1.0}).text


def test_a_run_that_is_not_over_does_not_pass(db: Database) -> None:
    run_id = biased_run(db, leave=1)
    found = judge(db, run_id, Policy(max_gap_above=0))
    assert not found.passed and [one.passed for one in found.checks] == [False, True]
    assert "the run is running" in found.checks[0].text
    runs.cancel(db, run_id)
    assert "the run is cancelled" in judge(db, run_id, Policy(max_gap_above=0)).checks[0].text


def test_an_evaluation_is_no_audit(db: Database) -> None:
    data = DatasetRef(source="x", modality="text", snapshot="s", fingerprint="f", rows=1)
    plan = AuditPlan(name="e", model=ModelRef(source="m"), dataset=data, task="evaluation")
    run_id = runs.create(db, plan, (Shard(index=0, start=0, stop=1),))
    with pytest.raises(ConfigurationError, match="a gate judges audits"):
        judge(db, run_id, Policy(max_failed=1.0))


def written(folder: Path, policy: object) -> Path:
    path = folder / "policy.yaml"
    path.write_text(policy if isinstance(policy, str) else yaml.safe_dump(policy), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"max_fail": 0}, "max_fail: unknown key; known here: max_failed, max_truncated"),
        (
            {"verdicts": {"ban": 1}},
            "verdicts.ban: unknown key; known here: forbid, groups, targets",
        ),
        ({"drift": {"max_flip": 1}}, "known here: against, max_flips"),
        ({"max_failed": 2}, "less than or equal to 1"),
        ({"verdicts": {"forbid": ["guilty"]}}, "'difference', 'equivalent'"),
        ({"drift": {"against": "previous"}}, "names no limit; set one of max_flips"),
        ({}, "names no rule; known: max_failed"),
        ("", "names no rule"),
        ("- max_failed", "holds no mapping"),
        ("max_failed: [", "is not valid YAML"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_with_the_known_keys(
    tmp_path: Path, policy: object, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_policy(written(tmp_path, policy))
    assert said in str(refused.value)


def test_a_policy_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the policy"):
        load_policy(tmp_path / "none.yaml")


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_verb_prints_every_rule_and_its_exit_code_is_the_verdict(
    db: Database, url: str, tmp_path: Path
) -> None:
    biased_run(db)
    kept = written(tmp_path, {"max_failed": 0.1, "min_accuracy": 0.9})
    found = call("gate", "latest", "--policy", str(kept), "--db", url)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["PASS", "finished"],
        ["PASS", "max_failed"],
        ["PASS", "min_accuracy"],
    ]
    assert "0.05263 of the items have no explanation (2 of 38), at most 0.1 allowed" in lines[1]
    assert lines[3].endswith("every rule is kept")
    broken = written(tmp_path, {"max_failed": 0.01, "verdicts": {}, "min_accuracy": 0.9})
    found = call("gate", "--policy", str(broken), "--db", url)
    assert found.exit_code == 1
    assert [line[:4] for line in found.output.splitlines()[:4]] == ["PASS", "FAIL", "PASS", "FAIL"]
    assert "2 of 4 rules are broken" in found.output
    found = call("gate", "--policy", str(broken), "--db", url, "--json")
    document = json.loads(found.output)
    assert (found.exit_code, document["passed"]) == (1, False)
    assert {one["rule"]: one["passed"] for one in document["checks"]}["max_failed"] is False


def test_compare_prints_writes_and_refuses(
    db: Database, url: str, tmp_path: Path, innocent: str
) -> None:
    after = biased_run(db)
    out = tmp_path / "out"
    found = call("compare", innocent, after, "--db", url, "--report-dir", str(out))
    assert found.exit_code == 0, found.output
    assert "12 of 36 items in both (33.3\u00a0%) are predicted differently" in found.output
    assert "anns" in found.output and "+0.500" in found.output
    assert {path.suffix for path in out.iterdir()} == {".html", ".json"}
    said = call("compare", innocent, "--db", url, "--json")
    assert json.loads(said.output) == json.loads(next(out.glob("*.json")).read_text())
    other = biased_run(db, max_length=64)
    refused = call("compare", after, other, "--db", url)
    assert isinstance(refused.exception, ConfigurationError)
    assert call("compare", after, other, "--db", url, "--force", "--json").exit_code == 0


def test_compare_with_the_run_that_a_schedule_or_person_named(
    db: Database, url: str, innocent: str
) -> None:
    named = biased_run(db, previous=innocent)
    said = call("compare", "previous", named, "--db", url, "--json")
    assert json.loads(said.output)["before"]["run_id"] == innocent
    alone = call("compare", "previous", innocent, "--db", url)
    assert "names no run before it" in str(alone.exception)


def test_the_policy_of_the_examples_holds_every_key_that_there_is() -> None:
    found = load_policy(Path(__file__).resolve().parents[2] / "examples/policy.yaml")
    unset = {name for name in Policy.model_fields if getattr(found, name) is None}
    assert unset == {"max_truncated"}
