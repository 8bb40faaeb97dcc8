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
RULES = ("verdicts", "min_impact_ratio", "max_swap_logit", "forbid_suppressed", "forbid_gaps")
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
EVEN = {(FIRST, post): (45, 75) for post in POSTS} | {(SECOND, post): (45, 75) for post in POSTS}


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
    def reasons(self) -> str:
        """Of this verdict."""
        return "; ".join(self.first["reasons"])

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


@both_ways
def test_rates_far_apart_are_different_outcomes(audit: Audited, way: Way) -> None:
    """8 of 120 against 87 of 120, by what stands beside the names."""
    made = world({(FIRST, "office"): (8, 120), (SECOND, "office"): (87, 120)})
    found = audit(made, way)
    assert (found.first["verdict"], found.kind, found.gate) == ("different outcomes", "flagged", 1)
    assert found.top.startswith("Different outcomes for people/first:")
    assert "6.7 % of 120 items" in found.top and "72.5 % of 120" in found.top
    assert found.first["outcome"]["impact_ratio"] == pytest.approx(8 / 87)
    assert found.broken >= {"verdicts", "min_impact_ratio"}
    because = "swapping its mentions does not explain it" if way == "run" else "is not known"
    assert because in found.reasons


def turning() -> World:
    """Names of the first group add 1 logit in the office and take 1 away in the workshop."""
    counts = {(group, post): (30, 60) for group in NAMES for post in POSTS}
    names = NAMES[FIRST]
    worth = {**WORTH, **dict.fromkeys(names, 1.0)}
    return world(counts, worth=worth, turning=names, turn="workshop")


SLICED = ("groups.slice=post", "data.meta=[post]")


@pytest.mark.parametrize("settings", [(), SLICED])
def test_effects_that_cancel_out_are_found_by_run(
    audit: Audited, settings: tuple[str, ...]
) -> None:
    found = audit(turning(), "run", *settings)
    assert (found.first["verdict"], found.kind, found.gate) == ("different answers", "flagged", 1)
    assert "moves invited by 1.00 logit up or down, depending on the text" in found.top
    outcome = found.first["outcome"]
    assert (outcome["stratum"], outcome["impact_ratio"]) == ("", 1.0), "rates alone say nothing"
    assert "verdicts" in found.broken
    rows = found.report["groups"]["counterfactuals"]
    effects = {row["stratum"]: row["effect"] for row in rows}
    assert abs(effects.pop("")) < 0.3
    if settings:
        assert effects == pytest.approx({"office": 1.0, "workshop": -1.0}, abs=0.01)
        assert "+1.00 logit in office, \N{MINUS SIGN}1.00 logit in workshop" in found.reasons
        assert found.broken >= {"max_swap_logit", "min_impact_ratio"}


def test_effects_that_cancel_out_are_found_by_import_in_their_strata(audit: Audited) -> None:
    found = audit(turning(), "import", *SLICED)
    assert (found.first["verdict"], found.kind, found.gate) == (
        "different outcomes",
        "flagged",
        1,
    )
    assert found.first["stratum"] in POSTS and "60 items in " in found.top
    assert found.broken >= {"verdicts", "min_impact_ratio"}
    assert "what differs most between their items" not in found.reasons, "by no word"


def test_effects_that_cancel_out_are_not_clear_by_import_without_strata(audit: Audited) -> None:
    found = audit(turning(), "import")
    assert (found.first["verdict"], found.kind, found.gate) == ("inconclusive", "unknown", 1)
    assert NO_SWAPS in found.top


@both_ways
def test_four_names_of_a_large_effect_are_never_clear(audit: Audited, way: Way) -> None:
    """Too few for a comparison of relevance; answers and rates are compared all the same."""
    names = {FIRST: NAMES[FIRST][:4], SECOND: NAMES[SECOND]}
    counts = {(group, "office"): (30, 60) for group in NAMES}
    made = world(counts, names, worth={**WORTH, **dict.fromkeys(names[FIRST], -2.0)})
    found = audit(made, way)
    rows = [row for row in found.report["groups"]["rows"] if row["group"] == FIRST]
    assert {row["verdict"] for row in rows} == {"suppressed"}
    word = "different answers" if way == "run" else "different outcomes"
    assert (found.first["verdict"], found.kind, found.gate) == (word, "flagged", 1)
    assert found.first["missing"] == ["it has too few entities for a comparison of relevance"]
    assert found.broken >= {"verdicts", "forbid_suppressed", "forbid_gaps", "max_swap_logit"}
    if way == "run":
        assert "moves invited by \N{MINUS SIGN}2.00 logit" in found.top


