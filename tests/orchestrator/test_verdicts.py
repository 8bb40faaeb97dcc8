"""Verdicts on corpora and models whose truth is known, by `run` and `import`."""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from additive_texts import BAD, FIRST, GOOD, PEOPLE, SECOND, TARGET, WORTH, Text, World

pytestmark = pytest.mark.exhaustive

Call = Callable[..., tuple[int, str]]

EXAMPLE = Path(__file__).parents[2] / "examples/policy.yaml"
#: of the example's rules, those on groups
RULES = ("verdicts", "max_rate_difference", "max_swap_logit", "forbid_suppressed", "forbid_gaps")
NO_SWAPS = "no mention was swapped: the attributions were imported"
POSTS = ("office", "workshop")
SLICED = ("groups.slice=post", "data.meta=[post]")


def world(
    counts: Mapping[tuple[str, str], tuple[int, int]],
    begin: Mapping[str, str] | None = None,
    **changes: Any,
) -> World:
    """Texts by (group, place): so many of so many whose words alone speak for an invitation.

    Their words add 0.8 or -0.8 logits; names add nothing but what `changes` say. `begin`: the
    first word of the texts of a group.
    """
    texts: list[Text] = []
    for (group, place), (good, count) in counts.items():
        who, praise, blame = (itertools.cycle(some) for some in (PEOPLE[group], GOOD, BAD))
        for number in range(count):
            for_, against = (2, 1) if number < good else (1, 2)
            printed = [next(praise) for _ in range(for_)] + [next(blame) for _ in range(against)]
            first = (begin or {}).get(group, "applicant")
            words = (first, next(who), "for", place, *printed)
            texts.append(Text(words=words, columns={"post": place, "group": group}))
    return replace(World(texts=texts, groups=PEOPLE, worth=WORTH), **changes)


@dataclass(frozen=True, slots=True)
class Audit:
    """The output of an audit, and of the gate's group rules."""

    printed: str
    report: dict[str, Any]
    broken: set[str]  #: rules that are not kept
    gate: int  #: its exit code

    @property
    def first(self) -> dict[str, Any]:
        """The verdict on the first group, the only one that has a reference."""
        (verdict,) = self.report["groups"]["verdicts"]
        assert verdict["group"] == FIRST
        return dict(verdict)

    @property
    def states(self) -> tuple[str, str, str]:
        """The states of the mention and the outcome, and the kind of the whole verdict."""
        return self.first["mention"], self.first["outcome"], self.report["verdict"]["kind"]

    @property
    def reasons(self) -> str:
        """Of this verdict, its notes among them."""
        keys = ("mention_reasons", "outcome_reasons", "notes")
        return "; ".join(reason for key in keys for reason in self.first[key])


Audited = Callable[..., Audit]


@pytest.fixture
def gated(call: Call, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """The exit code of a policy on the newest run, and its checks by rule."""

    def judged(**rules: Any) -> tuple[int, dict[str, Any]]:
        (tmp_path / "policy.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
        code, printed = call("gate", "latest", "--policy", "policy.yaml", "--json")
        return code, {check["rule"]: check for check in json.loads(printed)["checks"]}

    return judged


@pytest.fixture
def audit(call: Call, tmp_path: Path, gated: Any) -> Audited:
    """Audit a world by `run` or `import`, read its report and ask the gate."""
    rules = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))

    def audited(of: World, way: str, *settings: str, model: str = "model") -> Audit:
        every = ["data.duplicates=off", f"groups.reference={SECOND}", *settings]
        if way == "import":
            file = of.write_attributions(tmp_path / "rows.jsonl")
            words = ["import", file, "--classes", "rejected,invited"]
        else:
            data, weights = of.write_texts(tmp_path / "texts.jsonl"), tmp_path / model
            words = ["run", "--model", of.write_model(weights), "--data", data, "--target", TARGET]
            every += ["evaluation.items=0", "groups.randomised=false"]
        words += ["--lexicon", of.write_lexicon(tmp_path / "groups.json")]
        code, printed = call(*words, *(word for key in every for word in ("--set", key)))
        assert code == 0, printed
        written = max((tmp_path / "audits").glob("[!m]*.json"), key=lambda p: p.stat().st_mtime)
        report = json.loads(written.read_text(encoding="utf-8"))
        assert report["counts"]["done"] == len(of.texts), "nothing is lost"
        code, checks = gated(**{name: rules[name] for name in RULES})
        return Audit(
            printed, report, {r for r, check in checks.items() if not check["passed"]}, code
        )

    return audited


def measure(row: dict[str, Any], name: str) -> dict[str, Any]:
    """The measure of this name of a row of swaps or rates."""
    (known,) = [each for each in row["measures"] if each["name"] == name]
    return dict(known)


