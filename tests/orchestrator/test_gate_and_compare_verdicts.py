"""The gate and `compare` on models whose truth is known, through `run` and the report."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from additive_texts import World
from test_orchestrator_verdicts import FIRST, NAMES, SECOND, SLICED, WORTH, measure, world

pytestmark = pytest.mark.exhaustive

Call = Callable[..., tuple[int, str]]
Run = Callable[..., str]


@pytest.fixture
def run(call: Call, tmp_path: Path) -> Run:
    """Audit a world and return the id of the run; `model` names its folder."""

    def audited(made: World, *settings: str, model: str = "model") -> str:
        lexicon = made.write_lexicon(tmp_path / "groups.json")
        data = made.write_texts(tmp_path / "texts.jsonl")
        every = ["data.duplicates=off", f"groups.reference={SECOND}", "evaluation.items=0"]
        every += ["groups.randomised=false", "payload=float32", *settings]
        code, printed = call(
            *("run", "--model", made.write_model(tmp_path / model), "--data", data),
            *("--target", "predicted", "--lexicon", lexicon),
            *(word for one in every for word in ("--set", one)),
        )
        assert code == 0, printed
        return str(report(tmp_path)["audited"]["run_id"])

    return audited


@pytest.fixture
def gate(call: Call, tmp_path: Path) -> Callable[..., tuple[int, dict[str, dict[str, Any]]]]:
    """The exit code of a policy on the newest run, and its checks by rule."""

    def judged(**rules: Any) -> tuple[int, dict[str, dict[str, Any]]]:
        policy = tmp_path / "policy.yaml"
        policy.write_text(yaml.safe_dump(rules), encoding="utf-8")
        code, printed = call("gate", "latest", "--policy", str(policy), "--json")
        return code, {one["rule"]: one for one in json.loads(printed)["checks"]}

    return judged


Gate = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


def report(folder: Path) -> dict[str, Any]:
    """The newest report."""
    written = max((folder / "audits").glob("[!m]*.json"), key=lambda path: path.stat().st_mtime)
    return dict(json.loads(written.read_text(encoding="utf-8")))


def test_a_low_ratio_by_chance_in_one_region_does_not_fail_the_gate(
    run: Run, gate: Gate, tmp_path: Path
) -> None:
    """Names at random: 38 of 80 against 48 of 80 in one of four regions, equal in the others."""
    counts = {
        (group, region): (120, 240) for group in NAMES for region in ("south", "east", "west")
    }
    counts |= {(FIRST, "north"): (38, 80), (SECOND, "north"): (48, 80)}
    run(world(counts), *SLICED, "groups.favourable=invited")
    rows = report(tmp_path)["groups"]["outcomes"]
    (north,) = [row for row in rows if row["stratum"] == "north" and row["prediction"] == "invited"]
    assert north["impact_ratio"] == pytest.approx(38 / 48) and north["impact_ratio"] < 0.8
    assert measure(north, "impact ratio")["state"] != "outside"
    code, checks = gate(min_impact_ratio=0.8, max_rate_difference=0.05, verdicts={})
    assert (code, [one["passed"] for one in checks.values()]) == (0, [True] * 4)


def test_a_low_ratio_everywhere_fails_and_needs_a_favourable_class(
    run: Run, gate: Gate, tmp_path: Path
) -> None:
    counts = {(FIRST, "office"): (60, 300), (SECOND, "office"): (180, 300)}
    run(world(counts))
    code, checks = gate(min_impact_ratio=0.8)
    assert code == 1 and "groups.favourable" in checks["min_impact_ratio"]["text"]
    run(world(counts), "groups.favourable=invited")
    code, checks = gate(min_impact_ratio=0.8)
    assert (code, checks["min_impact_ratio"]["measured"]) == (1, pytest.approx(1 / 3))
    assert not checks["min_impact_ratio"]["open"]
    assert gate(min_impact_ratio=0.2)[0] == 0


def test_a_limit_within_the_interval_is_open_and_the_policy_decides(run: Run, gate: Gate) -> None:
    run(world({(group, "office"): (15, 30) for group in NAMES}))
    for on_open, code in (("pass", 0), ("fail", 1)):
        found, checks = gate(max_rate_difference=0.05, verdicts={"mention": []}, on_open=on_open)
        for rule in ("max_rate_difference", "verdicts"):
            assert (checks[rule]["open"], checks[rule]["passed"]) == (True, code == 0)
        assert found == code


def test_swaps_are_limited_by_their_intervals(run: Run, gate: Gate) -> None:
    """Names of the first group add half a logit, which changes the predictions near the border."""
    worth = {**WORTH, **dict.fromkeys(NAMES[FIRST], 0.5)}
    run(world({(group, "office"): (60, 120) for group in NAMES}, worth=worth))
    strict = {"max_swap_logit": 0.4, "max_swap_probability": 0.05}
    code, checks = gate(**strict, max_swap_changed=0.05)
    assert code == 1
    assert {rule for rule, one in checks.items() if not one["passed"]} == set(strict)
    assert checks["max_swap_logit"]["measured"] == pytest.approx(0.5, abs=0.01)
    assert gate(max_swap_logit=0.6, max_swap_probability=0.2)[0] == 0


@pytest.fixture
def two(run: Run, tmp_path: Path) -> tuple[str, str]:
    """Runs before and after: 56 % of the first group are invited, then 24 %."""
    texts = world({(FIRST, "office"): (280, 500), (SECOND, "office"): (280, 500)}).texts
    first = iter(range(500))
    marked = [
        replace(text, words=(("dated" if next(first) < 160 else "applicant"), *text.words[1:]))
        if text.columns["group"] == FIRST
        else text
        for text in texts
    ]
    before = World(texts=marked, groups=NAMES, worth=WORTH)
    after = replace(before, worth={**WORTH, "dated": -2.0})
    earlier = run(before, model="before")
    return earlier, run(after, model="after")


def test_compare_says_first_whose_rate_fell(call: Call, two: tuple[str, str]) -> None:
    compared = json.loads(call("compare", *two, "--json")[1])
    first = compared["headline"][0]
    assert first["kind"] == "flagged"
    assert FIRST in first["text"] and "56.0" in first["text"] and "24.0" in first["text"]
    rates = {row["group"]: row for row in compared["groups"]["rates"]}
    fallen = rates[FIRST]
    assert abs(fallen["after"] - fallen["before"]) == pytest.approx(0.32)
    assert fallen["measure"]["state"] == "outside"
    assert rates[SECOND]["measure"]["state"] == "inside"
    (verdict,) = compared["groups"]["verdicts"]
    assert (verdict["outcome_before"], verdict["outcome_after"]) != ("differ", "differ")
    assert verdict["outcome_after"] == "differ" and verdict["mention_after"] != "changes"
    texts = [one["text"] for one in compared["headline"]]
    (new,) = [place for place, text in enumerate(texts) if "outcomes differ" in text.lower()]
    relevance = [place for place, text in enumerate(texts) if "elevance of" in text]
    assert new < min(relevance, default=len(texts))


def test_the_gate_refuses_a_group_that_newly_differs(
    call: Call, gate: Gate, two: tuple[str, str]
) -> None:
    against = {"against": two[0]}
    code, checks = gate(drift={**against, "forbid_new_differences": True})
    assert code == 1 and FIRST in checks["drift.forbid_new_differences"]["text"]
    code, checks = gate(drift={**against, "max_rate_change": 0.1})
    assert code == 1 and checks["drift.max_rate_change"]["measured"] == pytest.approx(-0.32)
    code, checks = gate(drift={**against, "max_changed_predictions": 0.2})
    assert code == 0
    assert checks["drift.max_changed_predictions"]["measured"] == pytest.approx(0.16)
