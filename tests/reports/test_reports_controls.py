"""The controls of the group table in every format: ablations, randomised model, planted."""

import json
from dataclasses import replace

import pytest
from entity_samples import totals_of
from report_samples import ANNS, BOBS, Visible, biased_run

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.reports import REPORTS
from transexplain.reports.sections import group_relevance
from transexplain.reports.sections.group_section import control_sentences
from transexplain.reports.summary import Summary, summarise
from transexplain.store.database import Database
from transexplain.types.plans import CheckPlan

STRATUM = Stratum("class:positive", "positive", "positive")


def ablations() -> list[MentionAblation]:
    return [
        MentionAblation(
            item_id=f"row-{n}",
            target="class:positive",
            class_name="positive",
            group="anns",
            entity=name,
            flipped=n % 3 == 0,
            change=0.5 + n / 10,
            relevance=0.5 + n / 9,
        )
        for n, name in enumerate(ANNS)
    ]


def mentioned(gap: float) -> EntityTotals:
    anns = {name: [gap + n / 50] for n, name in enumerate(ANNS)}
    return totals_of({"anns": anns, "bobs": {n: [k / 50] for k, n in enumerate(BOBS)}}, STRATUM)


def summary(db: Database, gap: float = 0.0, **changes: object) -> Summary:
    control = RandomisedTotals(items=12, real=mentioned(0.5), draws=[mentioned(gap)])
    checked = ControlResults(ablations=ablations(), randomised=control)
    return summarise(db, biased_run(db, **({"checked": checked, "planted": 0.5} | changes)))


@pytest.mark.exhaustive
def test_all_three_controls_are_in_every_format(db: Database) -> None:
    found = summary(db)
    assert found.groups is not None
    sentences = control_sentences(found.groups)
    assert len(sentences) == 3
    assert sentences[0].startswith(
        "Taking the mention out changed the prediction of 2 of 6 sampled items"
    )
    assert sentences[1].startswith(
        "Randomised model, over 12 sampled items: 0 verdicts of difference"
    )
    assert "Less than half survives for " in sentences[1]
    assert sentences[1].endswith("what the model learnt makes the difference.")
    assert (
        "0.25 in " in sentences[2]
        and "1.00 in " in sentences[2]
        and "of 200 lexicons" in sentences[2]
    )
    shown = " ".join(Visible(REPORTS.load("html")(found)).text.split())
    assert all(" ".join(one.split()) in shown for one in sentences)
    assert "needs what was learnt" in shown
    groups = json.loads(REPORTS.load("json")(found))["groups"]
    assert groups["removals"]["rows"][0]["changed"] == 2
    assert groups["randomised"]["rows"][0]["randomised"]["verdict"] == "equivalent"
    assert [one["difference"] for one in groups["planted"]] == [0.25, 0.5, 1.0]


@pytest.mark.exhaustive
def test_a_difference_that_survives_is_in_the_headline(db: Database) -> None:
    found = summary(db, gap=0.5)
    assert found.groups is not None and found.groups.randomised is not None
    flagged = [one.text for one in found.headline if one.text.startswith("Relevance")]
    reported = "shows 100\u00a0% of it (95\u00a0% interval 100 to 100\u00a0%), too"
    assert any(f"{reported}: it is not only learnt." in one for one in flagged)
    assert "At least half of the difference survives" in control_sentences(found.groups)[1]
    assert "survives randomisation" in Visible(REPORTS.load("html")(found)).text


@pytest.mark.exhaustive
def test_a_fiftieth_of_a_difference_is_no_reason_to_doubt_it(db: Database) -> None:
    found = summary(db, gap=0.01)
    assert found.groups is not None and found.groups.randomised is not None
    [row] = [one for one in found.groups.randomised.rows if one.group == "anns"]
    assert row.ratio is not None and 0.0 < row.ratio < 0.1
    flagged = [one.text for one in found.headline if one.text.startswith("Relevance")]
    assert any("what the model learnt makes the difference" in one for one in flagged)
    assert not any("not only learnt" in one for one in flagged)
    assert "needs what was learnt" in Visible(REPORTS.load("html")(found)).text


@pytest.mark.exhaustive
def test_several_draws_are_shown(db: Database) -> None:
    checked = ControlResults(
        randomised=RandomisedTotals(
            items=24, real=mentioned(0.5), draws=[mentioned(0.0), mentioned(0.5)]
        )
    )
    found = summary(db, checked=checked)
    assert found.groups is not None and found.groups.randomised is not None
    assert found.groups.randomised.draws == 2
    sentence = control_sentences(found.groups)[0]
    assert sentence.startswith("Randomised models, 2 draws, over 24 sampled items")
    assert "How much survives is not known for " in sentence
    page = Visible(REPORTS.load("html")(found)).text
    assert "2 draws of weights" in page and "not known" in page
    notes = "\n".join(summary(db, check=CheckPlan(share=0.25, draws=3)).notes)
    assert "one of 3 models with a new random sample of all weights" in notes


def test_controls_that_were_not_made_are_not_in_the_report(db: Database) -> None:
    found = summary(db, checked=None, planted=None)
    assert found.groups is not None
    assert control_sentences(found.groups) == []
    page = REPORTS.load("html")(found)
    assert (
        "Mention ablation" not in page and "Randomised model" not in page and "Planted" not in page
    )


@pytest.mark.exhaustive
def test_the_notes_say_what_was_checked(db: Database) -> None:
    notes = "\n".join(summary(db, check=CheckPlan(share=0.25, swap=False)).notes)
    assert "share 25\u00a0%" in notes and "was ablated" in notes and "a new random sample" in notes
    assert "was replaced" not in notes
    whole = "\n".join(summary(db, check=CheckPlan(share=1.0, whole=True, swap=False)).notes)
    assert "was ablated" not in whole
    assert "was checked" not in "\n".join(summary(db).notes)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("totals", "words"),
    [
        (RandomisedTotals(failed=4), "on none of the 4 sampled items"),
        (RandomisedTotals(items=3, failed=1), r"(1 more could not be explained): too few entities"),
    ],
)
def test_a_control_without_a_result_says_so(
    db: Database, totals: RandomisedTotals, words: str
) -> None:
    found = summary(db, checked=ControlResults(randomised=totals))
    assert found.groups is not None
    assert words in control_sentences(found.groups)[0]
    assert words in " ".join(Visible(REPORTS.load("html")(found)).text.split())


@pytest.mark.exhaustive
def test_without_a_difference_there_is_none_to_explain_away(db: Database) -> None:
    found = summary(db).groups
    assert found is not None and found.randomised is not None
    plain = replace(found, rows=tuple(replace(row, verdict="inconclusive") for row in found.rows))
    assert "no difference that it could explain away" in group_relevance.randomised_sentence(
        plain.rows, found.randomised
    )