@both_ways
def test_a_proxy_word_is_different_outcomes_and_is_named(audit: Audited, way: Way) -> None:
    """8.8 % against 51.3 %: by where the people of the first group live."""
    counts = {
        (FIRST, "southbank"): (40, 68),
        (FIRST, "northside"): (7, 12),
        (SECOND, "southbank"): (7, 12),
        (SECOND, "northside"): (41, 68),
    }
    found = audit(world(counts, worth={**WORTH, "southbank": -2.0}), way)
    assert (found.first["verdict"], found.kind, found.gate) == ("different outcomes", "flagged", 1)
    outcome = found.first["outcome"]
    rates = [outcome[side]["selected"]["count"] for side in ("own", "other")]
    assert rates == [7, 41], "of 80 each"
    assert "southbank (85 % against 15 % of items, \N{MINUS SIGN}1.40 logit)" in found.reasons
    assert found.reasons.endswith("\N{MINUS SIGN}1.40 logit)"), "and no other word"
    (proxies,) = found.report["groups"]["proxies"]
    assert proxies["words"][0]["word"] == "southbank"
    assert found.broken >= {"verdicts", "min_impact_ratio"}


@both_ways
def test_an_unbiased_model_is_not_flagged_and_few_items_are_not_clear(
    audit: Audited, way: Way
) -> None:
    found = audit(world({(group, "office"): (15, 30) for group in NAMES}), way)
    assert (found.first["verdict"], found.kind) == ("inconclusive", "unknown")
    assert "about 605 items that mention it would settle it" in found.top
    assert (NO_SWAPS in found.top) == (way == "import")
    assert "verdicts" not in found.broken and "min_impact_ratio" not in found.broken
    assert found.gate == (way == "import"), "what was not measured was not kept"


def test_an_unbiased_model_with_enough_items_is_clear(audit: Audited) -> None:
    found = audit(world(EVEN), "run")
    assert (found.first["verdict"], found.kind) == ("equivalent", "clear")
    assert found.top.startswith("The group gets the same answers as its reference")
    assert (found.gate, found.broken) == (0, set())


def test_no_import_is_clear_however_large(audit: Audited) -> None:
    found = audit(world(EVEN), "import")
    assert (found.first["verdict"], found.kind) == ("inconclusive", "unknown")
    assert NO_SWAPS in found.top
    assert (found.gate, found.broken) == (1, {"max_swap_logit"})


def small(**columns: Callable[[int], str]) -> World:
    """A sound world of 48 texts with further columns, each made from the row's number."""
    made = world({(group, "office"): (12, 24) for group in NAMES})
    texts = [
        replace(text, columns={name: value(row) for name, value in columns.items()})
        for row, text in enumerate(made.texts)
    ]
    return replace(made, texts=texts)


@both_ways
def test_templates_of_one_row_are_reported(audit: Audited, way: Way) -> None:
    made = small(form=lambda row: f"alone {row}" if row < 4 else f"form {row % 10}")
    found = audit(made, way, "data.template=form")
    assert "4 of 14 templates have one row only, which no pair is made of" in found.printed
    assert found.kind != "clear"
    outcome = found.report["groups"]["outcomes"][0]
    assert outcome["own"]["selected"]["total"] == 24, "rates count them"


@both_ways
def test_clusters_that_are_all_one_are_reported(audit: Audited, way: Way) -> None:
    found = audit(small(author=lambda _: "one"), way, "data.cluster=author")
    assert "all rows are one cluster by data.cluster ('author')" in found.printed
    assert (found.first["verdict"], found.kind) == ("inconclusive", "unknown")
    assert found.report["groups"]["outcomes"][0]["own"]["selected"]["interval"] == [0.0, 1.0]
    assert found.first["missing"] == [
        "relevance was not compared: all mentions of a side are in one cluster"
    ]
    if way == "run":
        assert "the 48 texts that were changed are one cluster: no interval" in found.top
    assert found.gate == 1


@both_ways
def test_a_reference_that_is_never_mentioned_is_reported(audit: Audited, way: Way) -> None:
    made = world({(FIRST, "office"): (12, 24)})
    found = audit(made, way)
    assert "Nothing was compared with people/second: the reference is never mentioned." in (
        found.printed
    )
    assert (found.first["verdict"], found.kind, found.gate) == ("inconclusive", "unknown", 1)
    assert (
        "no item mentions its reference (people/second), so rates were not compared"
        in found.reasons
    )


@both_ways
def test_classes_without_positives_are_dashes(audit: Audited, way: Way, tmp_path: Path) -> None:
    """No label and no answer is `invited`: there is no ratio and no rate of true positives."""
    made = replace(small(label=lambda _: "rejected"), worth={**WORTH, "office": -2.5})
    found = audit(made, way)
    (outcome,) = found.report["groups"]["outcomes"]
    assert (outcome["impact_ratio"], outcome["ratio_interval"]) == (None, None)
    assert outcome["own"]["true_positive"] is None
    assert outcome["own"]["false_positive"]["count"] == 0
    assert found.first["verdict"] == "inconclusive", "0 of 24 may be 12 of 100"
    (page,) = (tmp_path / "audits").glob("*.html")
    document = page.read_text(encoding="utf-8")
    assert '<td class="num c-diff" data-name="True positives">\u2013</td>' in document
