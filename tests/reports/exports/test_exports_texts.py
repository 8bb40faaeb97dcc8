"""Texts for people: the pull request's comment, the model card's section, the Annex IV block."""

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from report_samples import ANNS, BOBS, Visible, biased_run, explained_text, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports import annex_iv, markdown, model_card
from transexplain.reports.exports.export_run import export
from transexplain.reports.phrasing import markdown_text
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.item_fates import FailureExample, FailureKind
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure
from transexplain.types.plans import DatasetRef, ModelRef

HOSTILE = "a|b `c` <img src=x onerror=alert(1)> **d** [e](http://f) @everyone"


def hostile_run(db: Database) -> str:
    explained = [
        explained_text(number, f"{(*ANNS, *BOBS)[number % 12]} was good", None)
        for number in range(36)
    ]
    failure = ItemFailure(item_id=HOSTILE, index=36, kind="null", message=f"{HOSTILE}\n# x")
    groups = [EntityGroup(name=HOSTILE, terms=ANNS), EntityGroup(name="bobs", terms=BOBS)]
    return stored_run(db, explained, [failure], groups=groups, name=HOSTILE)


@pytest.mark.parametrize("form", ["markdown", "model-card", "annex-iv"])
def test_what_the_data_says_is_neither_markup_nor_html(db: Database, form: str) -> None:
    text = export(db, hostile_run(db), form, None)
    assert text is not None
    body = text.split("---\n")[-1] if form == "model-card" else text
    assert not Visible(body).tags
    assert "<img" not in body and "`c`" not in body and "@everyone" not in body
    assert "](http" not in re.sub(r"\\.", "", body)
    for line in body.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 6, 9, 10), line


def test_the_comment_says_differences_changes_and_failures(db: Database) -> None:
    unbiased = stored_run(
        db,
        [
            explained_text(number, f"{BOBS[number % 6]} was good", "positive")
            for number in range(36)
        ],
        groups=[EntityGroup(name="bobs", terms=BOBS)],
    )
    text = markdown.render(summarise(db, biased_run(db, previous=unbiased)))
    assert "2 groups: 2 flagged." in text
    assert text.splitlines()[2].startswith("**The mention changes the prediction.")
    assert "| anns | all other groups | changes | positive: log-odds +0.98 logits" in text
    assert "| anns | positive | all other groups | +0.490 | 0.49 to 0.49 | p = 0.003 | 6 |" in text
    assert f"### Compared with run {unbiased}" in text
    assert "| anns | no verdict | changes | no verdict | open |" in text
    assert "| empty-text | 1 | row-36 | the text is empty |" in text
    assert "mentions of anns" not in text, "the table says it with more numbers"


def test_the_comment_stays_short_whatever_there_is(db: Database) -> None:
    summary = summarise(db, biased_run(db))
    assert summary.groups is not None
    row = summary.groups.rows[0]
    rows = tuple(replace(row, group=f"group {number}") for number in range(200))
    failures = tuple(
        FailureKind(kind=f"kind-{n}", count=1, examples=(FailureExample(item_id="i", message="m"),))
        for n in range(50)
    )
    large = replace(summary, groups=replace(summary.groups, rows=rows), failures=failures)
    text = markdown.render(large)
    assert len(text.splitlines()) < 60
    assert "188 more: see the report." in text and "44 more: see the report." in text


def card_of(summary: Summary) -> tuple[dict[str, Any], str]:
    _, block, body = model_card.render(summary).split("---\n", 2)
    return yaml.safe_load(block), body


def test_the_model_card_is_read_by_the_hub_and_holds_the_numbers(db: Database) -> None:
    hub = pytest.importorskip("huggingface_hub")
    summary = summarise(db, biased_run(db))
    card = hub.ModelCard(model_card.render(summary))
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 1.0)
    assert (result.task_type, result.dataset_name) == ("text-classification", "x.csv")
    assert card.data.pipeline_tag == "text-classification"
    body = card.text
    assert body.strip().startswith("## Bias, Risks, and Limitations")
    assert "Mentions of anns add +0.490 (logits) to positive" in body
    assert "95 % interval 0.49 to 0.49" in body
    assert "Accuracy 1.000 (36 of 36 labelled items; 95 % interval 0.904 to 1.000" in body
    assert "Items without an explanation: 2 of 38: 2 failed." in body
    assert "Never mentioned: places." in body
    assert "anns against all other groups. The mention changes the prediction" in body


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


def test_the_block_has_the_points_and_says_what_it_is_not(db: Database) -> None:
    text = annex_iv.render(summarise(db, biased_run(db)))
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    points = [re.match(r"2\(g\)|3|Points", head) for head in heads]
    assert all(points) and len(heads) == 9
    assert "is no legal advice" in text
    assert "Items with anns: error rate 0.0 % (0 of 18; 95 % interval 0.0 % to 17.6 %)" in text
    assert "Items with anns: positive is predicted for 66.7 % of 18 items" in text
    assert "1.00 times the rate of all other groups" in text
    assert "anns against all other groups. The mention changes the prediction" in text
    assert "Labelled negative: 12 items." in text
    assert heads[0] == "2(g) Testing data: what was audited", "2(d) is of training data"
    left = text.split("## Points that this audit does not fill")[1]
    for point in ("- 1(a) to 1(h):", "- 2(d): the data it was trained on", "- 2(e), 2(f), 2(h):"):
        assert point in left
    assert re.findall(r"^- (\d)", left, re.M) == list("12222345679")


def test_an_empty_section_says_that_nothing_was_measured(db: Database) -> None:
    text = annex_iv.render(summarise(db, stored_run(db, [explained_text(0, "good", None)])))
    for head in ("2(g) Metrics: effects", "3 Accuracy for specific", "3 Sources of risk"):
        assert re.search(rf"## {re.escape(head)}.*\n\n- Nothing was measured here\.", text)


def test_the_text_of_markdown_notifies_nobody() -> None:
    assert "@everyone" not in markdown_text(HOSTILE)
    assert markdown_text("a\n\n# b") == r"a \# b"


@pytest.mark.parametrize("form", ["markdown", "model-card", "annex-iv", "parquet", "jsonl"])
def test_an_evaluation_has_no_explanations(db: Database, tmp_path: Any, form: str) -> None:
    from evaluation_samples import plan_of, scores, stored

    from transexplain.types.scores import MetricSpec

    found = scores("hiding", {"lrp": [0.1, 0.2], "random": [0.5, 0.6]})
    run_id = stored(db, plan_of(["lrp", "random"], MetricSpec(name="hiding")), found, 2)
    with pytest.raises(ConfigurationError, match="is an evaluation"):
        export(db, run_id, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()
