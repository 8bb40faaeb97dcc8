"""Verdicts on corpora and models whose truth is known, by `run` and `import`."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from additive_texts import CLASSES, TARGET, Text, World

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


def test_rates_far_apart_differ_by_import(audit: Audited) -> None:
    made = world({(FIRST, "office"): (8, 120), (SECOND, "office"): (87, 120)})
    found = audit(made, "import")
    assert (found.answers, found.kind, found.gate) == (("open", "differ"), "flagged", 1)
    assert "is not known" in found.reasons


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


def test_effects_that_cancel_out_are_not_clear_by_import_without_strata(audit: Audited) -> None:
    found = audit(turning(), "import")
    assert (found.first["mention"], found.kind) == ("open", "unknown")
    assert NO_SWAPS in found.top


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


def test_a_proxy_word_is_named_by_import(audit: Audited) -> None:
    found = audit(proxy(), "import")
    assert (found.answers, found.gate) == (("open", "differ"), 1)
    assert "southbank (85 % against 15 % of items" in found.reasons


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


def test_predictions_that_equal_labels_are_explained_by_them_and_still_differ(
    audit: Audited,
) -> None:
    """Base rates: 20 % and 70 % of the groups are labelled invited, and the model is right."""
    made = world({(FIRST, "office"): (24, 120), (SECOND, "office"): (84, 120)})
    texts = [
        replace(
            text,
            columns={**text.columns, "label": CLASSES[sum(made.scores(text)) > 0]},
        )
        for text in made.texts
    ]
    found = audit(replace(made, texts=texts), "run", "data.label=label")
    assert found.answers == ("does not change", "differ")
    assert "the labels differ as the predictions do (20.0 % and 70.0 %)" in found.reasons
    states = {one["name"]: one["state"] for one in found.first["rates"]["measures"]}
    assert states["rate"] == "outside"
    assert {states["true positive rate"], states["false positive rate"]} <= {"inside", "open"}


def test_a_difference_between_strata_alone_is_noted(audit: Audited) -> None:
    """Simpson: a tenth in the office, where the first group is, and half in the workshop."""
    counts = {
        (FIRST, "office"): (15, 150),
        (SECOND, "office"): (3, 30),
        (FIRST, "workshop"): (15, 30),
        (SECOND, "workshop"): (75, 150),
    }
    found = audit(world(counts), "run", *SLICED)
    assert found.answers == ("does not change", "differ")
    assert "the difference is between strata, not within them" in found.reasons


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


def test_an_unbiased_model_with_enough_items_is_clear(audit: Audited) -> None:
    found = audit(world({(group, "office"): (2000, 4000) for group in NAMES}), "run")
    assert (found.answers, found.kind) == (("does not change", "do not differ"), "clear")
    assert (found.gate, found.broken) == (0, set())


def test_no_import_is_clear_however_large(audit: Audited) -> None:
    found = audit(world({(group, "office"): (2000, 4000) for group in NAMES}), "import")
    assert (found.answers, found.kind) == (("open", "do not differ"), "unknown")
    assert NO_SWAPS in found.top


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
    assert (found.answers, found.kind) == (("open", "open"), "unknown")
    assert found.report["groups"]["outcomes"][0]["own"]["selected"]["interval"] == [0.0, 1.0]
    assert found.first["missing"] == [
        "relevance was not compared: all mentions of a side are in one cluster"
    ]
    if way == "run":
        assert "the 48 texts that were changed are one cluster: no interval" in found.reasons


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


@both_ways
def test_classes_without_positives_have_no_rate_of_them(
    audit: Audited, way: Way, tmp_path: Path
) -> None:
    """No label and no prediction is `invited`: there is no ratio, no rate of true positives."""
    made = replace(small(label=lambda _: "rejected"), worth={**WORTH, "office": -2.5})
    found = audit(made, way)
    (outcome,) = found.report["groups"]["outcomes"]
    assert outcome["impact_ratio"] is None
    assert outcome["own"]["true_positive"] is None
    assert outcome["own"]["false_positive"]["count"] == 0
    assert found.first["outcome"] == "open", "0 of 24 may be 12 of 100"
    assert {one["name"] for one in outcome["measures"]} == {"rate", "false positive rate"}
    (page,) = (tmp_path / "audits").glob("*.html")
    assert "nan" not in page.read_text(encoding="utf-8").split()
