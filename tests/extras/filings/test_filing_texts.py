"""Filings as texts: the model card's section, the Annex IV block, the summary by Local Law 144."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from gallery import Gallery
from report_samples import APPLICATIONS, Visible, applicants, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.extras.filings import model_card
from transexplain.reports.exports.export_run import export
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.plans import DatasetRef, ModelRef, Scenario


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
    assert "Accuracy and errors: No item has a label of a class" in body
    assert "No groups were given" in body
    assert "/data" not in body and "/home" not in body
    assert "x.csv" in body


WRITTEN = "a|b <img src=x> **d** [e](http://f) @everyone"


def run_of(db: Database, **settings: Any) -> str:
    return stored_run(db, applicants(), **{"impact": APPLICATIONS, **settings})


def text_of(db: Database, run: str, form: str, **options: Any) -> str:
    found = export(db, run, form, None, **options)
    assert found is not None
    return found


def test_the_summary_by_local_law_144(db: Database) -> None:
    text = text_of(db, run_of(db), "local-law-144")
    sex = text.split("### By sex\n")[1].split("###")[0]
    assert "| f | 40 | 20 | 50.0 % | 0.667 |" in sex
    assert "| m | 40 | 30 | 75.0 % | 1.000 |" in sex
    assert "| x | 1 | 1 | 100.0 % | left out |" in sex, "with its count and its rate"
    for rule in ("5-301(b)(1), (c)(2)", "5-301(d)", "5-303(a)(2)", "5-304"):
        assert f"| {rule} |" in text


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
    run = run_of(db, scenario=(Scenario(harm="=1+1", review_date="2020-01-01"),))
    export(db, run, "csv", tmp_path / "csv")
    ratios = (tmp_path / "csv" / "impact_ratios.csv").read_text(encoding="utf-8").splitlines()
    assert ratios[0].startswith("answer,by,sex,ethnicity,items,share,excluded,selected,rate,")
    assert ratios[1].startswith("positive,sex,f,,40,") and len(ratios) == 1 + 3 + 1 + 3
    stated = (tmp_path / "csv" / "scenarios.csv").read_text(encoding="utf-8").splitlines()
    assert stated[1].startswith("'=1+1,,,,,,2020-01-01,"), "no spreadsheet computes it"
    assert stated[1].endswith(",True")