def test_rates_far_apart_differ_by_run(audit: Audited) -> None:
    """8 of 120 against 87 of 120, by what stands beside the names."""
    audited = audit(world({(FIRST, "office"): (8, 120), (SECOND, "office"): (87, 120)}), "run")
    assert (audited.states, audited.gate) == (("does not change", "differ", "flagged"), 1)
    top = audited.report["verdict"]["text"]
    assert "6.7 % of 120 items" in top and "72.5 % of 120" in top
    assert audited.first["rates"]["impact_ratio"] == pytest.approx(8 / 87)
    assert "verdicts" in audited.broken
    assert "swapping its mentions does not explain it" in audited.reasons


def test_effects_that_cancel_out_are_seen_in_all_and_in_their_strata(audit: Audited) -> None:
    """Names of the first group add 1 logit in the office and take 1 away in the workshop."""
    names = PEOPLE[FIRST]
    counts = {(group, post): (30, 60) for group in PEOPLE for post in POSTS}
    worth = {**WORTH, **dict.fromkeys(names, 1.0)}
    turning = world(counts, worth=worth, turning=names, turn="workshop")
    audited = audit(turning, "run", *SLICED)
    assert (audited.states[0], audited.states[2], audited.gate) == ("changes", "flagged", 1)
    assert audited.broken >= {"verdicts", "max_swap_logit"}
    rows = {row["stratum"]: row for row in audited.report["groups"]["counterfactuals"]}
    everywhere = rows.pop("")
    assert abs(everywhere["effect"]) < 0.3
    assert measure(everywhere, "spread")["value"] == pytest.approx(1.0, abs=0.05)
    assert measure(everywhere, "spread")["state"] == "outside"
    effects = {stratum: row["effect"] for stratum, row in rows.items()}
    assert effects == pytest.approx({"office": 1.0, "workshop": -1.0}, abs=0.01)
    assert {measure(row, "logit")["state"] for row in rows.values()} == {"outside"}
    audited = audit(turning, "import", *SLICED)
    assert (audited.states, audited.gate) == (("open", "differ", "flagged"), 1)
    assert audited.first["rates"]["stratum"] in POSTS
    assert "what differs most between their items" not in audited.reasons, "by no word"


@pytest.mark.parametrize("target", ["contrast:rejected-invited", "predicted"])
def test_a_proxy_word_makes_outcomes_differ_whichever_class_is_named(
    audit: Audited, target: str
) -> None:
    """8.8 % against 51.3 %: by where the people of the first group live."""
    counts = {
        (FIRST, "southbank"): (40, 68),
        (FIRST, "northside"): (7, 12),
        (SECOND, "southbank"): (7, 12),
        (SECOND, "northside"): (41, 68),
    }
    proxy = world(counts, worth={**WORTH, "southbank": -2.0})
    audited = audit(proxy, "run", f"targets={target}")
    assert (audited.states, audited.gate) == (("does not change", "differ", "flagged"), 1)
    rates = audited.first["rates"]
    invited = [rates[side]["selected"]["count"] for side in ("own", "other")]
    assert invited in ([7, 41], [73, 39]), "of 80 each, of either class"
    assert abs(measure(rates, "rate")["value"]) == pytest.approx(34 / 80)
    assert "southbank (85 % against 15 % of items" in audited.reasons
    (proxies,) = audited.report["groups"]["proxies"]
    assert proxies["words"][0]["word"] == "southbank"


@pytest.mark.parametrize("way", ["run", "import"])
def test_few_items_of_an_unbiased_model_are_open_and_a_lost_reference_is_named(
    audit: Audited, way: str
) -> None:
    audited = audit(world({(group, "office"): (15, 30) for group in PEOPLE}), way)
    assert audited.states[1:] == ("open", "unknown")
    assert (NO_SWAPS in audited.reasons) == (way == "import")
    assert "verdicts" not in audited.broken
    audited = audit(world({(FIRST, "office"): (12, 24)}), way)
    said = "Nothing was compared with people/second: the reference is never mentioned."
    assert said in audited.printed
    assert audited.states == ("open", "open", "unknown")
    assert "there are no items of its reference (people/second)" in audited.reasons


def test_an_unbiased_model_is_cleared_of_the_mention_by_480_texts(audit: Audited) -> None:
    counts = {(group, post): (60, 120) for group in PEOPLE for post in POSTS}
    audited = audit(world(counts), "run")
    assert audited.first["mention"] == "does not change"
    assert audited.first["counterfactual"]["effect"] == pytest.approx(0.0, abs=0.01)
    assert (audited.gate, audited.broken) == (0, set())


