"""Verdicts on corpora and models whose truth is known, by `run` and `import`."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from additive_texts import TARGET, Text, World

pytestmark = pytest.mark.exhaustive

Call = Callable[..., tuple[int, str]]
Way = Literal["run", "import"]

EXAMPLE = Path(__file__).parents[2] / "examples/policy.yaml"
#: of the example's rules, those on groups
RULES = ("verdicts", "max_rate_difference", "max_swap_logit", "forbid_suppressed", "forbid_gaps")
NO_SWAPS = "no mention was swapped: the attributions were imported"

FIRST, SECOND = "people/first", "people/second"
NAMES = {
    FIRST: [a + b for a in ("Ba", "Ce", "Di", "Fo") for b in ("lino", "riella", "tari")],
    SECOND: [a + b for a in ("Gu", "Ha", "Je", "Ki") for b in ("morth", "sank", "pwyn")],
}
GOOD = ("careful", "punctual", "skilled", "patient", "honest", "diligent", "able", "eager")
BAD = ("careless", "late", "clumsy", "rude", "evasive", "idle", "hasty", "sloppy")
WORTH = {**dict.fromkeys(GOOD, 0.8), **dict.fromkeys(BAD, -0.8)}
POSTS = ("office", "workshop")


def world(
    counts: Mapping[tuple[str, str], tuple[int, int]],
    names: Mapping[str, Sequence[str]] = NAMES,
    **changes: Any,
) -> World:
    """Texts by (group, place): so many of so many whose words alone speak for an invitation.

    Their words add 0.8 or -0.8 logits; names add nothing but what `changes` say.
    """
    texts: list[Text] = []
    for (group, place), (good, count) in counts.items():
        who, praise, blame = (itertools.cycle(one) for one in (names[group], GOOD, BAD))
        for number in range(count):
            for_, against = (2, 1) if number < good else (1, 2)
            printed = [next(praise) for _ in range(for_)] + [next(blame) for _ in range(against)]
            words = ("applicant", next(who), "for", place, *printed)
            texts.append(Text(words=words, columns={"post": place, "group": group}))
    return replace(World(texts=texts, groups=names, worth=WORTH), **changes)


@dataclass(frozen=True, slots=True)
class Audit:
    """The output of an audit."""

    printed: str
    report: dict[str, Any]
    rules: dict[str, bool]  #: of the gate: whether each is kept
    gate: int  #: its exit code

    @property
    def kind(self) -> str:
        """Of the first sentence."""
        return str(self.report["verdict"]["kind"])

    @property
    def top(self) -> str:
        """The first sentence."""
        return str(self.report["verdict"]["text"])

    @property
    def first(self) -> dict[str, Any]:
        """The verdict on the first group, the only one that has a reference."""
        (found,) = self.report["groups"]["verdicts"]
        assert found["group"] == FIRST
        return dict(found)

    @property
    def answers(self) -> tuple[str, str]:
        """The states of the mention and the outcome."""
        return self.first["mention"], self.first["outcome"]

    @property
    def reasons(self) -> str:
        """Of this verdict, its notes among them."""
        keys = ("mention_reasons", "outcome_reasons", "notes")
        return "; ".join(reason for key in keys for reason in self.first[key])

    @property
    def broken(self) -> set[str]:
        """Rules that are not kept."""
        return {name for name, kept in self.rules.items() if not kept}


Audited = Callable[..., Audit]


@pytest.fixture
def audit(call: Call, tmp_path: Path) -> Audited:
    """Audit a world by `run` or `import`, read its report and ask the gate."""

    def audited(made: World, way: Way, *settings: str, reference: str = SECOND) -> Audit:
        lexicon = made.write_lexicon(tmp_path / "groups.json")
        every = ["data.duplicates=off", f"groups.reference={reference}", *settings]
        if way == "import":
            file = made.write_attributions(tmp_path / "rows.jsonl")
            words = ["import", file, "--classes", "rejected,invited"]
        else:
            data = made.write_texts(tmp_path / "texts.jsonl")
            model = made.write_model(tmp_path / "model")
            words = ["run", "--model", model, "--data", data, "--target", TARGET]
            every += ["evaluation.items=0", "groups.randomised=false", "payload=float32"]
        code, printed = call(
            *words, "--lexicon", lexicon, *(word for one in every for word in ("--set", one))
        )
        assert code == 0, printed
        (written,) = (tmp_path / "audits").glob("[!m]*.json")
        report = json.loads(written.read_text(encoding="utf-8"))
        assert report["counts"]["done"] == len(made.texts), "nothing is lost"
        return Audit(printed, report, *gate(call, tmp_path))

    return audited


def gate(call: Call, folder: Path) -> tuple[dict[str, bool], int]:
    """The group rules of the example policy, each kept or not; and the exit code."""
    rules = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump({name: rules[name] for name in RULES}), encoding="utf-8")
    code, printed = call("gate", "latest", "--policy", str(policy), "--json")
    return {one["rule"]: one["passed"] for one in json.loads(printed)["checks"]}, code


both_ways = pytest.mark.parametrize("way", ["run", "import"])


def measure(row: dict[str, Any], name: str) -> dict[str, Any]:
    """The measure of this name of a row of swaps or rates."""
    (found,) = [one for one in row["measures"] if one["name"] == name]
    return dict(found)


def test_rates_far_apart_differ_by_run(audit: Audited) -> None:
    """8 of 120 against 87 of 120, by what stands beside the names."""
    made = world({(FIRST, "office"): (8, 120), (SECOND, "office"): (87, 120)})
    found = audit(made, "run")
    assert (found.answers, found.kind, found.gate) == (
        ("does not change", "differ"),
        "flagged",
        1,
    )
    assert "6.7 % of 120 items" in found.top and "72.5 % of 120" in found.top
    assert found.first["rates"]["impact_ratio"] == pytest.approx(8 / 87)
    assert "verdicts" in found.broken
    assert "swapping its mentions does not explain it" in found.reasons


def turning() -> World:
    """Names of the first group add 1 logit in the office and take 1 away in the workshop."""
    counts = {(group, post): (30, 60) for group in NAMES for post in POSTS}
    names = NAMES[FIRST]
    worth = {**WORTH, **dict.fromkeys(names, 1.0)}
    return world(counts, worth=worth, turning=names, turn="workshop")


SLICED = ("groups.slice=post", "data.meta=[post]")


@pytest.mark.parametrize("settings", [(), SLICED])
def test_effects_that_cancel_out_are_seen_by_run(audit: Audited, settings: tuple[str, ...]) -> None:
    found = audit(turning(), "run", *settings)
    assert (found.first["mention"], found.kind, found.gate) == ("changes", "flagged", 1)
    assert "verdicts" in found.broken
    rows = {row["stratum"]: row for row in found.report["groups"]["counterfactuals"]}
    everywhere = rows.pop("")
    assert abs(everywhere["effect"]) < 0.3
    assert measure(everywhere, "spread")["value"] == pytest.approx(1.0, abs=0.05)
    assert measure(everywhere, "spread")["state"] == "outside"
    if settings:
        effects = {stratum: row["effect"] for stratum, row in rows.items()}
        assert effects == pytest.approx({"office": 1.0, "workshop": -1.0}, abs=0.01)
        assert {measure(row, "logit")["state"] for row in rows.values()} == {"outside"}
        assert "max_swap_logit" in found.broken


def test_effects_that_cancel_out_are_seen_by_import_in_their_strata(audit: Audited) -> None:
    found = audit(turning(), "import", *SLICED)
    assert (found.answers, found.kind, found.gate) == (("open", "differ"), "flagged", 1)
    assert found.first["rates"]["stratum"] in POSTS
    assert "what differs most between their items" not in found.reasons, "by no word"


def test_four_names_of_a_large_effect_are_never_clear(audit: Audited) -> None:
    """Too few for a comparison of relevance; swaps and rates are compared all the same."""
    names = {FIRST: NAMES[FIRST][:4], SECOND: NAMES[SECOND]}
    counts = {(group, "office"): (30, 60) for group in NAMES}
    made = world(counts, names, worth={**WORTH, **dict.fromkeys(names[FIRST], -2.0)})
    found = audit(made, "run")
    rows = [row for row in found.report["groups"]["rows"] if row["group"] == FIRST]
    assert {row["verdict"] for row in rows} == {"suppressed"}
    assert (found.first["mention"], found.kind, found.gate) == ("changes", "flagged", 1)
    assert found.first["missing"] == ["it has too few entities for a comparison of relevance"]
    assert found.broken >= {"verdicts", "forbid_suppressed", "forbid_gaps", "max_swap_logit"}
    assert found.first["counterfactual"]["effect"] == pytest.approx(-2.0, abs=0.01)


def proxy() -> World:
    """8.8 % against 51.3 %: by where the people of the first group live."""
    counts = {
        (FIRST, "southbank"): (40, 68),
        (FIRST, "northside"): (7, 12),
        (SECOND, "southbank"): (7, 12),
        (SECOND, "northside"): (41, 68),
    }
    return world(counts, worth={**WORTH, "southbank": -2.0})


@pytest.mark.parametrize(
    "target", ["contrast:invited-rejected", "contrast:rejected-invited", "predicted"]
)
def test_a_proxy_word_makes_outcomes_differ_whichever_class_is_named(
    audit: Audited, target: str
) -> None:
    found = audit(proxy(), "run", f"targets={target}")
    assert (found.answers, found.kind, found.gate) == (
        ("does not change", "differ"),
        "flagged",
        1,
    )
    rates = found.first["rates"]
    invited = [rates[side]["selected"]["count"] for side in ("own", "other")]
    assert invited in ([7, 41], [73, 39]), "of 80 each, of either class"
    assert abs(measure(rates, "rate")["value"]) == pytest.approx(34 / 80)
    assert "southbank (85 % against 15 % of items" in found.reasons
    (proxies,) = found.report["groups"]["proxies"]
    assert proxies["words"][0]["word"] == "southbank"


def test_predictions_that_change_decide_although_logits_are_small(audit: Audited) -> None:
    """Decisions near the border: names move them by 0.06 logit, and a fifth turn over."""
    names = {**dict.fromkeys(NAMES[FIRST], -0.04), **dict.fromkeys(NAMES[SECOND], 0.04)}
    worth = {word: value / 20 for word, value in WORTH.items()} | names
    found = audit(world({(group, "office"): (60, 120) for group in NAMES}, worth=worth), "run")
    swap = found.first["counterfactual"]
    assert abs(swap["effect"]) < 0.1 and swap["changed_across"] > 0.2
    assert measure(swap, "changed")["state"] == "outside"
    assert measure(swap, "logit")["state"] != "outside"
    assert (found.first["mention"], found.gate) == ("changes", 1)


@both_ways
def test_an_unbiased_model_is_not_flagged_and_few_items_are_not_clear(
    audit: Audited, way: Way
) -> None:
    found = audit(world({(group, "office"): (15, 30) for group in NAMES}), way)
    assert (found.first["outcome"], found.kind) == ("open", "unknown")
    assert (NO_SWAPS in found.reasons) == (way == "import")
    assert "verdicts" not in found.broken


def test_an_unbiased_model_is_cleared_of_the_mention_by_480_texts(audit: Audited) -> None:
    found = audit(world({(group, post): (60, 120) for group in NAMES for post in POSTS}), "run")
    assert found.first["mention"] == "does not change"
    assert found.first["counterfactual"]["effect"] == pytest.approx(0.0, abs=0.01)
    assert (found.gate, found.broken) == (0, set())


def test_no_import_is_clear_however_large(audit: Audited) -> None:
    found = audit(world({(group, "office"): (2000, 4000) for group in NAMES}), "import")
    assert (found.answers, found.kind) == (("open", "do not differ"), "unknown")
    assert NO_SWAPS in found.top


@both_ways
def test_a_reference_that_is_never_mentioned_is_reported(audit: Audited, way: Way) -> None:
    made = world({(FIRST, "office"): (12, 24)})
    found = audit(made, way)
    assert "Nothing was compared with people/second: the reference is never mentioned." in (
        found.printed
    )
    assert (found.answers, found.kind) == (("open", "open"), "unknown")
    assert (
        "there are no items of its reference (people/second), so rates were not compared"
        in found.reasons
    )


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
def gated(call: Call, tmp_path: Path) -> Callable[..., tuple[int, dict[str, dict[str, Any]]]]:
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
    run: Run, gated: Gate, tmp_path: Path
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
    code, checks = gated(min_impact_ratio=0.8, max_rate_difference=0.05, verdicts={})
    assert (code, [one["passed"] for one in checks.values()]) == (0, [True] * 4)


def test_a_limit_within_the_interval_is_open_and_the_policy_decides(run: Run, gated: Gate) -> None:
    run(world({(group, "office"): (15, 30) for group in NAMES}))
    for on_open, code in (("pass", 0), ("fail", 1)):
        found, checks = gated(max_rate_difference=0.05, verdicts={"mention": []}, on_open=on_open)
        for rule in ("max_rate_difference", "verdicts"):
            assert (checks[rule]["open"], checks[rule]["passed"]) == (True, code == 0)
        assert found == code


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
    call: Call, gated: Gate, two: tuple[str, str]
) -> None:
    against = {"against": two[0]}
    code, checks = gated(drift={**against, "forbid_new_differences": True})
    assert code == 1 and FIRST in checks["drift.forbid_new_differences"]["text"]
    code, checks = gated(drift={**against, "max_rate_change": 0.1})
    assert code == 1 and checks["drift.max_rate_change"]["measured"] == pytest.approx(-0.32)
    code, checks = gated(drift={**against, "max_changed_predictions": 0.2})
    assert code == 0
    assert checks["drift.max_changed_predictions"]["measured"] == pytest.approx(0.16)
