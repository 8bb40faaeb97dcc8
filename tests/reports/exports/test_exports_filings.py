"""Exports of bias scenarios and impact ratios: the summary by Local Law 144, Annex IV, the card."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import Visible, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports.export_run import export
from transexplain.store.database import Database
from transexplain.types.plans import ImpactPlan, ModelRef, Scenario

HOSTILE = "a|b <img src=x> **d** [e](http://f) @everyone"
PLAN = ImpactPlan(
    favourable=("positive",),
    sex="who",
    ethnicity="from",
    unknown=("?",),
    data_source="Applications of 2025.",
    exclusion_reason="Too few to say anything.",
)


def run_of(db: Database, **settings: Any) -> str:
    """Of women 2 in 4 are selected, of men 3 in 4; one is of unknown sex."""
    people = [*[("f", n) for n in range(40)], *[("m", n) for n in range(40)], ("?", 0), ("x", 0)]
    explained = [
        explained_text(
            index,
            # longer texts have higher scores
            ("good" if number % 4 < (3 if sex == "m" else 2) else "bad") + " x" * (number % 7),
            None,
            meta={"who": sex, "from": "here"},
        )
        for index, (sex, number) in enumerate(people)
    ]
    return stored_run(db, explained, **{"impact": PLAN, **settings})


def text_of(db: Database, run: str, form: str, **options: Any) -> str:
    found = export(db, run, form, None, **options)
    assert found is not None
    return found


def test_the_summary_by_local_law_144(db: Database) -> None:
    text = text_of(db, run_of(db), "local-law-144")
    assert "no legal advice, and it is not the work of an independent auditor" in text
    assert "- Source and explanation of the data: Applications of 2025.\n" in text
    assert "- Date of the data: not given." in text
    assert re.search(r"- Date of the audit: \d{4}-\d\d-\d\d \d\d:\d\d UTC\.", text)
    assert "Reason: Too few to say anything.\n" in text
    sex = text.split("### By sex\n")[1].split("###")[0]
    assert "| f | 40 | 20 | 50.0 % | 0.667 |" in sex
    assert "| m | 40 | 30 | 75.0 % | 1.000 |" in sex
    assert "| x | 1 | 1 | 100.0 % | left out |" in sex, "with its count and its rate"
    assert "Items of unknown sex, which are not in this table: 1." in sex
    for rule in ("5-301(b)(1), (c)(2)", "5-301(d)", "5-303(a)(2)", "5-304"):
        assert f"| {rule} |" in text
    assert "Median score of all items: log-odds" in text


def test_redacted_it_says_nothing_of_few(db: Database) -> None:
    text = text_of(db, run_of(db), "local-law-144", redact=True)
    sex = text.split("### By sex\n")[1].split("###")[0]
    assert "| f | 40 | 20 |" in sex and "| x |" not in sex
    assert "which are not in this table: few." in sex
    assert "Redacted: " in text


def test_a_run_without_categories_says_what_to_write(db: Database) -> None:
    with pytest.raises(
        ConfigurationError, match=r"names no columns of categories in groups\.impact"
    ):
        export(db, run_of(db, impact=None), "local-law-144", None)
    with pytest.raises(ConfigurationError, match="no item is explained yet"):
        export(db, stored_run(db, [], impact=PLAN), "local-law-144", None)


def test_the_annex_iv_block_has_scenario_rates_date_and_signature(db: Database) -> None:
    scenario = Scenario(harm="Women are refused.", threshold="below 0.8", owner="Hiring")
    run = run_of(db, scenario=(scenario,))
    text = text_of(db, run, "annex-iv")
    metrics = text.split("## 2(g) Metrics: impact ratios by category of person")[1]
    assert "Impact ratios by category for positive: the lowest is 0.667 (f, " in metrics
    assert "By scores the lowest is" in metrics
    assert "| f | 40 | 20 |" in metrics
    risks = text.split("## 3 Sources of risk: discrimination")[1].split("##")[0]
    assert "Harm: Women are refused. Threshold: below 0.8. Owner: Hiring." in risks
    assert "Not given: who is affected, measure, mitigation and review date." in risks
    log = text.split("## 2(g) Test log")[1].split("##")[0]
    assert f"signature-sample audit-{run}.json" in log and "verify --signature FILE" in log
    assert "Name of the person responsible, and date: to be added." in log
    redacted = text_of(db, run, "annex-iv", redact=True)
    assert f"signature-sample audit-{run}-redacted.json" in redacted
    without = text_of(db, run_of(db), "annex-iv")
    assert "No bias scenario is written in the specification (groups.scenario)." in without


def test_the_model_card_has_harms_and_the_lowest_ratios(db: Database) -> None:
    text = text_of(db, run_of(db, scenario=(Scenario(harm="Women are refused"),)), "model-card")
    card = text.split("### Impact ratios by category of person")[1]
    assert "the lowest is 0.667 (f, 50.0 % of 40 selected), 2 of 5 are below 0.8" in card
    assert "### Harms that were looked for\n\n- Harm: Women are refused. Not given:" in card


@pytest.mark.parametrize("form", ["local-law-144", "annex-iv", "model-card"])
def test_what_people_wrote_is_neither_markup_nor_html(db: Database, form: str) -> None:
    plan = replace(PLAN, data_source=HOSTILE, data_date=HOSTILE, exclusion_reason=HOSTILE)
    explained = [
        explained_text(number, "good", None, meta={"who": HOSTILE, "from": HOSTILE})
        for number in range(3)
    ]
    model = ModelRef(source="m", classes=("negative", "positive"))
    stated = Scenario(harm=HOSTILE, owner=HOSTILE)
    run = stored_run(db, explained, impact=plan, scenario=(stated,), model=model)
    text = text_of(db, run, form).split("---\n")[-1]
    assert not Visible(text).tags
    assert "@everyone" not in text and "](http" not in re.sub(r"\\.", "", text)
    lengths = {len(re.findall(r"(?<!\\)\|", one)) for one in text.splitlines() if one[:1] == "|"}
    assert lengths <= {4, 8}, "no cell ends early"


def test_the_tables_have_a_row_for_each_category_and_scenario(db: Database, tmp_path: Path) -> None:
    run = run_of(db, scenario=(Scenario(harm="=1+1", review_date="2020-01-01"),))
    export(db, run, "csv", tmp_path / "csv")
    ratios = (tmp_path / "csv" / "impact_ratios.csv").read_text(encoding="utf-8").splitlines()
    assert ratios[0].startswith("answer,by,sex,ethnicity,items,share,excluded,selected,rate,")
    assert ratios[1].startswith("positive,sex,f,,40,") and len(ratios) == 1 + 3 + 1 + 3
    stated = (tmp_path / "csv" / "scenarios.csv").read_text(encoding="utf-8").splitlines()
    assert stated[1].startswith("'=1+1,,,,,,2020-01-01,"), "no spreadsheet computes it"
    assert stated[1].endswith(",True")