WORDS = {FIRST: "she", SECOND: "he"}  #: that texts begin with


def beginning(begin: Mapping[str, str]) -> World:
    """Texts of each group that begin with its word; `she` and `hers` are worth something."""
    worth = {**WORTH, "she": -0.46, "hers": -0.46}
    return world({(group, "office"): (30, 60) for group in begin}, begin, worth=worth)


def of_word(groups: dict[str, Any], word: str) -> dict[str, Any]:
    (row,) = [row for row in groups["candidates"] if row["word"] == word]
    return dict(row)


def test_a_pronoun_that_carries_the_bias_is_a_candidate(audit: Audited) -> None:
    """Every text of the first group has the word, and no name does anything."""
    groups = audit(beginning(WORDS), "run", "shard_size=16").report["groups"]
    she = of_word(groups, "she")
    assert (she["group"], she["reference"], she["line"]) == (FIRST, SECOND, "- she")
    assert she["association"] > 5 and she["association_interval"][0] > 2
    assert she["texts"] == 60
    (effect,) = she["effects"]
    assert effect["effect"] == pytest.approx(-0.46, abs=0.01)
    assert effect["interval"][1] < -0.1 and effect["probability_interval"][1] < -0.02
    assert of_word(groups, "he")["effects"][0]["interval"][0] > 0.1, "it stands for the reference"
    (swaps,) = [row for row in groups["counterfactuals"] if row["group"] == FIRST]
    assert abs(swaps["effect"]) < 0.02, "names alone say nothing of it"


def test_a_text_of_which_half_could_be_swapped_is_left_out_and_counted(audit: Audited) -> None:
    """The second group has nothing to take the place of `hers`."""
    listed = {FIRST: [*PEOPLE[FIRST], "she", "hers"], SECOND: [*PEOPLE[SECOND], "he"]}
    both = beginning(WORDS)
    texts = [*both.texts, *beginning({FIRST: "hers"}).texts]
    audited = audit(replace(both, texts=texts, groups=listed), "run", "groups.check=400")
    groups = audited.report["groups"]
    (first,) = [row for row in groups["matching"] if row["group"] == FIRST]
    assert first["unpaired"] == 60
    (swaps,) = [row for row in groups["counterfactuals"] if row["group"] == FIRST]
    assert swaps["documents"] == 120
    assert swaps["effect"] == pytest.approx(-0.46, abs=0.01), "and half an effect in no text"


def test_a_group_that_newly_differs_is_said_first_and_stopped_by_the_gate(
    call: Call, audit: Audited, gated: Any
) -> None:
    """56 % of the first group are invited before, and 24 % after."""
    texts = world({(FIRST, "office"): (280, 500), (SECOND, "office"): (280, 500)}).texts
    first = iter(range(500))
    marked = [
        replace(text, words=(("dated" if next(first) < 160 else "applicant"), *text.words[1:]))
        if text.columns["group"] == FIRST
        else text
        for text in texts
    ]
    before = World(texts=marked, groups=PEOPLE, worth=WORTH)
    after = replace(before, worth={**WORTH, "dated": -2.0})
    two = [
        audit(of, "run", "targets=predicted", model=name).report["audited"]["run_id"]
        for of, name in ((before, "before"), (after, "after"))
    ]
    compared = json.loads(call("compare", *two, "--json")[1])
    headline = compared["headline"]
    assert headline[0]["kind"] == "flagged"
    assert all(words in headline[0]["text"] for words in (FIRST, "56.0", "24.0"))
    rates = {row["group"]: row for row in compared["groups"]["rates"]}
    fallen = rates[FIRST]
    assert abs(fallen["after"] - fallen["before"]) == pytest.approx(0.32)
    assert fallen["measure"]["state"] == "outside"
    assert rates[SECOND]["measure"]["state"] == "inside"
    (verdict,) = compared["groups"]["verdicts"]
    assert (verdict["outcome_before"], verdict["outcome_after"]) != ("differ", "differ")
    assert verdict["outcome_after"] == "differ" and verdict["mention_after"] != "changes"
    against = {"against": two[0]}
    code, checks = gated(drift={**against, "forbid_new_differences": True})
    assert code == 1 and FIRST in checks["drift.forbid_new_differences"]["text"]
    code, checks = gated(drift={**against, "max_rate_change": 0.1})
    assert code == 1 and checks["drift.max_rate_change"]["measured"] == pytest.approx(-0.32)
    code, checks = gated(drift={**against, "max_changed_predictions": 0.2})
    changed = checks["drift.max_changed_predictions"]["measured"]
    assert (code, changed) == (0, pytest.approx(0.16))
