"""The gate: every rule kept and broken, what was not measured, and policies that are wrong."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from gallery import Gallery
from hypothesis import example, given
from hypothesis import strategies as st
from report_samples import ANNS, BOBS, WORTH, biased_run, explained_text, stored_run
from sqlalchemy import delete
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.gate.policy import Policy, load_policy
from orchestrator.gate.policy_verdict import GateVerdict, PolicyCheck, checks, judge, junit_xml
from transexplain.analysis.groups.measures import Measure
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.errors import ConfigurationError
from transexplain.reports.run_metrics import run_metrics
from transexplain.reports.sections.measured_faithfulness import Faithfulness, FaithfulnessRow
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.schema import run
from transexplain.types.plans import AuditPlan, DatasetRef, ImpactPlan, ModelRef, Shard
from transexplain.types.scores import MethodSpec

Judged = Callable[..., PolicyCheck]


@pytest.fixture
def biased(gallery: Gallery) -> Iterator[Database]:
    """A store with a run that is over, for reading."""
    with gallery["biased"].open() as database:
        yield database


def check(db: Database, run_id: str, **rules: Any) -> PolicyCheck:
    """The one check of a policy of one rule."""
    found = judge(db, run_id, Policy.model_validate(rules))
    assert found.checks[0].rule == "finished" and found.checks[0].passed
    (one,) = found.checks[1:]
    assert found.passed == one.passed
    return one


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


def test_forbidden_relevance_is_named_and_scopes_narrow_it(biased: Database) -> None:
    found = check(biased, "latest", relevance={"forbid": "difference"})
    assert not found.passed and found.measured == 2.0
    assert "anns for positive (class:positive) difference" in found.text
    assert check(biased, "latest", relevance={"forbid": ["inconclusive"]}).passed
    scoped = check(biased, "latest", relevance={"groups": ["anns"], "targets": "class:positive"})
    assert scoped.measured == 1.0 and "1 of 1 comparisons" in scoped.text
    for wrong in ({"groups": ["nobody"]}, {"targets": ["predicted"]}, {"groups": "places"}):
        unknown = check(biased, "latest", relevance=wrong)
        assert unknown.measured is None and not unknown.passed


def test_forbidden_verdicts_are_named_with_their_reason(db: Database) -> None:
    run_id = biased_run(db, checked=ControlResults())
    found = check(db, run_id, verdicts={})
    assert (found.passed, found.open) == (True, True), "open is not forbidden by default"
    assert "not settled for anns and bobs" in found.text
    found = check(db, run_id, verdicts={}, on_open="fail")
    assert (found.passed, found.open) == (False, True)
    found = check(db, run_id, verdicts={"mention": "open"})
    assert (found.passed, found.open) == (False, False)
    assert (found.measured, found.threshold) == (2.0, 0.0)
    assert "2 of 2 groups" in found.text and "no mention was swapped" in found.text
    scoped = check(db, run_id, verdicts={"mention": "open", "groups": "anns"})
    assert scoped.measured == 1.0 and "1 of 1 group " in scoped.text
    absent = check(db, run_id, verdicts={"groups": ["anns", "places"]})
    assert not absent.passed and "not measured: no verdict on group places" in absent.text


@pytest.fixture
def judged(gallery: Gallery) -> Judged:
    """The one check of the biased run, whose comparisons may have other measures, by stratum."""

    def one_check(
        policy: dict[str, Any], kind: str = "", /, strata: Sequence[str] = ("",), **changes: Any
    ) -> PolicyCheck:
        summary = gallery.summary("biased")
        if kind:
            row, measures = getattr(summary.groups, kind)[0], changes.pop("measures")
            changes[kind] = tuple(
                replace(row, stratum=stratum, measures=(measure,))
                for stratum, measure in zip(strata, measures, strict=True)
            )
        groups = replace(summary.groups, **changes)
        (only,) = checks(Policy.model_validate(policy), replace(summary, groups=groups))
        return only

    return one_check


def measure(name: Any, value: float, interval: Any, limit: float = 0.05) -> Measure:
    """A measure with the state that its interval has by its own limit."""
    low, high = (limit, 1 / limit) if name == "impact ratio" else (-limit, limit)
    state: Any = "open"
    if interval and (interval[0] > high or interval[1] < low):
        state = "outside"
    elif interval and low <= interval[0] and interval[1] <= high:
        state = "inside"
    known = {"name": name, "value": value, "interval": interval, "low": low, "high": high}
    return Measure(**known, state=state, level=0.9, p=None, doubtful=False)


@pytest.mark.parametrize(
    ("value", "low", "high", "passed", "is_open"),
    [
        (0.0, -0.03, 0.03, True, False),
        (-0.1, -0.25, 0.04, True, True),
        (-0.3, -0.35, -0.25, False, False),
    ],
)
def test_rates_fail_by_an_interval_beyond_the_limit_alone(
    judged: Judged, value: float, low: float, high: float, passed: bool, is_open: bool
) -> None:
    rate = measure("rate", value, (low, high))
    ratio = measure("impact ratio", 1 + value, (1 + low, 1 + high), 0.8)
    for rule, limited in (
        ({"max_rate_difference": 0.05}, rate),
        ({"min_impact_ratio": 0.8}, ratio),
    ):
        result = judged(rule, "outcomes", measures=[limited])
        assert (result.passed, result.open, result.measured) == (passed, is_open, limited.value)
        again = judged({**rule, "on_open": "fail"}, "outcomes", measures=[limited])
        assert again.passed == (passed and not is_open)


def test_a_stratum_fails_only_where_the_report_shows_a_difference(judged: Judged) -> None:
    rule, north = {"max_rate_difference": 0.05}, ("north",)
    outside = measure("rate", -0.3, (-0.35, -0.25))
    result = judged(rule, "outcomes", strata=north, measures=[outside])
    assert not result.passed and "in north" in result.text
    doubted = replace(outside, state="open")
    result = judged(rule, "outcomes", strata=north, measures=[doubted])
    assert (result.passed, result.open) == (True, False)
    few = judged(rule, "outcomes", measures=[replace(doubted, interval=None)])
    assert not few.passed and few.measured is None, "rates over nine items say nothing"
    result = judged({"min_impact_ratio": 0.8}, "outcomes", measures=[outside])
    assert not result.passed and "groups.favourable" in result.text


@pytest.mark.parametrize(
    ("rule", "name", "value"),
    [
        ("max_swap_logit", "logit", 0.3),
        ("max_swap_probability", "probability", 0.075),
        ("max_swap_changed", "changed", 0.2),
    ],
)
def test_what_swapping_does_is_limited(judged: Judged, rule: str, name: str, value: float) -> None:
    near = measure(name, value, (value - 0.001, value + 0.001))
    for limit, kept in ((value + 0.01, True), (value - 0.01, False)):
        result = judged({rule: limit}, "counterfactuals", measures=[near])
        assert (result.passed, result.open, result.measured) == (kept, False, value)
    away = replace(near, value=-3 * value, interval=(-4 * value, -2 * value))
    result = judged(
        {rule: 1.5 * value}, "counterfactuals", strata=("", "s2"), measures=[near, away]
    )
    assert not result.passed and result.measured == -3 * value and "in s2" in result.text
    few = judged({rule: 1.0}, "counterfactuals", measures=[replace(near, interval=None)])
    assert not few.passed and few.text.startswith("not measured: no mention was swapped")


@pytest.mark.exhaustive
def test_gaps_in_what_a_verdict_rests_on_are_forbidden(judged: Judged, gallery: Gallery) -> None:
    rule = {"forbid_gaps": True}
    found = judged(rule)
    assert not found.passed and "2 of 38 items have no answer" in found.text
    summary = gallery.summary("biased")
    most = replace(summary.groups.verdicts[0], missing=("Ann is 42 % of its mentions",))
    found = judged(rule, verdicts=(most,))
    assert found.measured == 2.0 and "anns: Ann is 42 % of its mentions" in found.text
    whole = replace(summary, counts=replace(summary.counts, total=36, failed=0))
    (kept,) = checks(Policy.model_validate(rule), whole)
    assert kept.passed and kept.measured == 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"min_accuracy": 0.0}, "name `data.label`"),
        ({"max_gap_above": 9}, "gae keeps no ledger; audit with a method that conserves"),
        ({"min_class_sensitivity": 0.0}, "the run has no sample of it"),
        ({"verdicts": {}}, "audit with groups.lexicon"),
        ({"relevance": {}}, "audit with groups.lexicon"),
        ({"min_impact_ratio": 0.0}, "audit with groups.lexicon"),
        ({"max_rate_difference": 1.0}, "audit with groups.lexicon"),
        ({"max_swap_logit": 9.0}, "give two groups terms in a lexicon"),
        ({"max_swap_probability": 1.0}, "give two groups terms in a lexicon"),
        ({"forbid_suppressed": True}, "audit with groups.lexicon"),
        ({"max_difference": 99.0}, "audit with groups.lexicon"),
        ({"faithfulness": {}}, "set evaluation.items"),
        ({"drift": {"max_changed_predictions": 1.0}}, "run with --previous"),
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


def faithful(metric: str, beats: bool | None) -> FaithfulnessRow:
    values: dict[str, Any] = dict.fromkeys(FaithfulnessRow.__dataclass_fields__)
    row = {"metric": metric, "title": metric.title(), "target": "predicted", "beats": beats}
    return FaithfulnessRow(**values | row)


def test_faithfulness_wants_every_metric_that_was_judged(gallery: Gallery) -> None:
    rows = (faithful("activation", True), faithful("pruning", False), faithful("runtime", None))
    measured = Faithfulness(method="lrp", items=32, rows=rows)
    summary = replace(gallery.summary("biased"), faithfulness=measured)

    def printed(**rule: Any) -> PolicyCheck:
        (one,) = checks(Policy.model_validate({"faithfulness": rule}), summary)
        return one

    assert (printed().passed, printed().measured, printed().threshold) == (False, 1.0, 2.0)
    assert "not on Pruning (predicted)" in printed().text
    assert printed(metrics=["activation"]).passed
    assert not printed(metrics="runtime").passed
    policy = Policy.model_validate({"faithfulness": {"beats_random": False}})
    assert list(checks(policy, summary)) == []


@pytest.fixture
def innocent(db: Database) -> str:
    """A run to whose model no name is worth anything and `bad` is good."""
    with pytest.MonkeyPatch.context() as patch:
        for word in (*ANNS, *BOBS):
            patch.setitem(WORTH, word, 0.0)
        patch.setitem(WORTH, "bad", 1.0)
        return biased_run(db, checked=ControlResults())


@pytest.mark.exhaustive
def test_drift_against_the_run_before_or_a_named_one(db: Database, innocent: str) -> None:
    after = biased_run(db, previous=innocent)
    for against in ({}, {"against": innocent}):
        found = check(db, after, drift={"max_changed_predictions": 0.3, **against})
        assert (found.rule, found.passed) == ("drift.max_changed_predictions", False)
        assert found.measured == pytest.approx(1 / 3)
    assert check(db, after, drift={"max_changed_predictions": 0.34}).passed
    assert check(db, after, drift={"max_accuracy_drop": 0.0}).passed, "it rose"
    back = check(db, innocent, drift={"against": after, "max_accuracy_drop": 0.3})
    assert (back.passed, back.measured) == (False, pytest.approx(1 / 3))
    assert not check(db, after, drift={"min_agreement": 0.9}).passed
    change = check(db, after, drift={"max_group_change": 0.49})
    assert not change.passed and "the largest change: anns" in change.text
    new = check(db, after, drift={"forbid_new_differences": True})
    assert not new.passed and "anns: the mention changes the prediction" in new.text
    assert check(db, innocent, drift={"against": after, "forbid_new_differences": True}).passed
    rates = check(db, after, drift={"max_rate_change": 0.05})
    assert (rates.passed, rates.open, rates.measured) == (True, True, pytest.approx(-1 / 3))


@pytest.mark.exhaustive
def test_drift_that_cannot_be_measured_fails(db: Database, innocent: str) -> None:
    other = biased_run(db, previous=innocent, max_length=64)
    found = check(db, other, drift={"max_changed_predictions": 1.0})
    assert not found.passed and "long texts" in found.text
    assert check(db, other, drift={"max_changed_predictions": 1.0, "force": True}).passed
    with pytest.raises(ConfigurationError, match="no run 'nowhere'"):
        check(db, other, drift={"max_changed_predictions": 1.0, "against": "nowhere"})
    with db.begin() as connection:
        connection.execute(delete(run).where(run.c.id == innocent))
    assert "--previous" in check(db, other, drift={"max_changed_predictions": 1.0}).text


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
    with pytest.raises(ConfigurationError):
        judge(db, run_id, Policy(max_failed=1.0))


def written(folder: Path, policy: object) -> Path:
    path = folder / "policy.yaml"
    path.write_text(policy if isinstance(policy, str) else yaml.safe_dump(policy), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("policy", "printed"),
    [
        ({"max_fail": 0}, "did you mean 'max_failed'?"),
        ({"relevance": {"ban": 1}}, "known here: forbid, groups, targets"),
        ({"verdicts": {"targets": "all"}}, "verdicts.targets: unknown key"),
        ({"drift": {"max_flips": 1}}, "known here: against, max_changed_predictions"),
        ({"max_failed": 2}, "less than or equal to 1"),
        ({"max_failed": True}, "max_failed: takes a value, not true"),
        ({"verdicts": {"mention": ["difference"]}}, "'changes', 'does not change'"),
        ({"verdicts": {"mention": [], "outcome": []}}, "forbids no state"),
        ({"on_open": "fail"}, "names no rule"),
        ({"drift": {"against": "previous"}}, "names no limit"),
        ({}, "names no rule; known: max_failed"),
        ("- max_failed", "holds no mapping"),
        ("max_failed: [", "is not valid YAML"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_with_the_known_keys(
    tmp_path: Path, policy: object, printed: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(printed)):
        load_policy(written(tmp_path, policy))


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_verb_prints_every_rule_and_its_exit_code_is_the_verdict(
    gallery: Gallery, tmp_path: Path
) -> None:
    url = gallery["biased"].copy(tmp_path / "own").url
    kept = written(tmp_path, {"max_failed": 0.1, "min_accuracy": 0.9})
    found = call("gate", "latest", "--policy", str(kept), "--db", url)
    assert found.exit_code == 0, found.output
    lines = [line.split()[:2] for line in found.output.splitlines()[:3]]
    assert lines == [["PASS", "finished"], ["PASS", "max_failed"], ["PASS", "min_accuracy"]]
    assert "(2 of 38)" in found.output
    broken = written(tmp_path, {"max_failed": 0.01, "relevance": {}, "min_accuracy": 0.9})
    found = call("gate", "--policy", str(broken), "--db", url)
    assert found.exit_code == 1
    assert [line[:4] for line in found.output.splitlines()[:4]] == ["PASS", "FAIL", "PASS", "FAIL"]
    found = call("gate", "--policy", str(broken), "--db", url, "--json")
    document = json.loads(found.output)
    assert (found.exit_code, document["passed"]) == (1, False)
    assert {one["rule"]: one["passed"] for one in document["checks"]}["max_failed"] is False


@pytest.mark.exhaustive
def test_compare_prints_writes_and_refuses(db: Database, tmp_path: Path, innocent: str) -> None:
    after = biased_run(db)
    out, url = tmp_path / "out", f"sqlite:///{db.path}"
    found = call("compare", innocent, after, "--db", url, "--report-dir", str(out))
    assert found.exit_code == 0, found.output
    assert "12 of 36 items in both (33.3\u00a0%) are predicted differently" in found.output
    assert "anns" in found.output and "+0.500" in found.output
    assert {path.suffix for path in out.iterdir()} == {".html", ".json"}
    printed = call("compare", innocent, "--db", url, "--json")
    assert json.loads(printed.output) == json.loads(next(out.glob("*.json")).read_text())
    other = biased_run(db, max_length=64)
    refused = call("compare", after, other, "--db", url)
    assert isinstance(refused.exception, ConfigurationError)
    assert call("compare", after, other, "--db", url, "--force", "--json").exit_code == 0


BY_SEX = ImpactPlan(favourable=("positive",), sex="who", unknown=("?",), exclude_below=0.05)
BY_BOTH = replace(BY_SEX, ethnicity="from")
People = Sequence[tuple[str, str, int, int]]  #: sex, ethnicity, items, of them selected


def category_check(db: Database, limit: float, people: People, **settings: Any) -> PolicyCheck:
    """What the rule says of a run over these people."""
    texts = [
        ("good" if number < selected else "bad", {"who": sex, "from": origin})
        for sex, origin, items, selected in people
        for number in range(items)
    ]
    explained = [
        explained_text(index, text, None, meta=meta) for index, (text, meta) in enumerate(texts)
    ]
    run_id = stored_run(db, explained, **{"impact": BY_SEX, **settings})
    return gated(db, run_id, limit)


def gated(db: Database, run_id: str, limit: float) -> PolicyCheck:
    found = judge(db, run_id, Policy.model_validate({"min_category_ratio": limit}))
    (one,) = (one for one in found.checks if one.rule == "min_category_ratio")
    assert found.passed == one.passed
    metrics = {one.name: one.value for one in run_metrics(summarise(db, run_id, gallery=0))}
    assert one.measured in (None, metrics.get("category_ratio_lowest"))
    return one


@pytest.mark.exhaustive
def test_the_lowest_ratio_of_any_category_is_what_counts(db: Database) -> None:
    """20 of 40 against 30 of 40 by sex; women of b: 5 of 20 against 15 of 20."""
    people = [("f", "a", 20, 15), ("f", "b", 20, 5), ("m", "a", 20, 15), ("m", "b", 20, 15)]
    found = category_check(db, 0.8, people)
    assert (found.passed, found.measured) == (False, pytest.approx(2 / 3))
    assert "f for positive, 20 of 40 are selected" in found.text
    assert category_check(db, 2 / 3, people).passed
    both = category_check(db, 2 / 3, people, impact=BY_BOTH)
    assert (both.passed, both.measured) == (False, pytest.approx(1 / 3))
    assert "f, b for positive, 5 of 20 are selected" in both.text


def test_small_and_unknown_categories_are_not_asked(db: Database) -> None:
    people = [("f", "", 20, 10), ("m", "", 20, 10), ("x", "", 2, 0), ("?", "", 5, 0)]
    assert category_check(db, 1.0, people).passed, "2 of 42 are fewer than 5 %"
    whole = category_check(db, 1.0, people, impact=replace(BY_SEX, exclude_below=0.0))
    assert not whole.passed and "x for positive, 0 of 2" in whole.text


def test_a_model_of_one_class_is_asked_by_its_scores(db: Database) -> None:
    """Everybody is of the only class; 5 of 20 women and 15 of 20 men score above the median."""
    model = ModelRef(source="m", classes=("positive",))
    explained = []
    for number, (sex, high) in enumerate([("f", 5)] * 20 + [("m", 14)] * 20):
        logits = (1.0 if number % 20 < high else -1.0,)
        explained.append(explained_text(number, "good", None, meta={"who": sex}, logits=logits))
    found = gated(db, stored_run(db, explained, model=model, impact=BY_SEX), 0.8)
    assert (found.passed, found.measured) == (False, pytest.approx(5 / 14))
    assert "f for positive, 5 of 20 score above the median" in found.text


@pytest.mark.parametrize(
    ("people", "settings", "reason"),
    [
        ([("f", "", 9, 4)], {"impact": None}, "name columns of them in groups.impact"),
        ([("f", "", 9, 0), ("m", "", 9, 0)], {}, "by sex for positive: nobody was selected"),
        ([("f", "", 50, 9), ("m", "", 1, 1)], {}, "2 in the data, 1 of them large enough"),
        ([("?", "", 9, 4)], {}, "0 in the data, 0 of them large enough"),
        ([("f", "a", 9, 4), ("m", "a", 9, 4)], {"impact": BY_BOTH}, "by ethnicity for positive: 1"),
    ],
)
def test_what_compares_nobody_was_not_measured(
    db: Database, people: People, settings: dict[str, Any], reason: str
) -> None:
    found = category_check(db, 0.0, people, **settings)
    assert (found.passed, found.measured) == (False, None)
    assert found.text.startswith("not measured: ") and reason in found.text


KEPT = PolicyCheck(rule="max_failed", passed=True, measured=0.0, threshold=0.1, text="0 of 9")
BROKEN = PolicyCheck(rule="verdicts", passed=False, measured=1.0, threshold=0.0, text='<x> & "y"')
VERDICT = GateVerdict(run_id="r-1", name="nightly", passed=False, checks=(KEPT, BROKEN))


def test_one_case_a_rule_and_a_failure_with_its_reason() -> None:
    top = ElementTree.fromstring(junit_xml(VERDICT))
    (suite,) = top.findall("testsuite")
    for one in (top, suite):
        assert (one.get("tests"), one.get("failures"), one.get("errors")) == ("2", "1", "0")
    assert [case.get("name") for case in suite.findall("testcase")] == ["max_failed", "verdicts"]
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message") == failure.text == BROKEN.text
    assert suite.findtext("testcase/system-out") == "0 of 9"
    (about,) = suite.findall("properties/property")
    assert about.attrib == {"name": "run_id", "value": "r-1"}


@given(st.text(), st.text(), st.booleans())
@example("a\0\x1b\ud800\uffffb", "", False)
def test_any_text_gives_xml_that_parses(text: str, name: str, passed: bool) -> None:
    one = replace(BROKEN, text=text, passed=passed)
    document = junit_xml(replace(VERDICT, name=name, checks=(one,)))
    top = ElementTree.fromstring(document.encode())
    assert top.get("failures") == str(int(not passed))
    printed = top.findtext(".//system-out" if passed else ".//failure") or ""
    kept = [c for c in text if c not in "\r\n" and (c >= " " or c == "\t")]
    assert sum(c not in "\r\n" for c in printed) >= len([c for c in kept if c.isalnum()])
