"""What reports say of conservation: books that close, sums that do or do not meet the logit."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entity_samples import randomised, totals_of
from evaluation_samples import plan_of, scores, stored
from gallery import Gallery
from report_samples import ANNS, BOBS, Visible, biased_run, explained_text, stored_run

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.reports import EVALUATION_REPORTS, REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.phrasing import percent
from transexplain.reports.report_formats import render_html
from transexplain.reports.sections.group_section import control_sentences
from transexplain.reports.sections.measured_faithfulness import (
    Conservation,
    conservation_chart,
    conservation_sentences,
)
from transexplain.reports.summary import Summary, redacted, summarise
from transexplain.store.database import Database
from transexplain.types.scores import MetricSpec

SPEC = MetricSpec(name="conservation")


def conserved(db: Database, **changes: int) -> Conservation:
    found = summarise(db, biased_run(db, **changes)).conservation
    assert found is not None
    return found


def test_logits_and_sums_are_those_of_the_attributions(db: Database) -> None:
    """The samples' relevance is the logit - 0.1 at words and 0.2 at special positions."""
    found = conserved(db)
    logits = [f for f, _ in found.points]
    assert len(found.points) == 36
    assert [s for _, s in found.points] == pytest.approx([f + 0.1 for f in logits])
    assert found.relevance_error == pytest.approx(np.mean([0.1 / abs(f) for f in logits]))
    assert found.correlation == pytest.approx(1.0)
    assert found.size_shares["biases"] == pytest.approx(
        0.1 / sum(found.average_size.values()), rel=1e-9
    )


@pytest.mark.parametrize("shard_size", [1, 36])
def test_the_figures_are_the_same_whatever_the_shards(db: Database, shard_size: int) -> None:
    texts = [explained_text(n, "good " * (n % 7 + 1) + "x " * n, None) for n in range(36)]
    one, other = (
        summarise(db, stored_run(db, texts, shard_size=size)).conservation
        for size in (7, shard_size)
    )
    assert one is not None and other is not None
    for name in ("relevance_error", "correlation", "points"):
        assert getattr(one, name) == getattr(other, name), "the same bits"


def test_the_sentences_tell_books_from_sums(db: Database) -> None:
    found = conserved(db)
    books, sums = conservation_sentences(found)
    assert books.kind == "good" and f"biases {percent(found.size_shares['biases'])}" in sums.text
    books, sums = conservation_sentences(replace(found, above=3, relevance_error=0.04))
    assert (books.kind, sums.kind) == ("problem", "fact") and "3 of 36" in books.text
    assert len(list(conservation_sentences(replace(found, relevance_error=None)))) == 1


def test_the_page_has_shares_and_the_scatter_and_a_redacted_one_no_points(gallery: Gallery) -> None:
    summary = gallery.summary("biased")
    assert "36 of 36" in Visible(render_html(summary)).text
    assert summary.conservation is not None
    assert conservation_chart(summary.conservation) is not None
    public = redacted(summary).conservation
    assert public is not None and public.points == () and public.correlation is not None
    assert conservation_chart(public) is None


def test_an_evaluation_orders_by_correlation_and_has_no_best(db: Database, tmp_path: Path) -> None:
    logits = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    sums = {
        "far": [2.0, 1.0, 2.5, 0.5, 2.0, 1.0],
        "near": [0.5, 1.0, 1.6, 2.0, 2.5, 3.1],
        "constant": [1.0] * 6,
        "random": [5.0, -3.0, 2.0, 7.0, -1.0, 0.0],
    }
    values = {
        name: [abs(f - s) / f for f, s in zip(logits, some, strict=True)]
        for name, some in sums.items()
    }
    found = [
        replace(score, detail={"pair": [logits[n % 6], sums[score.method][n % 6]]})
        for n, score in enumerate(scores("conservation", values))
    ]
    summary = tabulate(db, stored(db, plan_of(list(sums), SPEC), found, 6))
    (table,) = summary.tables
    assert [row.method for row in table.rows] == ["near", "far", "constant", "random"]
    assert table.best is None and all(row.rank is None for row in table.rows)
    for row in table.rows:
        assert row.points == tuple(zip(logits, sums[row.method], strict=True))
        known = None if row.method == "constant" else np.corrcoef(logits, sums[row.method])[0, 1]
        assert row.correlation == (None if known is None else pytest.approx(known))
    page = EVALUATION_REPORTS.load("html")(summary)
    assert page.count('role="img" aria-label="Conservation of') == 4
    rows = list(csv.DictReader(io.StringIO(EVALUATION_REPORTS.load("csv")(summary))))
    assert rows[2]["correlation"] == "" and float(rows[0]["correlation"]) > 0.99
    assert "| Correlation |" in EVALUATION_REPORTS.load("md")(summary)


# ---- the controls of the group table in every format --------------------------------------------


STRATUM = Stratum("class:positive", "positive", "positive")


def ablations() -> list[MentionAblation]:
    of: Any = {"target": "class:positive", "class_name": "positive", "group": "anns"}
    return [
        MentionAblation(
            **of | {"item_id": f"row-{n}", "entity": name, "flipped": n % 3 == 0},
            **{"change": 0.5 + n / 10, "relevance": 0.5 + n / 9},
        )
        for n, name in enumerate(ANNS)
    ]


def mentioned(gap: float) -> EntityTotals:
    anns = {name: [gap + n / 50] for n, name in enumerate(ANNS)}
    return totals_of({"anns": anns, "bobs": {n: [k / 50] for k, n in enumerate(BOBS)}}, STRATUM)


def summary(db: Database, gap: float = 0.0, **changes: object) -> Summary:
    control = randomised(mentioned(0.5), [mentioned(gap)], items=12)
    checked = ControlResults(ablations=ablations(), randomised=control)
    return summarise(db, biased_run(db, **({"checked": checked, "planted": 0.5} | changes)))


@pytest.mark.exhaustive
def test_all_three_controls_are_in_every_format(db: Database) -> None:
    found = summary(db)
    assert found.groups is not None
    removed, redrawn, planted = control_sentences(found.groups)
    assert "2 of 6" in removed and "12 sampled items" in redrawn and "Less than half" in redrawn
    assert all(part in planted for part in ("0.25 in ", "1.00 in ", "of 200 lexicons"))
    shown = " ".join(Visible(REPORTS.load("html")(found)).text.split())
    assert all(" ".join(text.split()) in shown for text in (removed, redrawn, planted))
    groups = json.loads(REPORTS.load("json")(found))["groups"]
    assert groups["removals"]["rows"][0]["changed"] == 2
    assert groups["randomised"]["rows"][0]["randomised"]["verdict"] == "equivalent"
    assert [one["difference"] for one in groups["planted"]] == [0.25, 0.5, 1.0]


@pytest.mark.exhaustive
def test_a_difference_that_survives_is_in_the_headline(db: Database) -> None:
    found = summary(db, gap=0.5)
    assert found.groups is not None and found.groups.randomised is not None
    flagged = [line.text for line in found.headline if line.text.startswith("Relevance")]
    assert any("95\u00a0% interval 100 to 100\u00a0%" in text for text in flagged)
    assert "At least half" in control_sentences(found.groups)[1]


def test_controls_that_were_not_made_are_not_in_the_report(db: Database) -> None:
    found = summary(db, checked=None, planted=None)
    assert found.groups is not None
    assert control_sentences(found.groups) == []
    assert "Randomised model" not in REPORTS.load("html")(found)
