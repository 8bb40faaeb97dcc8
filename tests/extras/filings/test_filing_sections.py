"""Bias scenarios and impact ratios in reports, and filings as texts: what they say and publish."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from gallery import Gallery
from jsonschema import Draft202012Validator
from redaction_gaps import gaps
from report_samples import APPLICATIONS, Visible, applicants, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.extras.filings import model_card
from transexplain.extras.filings.bias_scenarios import BiasScenarios
from transexplain.extras.filings.impact_by_category import ImpactByCategory
from transexplain.reports.exports.export_run import export
from transexplain.reports.report_formats import render_html, render_json, schema
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import redacted, rules, summarise
from transexplain.store.database import Database
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetRef, ImpactPlan, ModelRef, Scenario

HOSTILE = "<img src=x onerror=alert(1)>"
FULL = Scenario(
    harm="Women are refused",
    affected="women",
    measure="impact ratio",
    threshold="below 0.8",
    mitigation="names are masked",
    owner="Head of hiring",
    review_date="2999-01-01",
)
BOTH = ImpactPlan(
    favourable=("positive",),
    sex="who",
    ethnicity="from",
    exclude_below=0.0,
    data_source="applications",
    data_date="2025",
    in_use_since="2024-01-01",
)


def run_of(
    db: Database, people: Sequence[tuple[dict[str, str], int, int]], **settings: Any
) -> Summary:
    """Of each kind of person so many texts, so many of which the model calls positive."""
    texts = [
        ("good" if number < positive else "bad", meta)
        for meta, items, positive in people
        for number in range(items)
    ]
    explained = [
        explained_text(index, text, None, meta=meta) for index, (text, meta) in enumerate(texts)
    ]
    settings = {"impact": BOTH, **settings}
    return summarise(db, stored_run(db, explained, **settings))


UNEQUAL = [
    ({"who": "f", "from": "a"}, 40, 10),
    ({"who": "m", "from": "a"}, 40, 30),
    ({"who": "m", "from": "b"}, 40, 20),
    ({"who": "?", "from": "b"}, 3, 3),
    ({"from": "a"}, 2, 0),
]


def impact_in(summary: Summary) -> ImpactByCategory:
    found = summary.sections["impact"]
    assert isinstance(found, ImpactByCategory)
    return found


def test_a_ratio_that_is_low_beyond_chance_is_a_problem_of_the_headline(db: Database) -> None:
    summary = run_of(db, UNEQUAL, impact=replace(BOTH, unknown=("?",)))
    (line,) = [one for one in summary.headline if one.text.startswith("Impact ratios")]
    assert line.kind == "problem" and "0.333 (f, a" in line.text and "3 of 7" in line.text
    few = run_of(db, [({"who": "f"}, 4, 2), ({"who": "m"}, 4, 3)])
    (line,) = [one for one in few.headline if one.text.startswith("Impact ratios")]
    assert line.kind == "fact", "so few people say nothing"


def test_the_page_has_both(db: Database) -> None:
    people = [({"who": HOSTILE, "from": "a"}, 20, 3), ({"who": "m", "from": "a"}, 20, 10)]
    summary = run_of(db, people, scenario=(FULL, Scenario(harm=HOSTILE)))
    page = Visible(render_html(summary))
    assert not [tag for tag, attributes in page.tags if ("src", "x") in attributes.items()]
    assert page.text.count(HOSTILE) >= 3
    assert "Head of hiring" in page.text
    links = [dict(attributes).get("href") for tag, attributes in page.tags if tag == "a"]
    assert {"#scenarios", "#impact"} <= set(links)


def test_a_review_date_that_had_passed_is_a_problem(db: Database) -> None:
    late = Scenario(harm="Women are refused", review_date="2020-02-29")
    summary = run_of(db, [({"who": "f"}, 2, 1)], scenario=(FULL, late))
    first, second = summary.sections["scenarios"].scenarios
    assert (first.overdue, first.missing) == (False, ())
    assert second.overdue
    [line] = [one.text for one in summary.headline if "scenario" in one.text]
    assert "2020-02-29" in line and "Women are refused" in line


def test_before_an_item_is_explained_there_are_no_rates(db: Database) -> None:
    failures = [ItemFailure(item_id="x", index=0, kind="null", message="nothing")]
    summary = summarise(db, stored_run(db, [], failures, impact=BOTH))
    assert "impact" not in summary.sections


# ---- what is published ---------------------------------------------------------------------------


def test_imported_answers_without_logits_have_no_scores(db: Database) -> None:
    explained = [
        explained_text(0, "good", None, meta={"who": "f", "from": "a"}),
        explained_text(1, "bad", None, meta={"who": "m", "from": "a"}, logits=()),
    ]
    summary = summarise(db, stored_run(db, explained, impact=BOTH))
    assert impact_in(summary).missing == ("scoring rates: the logits of some items are not known",)
    assert "Scoring rate" not in Visible(render_html(summary)).text


def test_records_have_rules() -> None:
    for record in (BiasScenarios, ImpactByCategory):
        assert list(gaps(record, rules())) == []


def test_few_people_are_not_published(db: Database) -> None:
    people = [
        ({"who": "f", "from": "a"}, 60, 30),
        ({"who": "f", "from": "b"}, 40, 38),  # two who are not selected
        ({"who": "m", "from": "a"}, 50, 20),
        ({"who": "m", "from": "c"}, 4, 1),  # four people
        ({"who": "", "from": "a"}, 3, 1),
    ]
    summary = run_of(db, people, scenario=(FULL,))
    whole = redacted(summary, 10)
    (answer,) = impact_in(whole).answers
    sex, _, both = answer.tables
    assert sex.unknown is None, "three are few"
    assert [(row.category, row.selected, row.ratio) for row in sex.rows] == [
        ("f", 68, 1.0),
        ("m", 21, pytest.approx((21 / 54) / 0.68)),
    ]
    assert [row.category for row in both.rows] == ["f, a", "f, b", "m, a"]
    assert both.rows[1].rate is None and both.rows[1].ratio is None
    assert both.rows[0].rate == 0.5
    assert both.rows[0].ratio is None, "it would tell the rate of the highest category, f and b"
    shown = Visible(render_html(whole)).text
    assert "Head of hiring" in shown, "whoever wrote it meant it to be read"
    Draft202012Validator(schema()).validate(json.loads(render_json(whole)))
    (nothing,) = impact_in(redacted(summary, 1000)).answers
    assert nothing.median is None
    assert all(table.rows == () for table in nothing.tables)


def card_of(summary: Summary) -> tuple[dict[str, Any], str]:
    _, block, body = model_card.render(summary).split("---\n", 2)
    return yaml.safe_load(block), body


def test_the_model_card_is_read_by_the_hub_and_holds_the_numbers(gallery: Gallery) -> None:
    hub = pytest.importorskip("huggingface_hub")
    summary = gallery.summary("biased")
    card = hub.ModelCard(model_card.render(summary))
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 1.0)
    assert (result.task_type, result.dataset_name) == ("text-classification", "x.csv")
    assert card.data.pipeline_tag == "text-classification"
    assert card.text.strip().startswith("## Bias, Risks, and Limitations")


def test_without_labels_or_groups_the_card_says_so(db: Database) -> None:
    run_id = stored_run(
        db,
        [explained_text(0, "good", None)],
        model=ModelRef(source="/home/me/models/secret-place/m", classes=("negative", "positive")),
        dataset=DatasetRef(
            source="/data/private/x.csv", modality="text", snapshot="s", fingerprint="f", rows=1
        ),
    )
    block, body = card_of(summarise(db, run_id))
    assert set(block) == {"tags", "pipeline_tag"}
    assert "/data" not in body and "/home" not in body
    assert "x.csv" in body


WRITTEN = "a|b <img src=x> **d** [e](http://f) @everyone"


def stored_applicants(db: Database, **settings: Any) -> str:
    return stored_run(db, applicants(), **{"impact": APPLICATIONS, **settings})


def text_of(db: Database, run: str, form: str, **options: Any) -> str:
    return export(db, run, form, None, **options)


def test_the_summary_by_local_law_144(db: Database) -> None:
    text = text_of(db, stored_applicants(db), "local-law-144")
    sex = text.split("### By sex\n")[1].split("###")[0]
    assert "| f | 40 | 20 | 50.0 % | 0.667 |" in sex
    assert "| m | 40 | 30 | 75.0 % | 1.000 |" in sex
    assert "| x | 1 | 1 | 100.0 % | left out |" in sex, "with its count and its rate"
    for rule in ("5-301(b)(1), (c)(2)", "5-301(d)", "5-303(a)(2)", "5-304"):
        assert f"| {rule} |" in text


def test_redacted_it_says_nothing_of_few(db: Database) -> None:
    text = text_of(db, stored_applicants(db), "local-law-144", redact=True)
    sex = text.split("### By sex\n")[1].split("###")[0]
    assert "| f | 40 | 20 |" in sex and "| x |" not in sex


def test_a_run_without_categories_says_what_to_write(db: Database) -> None:
    with pytest.raises(
        ConfigurationError, match=r"names no columns of categories in groups\.impact"
    ):
        export(db, stored_applicants(db, impact=None), "local-law-144", None)
    with pytest.raises(ConfigurationError, match="no item is explained yet"):
        export(db, stored_run(db, [], impact=APPLICATIONS), "local-law-144", None)


@pytest.mark.parametrize("form", ["local-law-144", "annex-iv", "model-card"])
def test_what_people_wrote_is_neither_markup_nor_html(db: Database, form: str) -> None:
    plan = replace(APPLICATIONS, data_source=WRITTEN, data_date=WRITTEN, exclusion_reason=WRITTEN)
    explained = [
        explained_text(number, "good", None, meta={"who": WRITTEN, "from": WRITTEN})
        for number in range(3)
    ]
    model = ModelRef(source="m", classes=("negative", "positive"))
    stated = Scenario(harm=WRITTEN, owner=WRITTEN)
    run = stored_run(db, explained, impact=plan, scenario=(stated,), model=model)
    text = text_of(db, run, form).split("---\n")[-1]
    assert not Visible(text).tags
    assert "@everyone" not in text and "](http" not in re.sub(r"\\.", "", text)
    lengths = {len(re.findall(r"(?<!\\)\|", one)) for one in text.splitlines() if one[:1] == "|"}
    assert lengths <= {4, 8}, "no cell ends early"


def test_the_tables_have_a_row_for_each_category_and_scenario(db: Database, tmp_path: Path) -> None:
    run = stored_applicants(db, scenario=(Scenario(harm="=1+1", review_date="2020-01-01"),))
    export(db, run, "csv", tmp_path / "csv")
    ratios = (tmp_path / "csv" / "impact_ratios.csv").read_text(encoding="utf-8").splitlines()
    assert ratios[0].startswith("answer,by,sex,ethnicity,items,share,excluded,selected,rate,")
    assert ratios[1].startswith("positive,sex,f,,40,") and len(ratios) == 1 + 3 + 1 + 3
    stated = (tmp_path / "csv" / "scenarios.csv").read_text(encoding="utf-8").splitlines()
    assert stated[1].startswith("'=1+1,,,,,,2020-01-01,"), "no spreadsheet computes it"
    assert stated[1].endswith(",True")
