"""What reports say of conservation: books that close, sums that do or do not meet the logit."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evaluation_samples import plan_of, scores, stored
from report_samples import Visible, biased_run, explained_text, stored_run

from transexplain.reports import EVALUATION_REPORTS
from transexplain.reports.evaluation import tabulate
from transexplain.reports.phrasing import percent
from transexplain.reports.report_formats import render_html
from transexplain.reports.run_metrics import run_metrics
from transexplain.reports.sections.measured_faithfulness import (
    Conservation,
    conservation_chart,
    conservation_sentences,
)
from transexplain.reports.summary import redacted, summarise
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


@pytest.mark.parametrize("shard_size", [1, 5, 36])
def test_the_figures_are_the_same_whatever_the_shards(db: Database, shard_size: int) -> None:
    texts = [explained_text(n, "good " * (n % 7 + 1) + "x " * n, None) for n in range(36)]
    one = summarise(db, stored_run(db, texts, shard_size=7)).conservation
    other = summarise(db, stored_run(db, texts, shard_size=shard_size)).conservation
    assert one is not None and other is not None
    for name in ("relevance_error", "correlation", "points"):
        assert getattr(one, name) == getattr(other, name), "the same bits"


def test_the_sentences_tell_books_from_sums(db: Database) -> None:
    found = conserved(db)
    books, sums = conservation_sentences(found)
    assert books.kind == "good" and "ledgers close for every explanation" in books.text
    assert (
        "by itself does not sum to the logit" in sums.text
        and f"biases {percent(found.size_shares['biases'])}" in sums.text
    )
    books, sums = conservation_sentences(replace(found, above=3, relevance_error=0.04))
    assert books.kind == "problem" and "3 of 36 explanations do not close" in books.text
    assert "by itself sums to the logit" in sums.text and sums.kind == "fact"
    assert len(list(conservation_sentences(replace(found, relevance_error=None)))) == 1


def test_the_page_has_shares_and_the_scatter_and_a_redacted_one_no_points(db: Database) -> None:
    summary = summarise(db, biased_run(db))
    page = Visible(render_html(summary))
    for expected in ("Do the ledgers close?", "Does relevance sum to the logit?", "Share of size"):
        assert expected in page.text
    assert "36 of 36, evenly spaced over the data" in page.text
    assert summary.conservation is not None
    assert conservation_chart(summary.conservation) is not None
    public = redacted(summary).conservation
    assert public is not None and public.points == () and public.correlation is not None
    assert conservation_chart(public) is None


def test_they_are_metrics_of_the_run(db: Database) -> None:
    summary = summarise(db, biased_run(db))
    found = {one.name: one.value for one in run_metrics(summary)}
    assert summary.conservation is not None
    assert found["relevance_error"] == summary.conservation.relevance_error
    assert found["relevance_correlation"] == summary.conservation.correlation
    assert found["biases_share"] == summary.conservation.size_shares["biases"]


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
        replace(one, detail={"pair": [logits[n], sums[one.method][n]]})
        for one in scores("conservation", values)
        for n in [int(one.item_id.removeprefix("row-"))]
    ]
    summary = tabulate(db, stored(db, plan_of(list(sums), SPEC), found, 6))
    (table,) = summary.tables
    assert [row.method for row in table.rows] == ["near", "far", "constant", "random"]
    assert table.best is None and all(row.rank is None for row in table.rows)
    for row in table.rows:
        assert row.points == tuple(zip(logits, sums[row.method], strict=True))
        known = None if row.method == "constant" else np.corrcoef(logits, sums[row.method])[0, 1]
        assert row.correlation == (None if known is None else pytest.approx(known))
    text = " ".join(line.text for line in summary.headline)
    assert "near +1.00, far" in text and "constant: one of both is the same for every item" in text
    page = EVALUATION_REPORTS.load("html")(summary)
    assert page.count('role="img" aria-label="Conservation of') == 4
    rows = list(csv.DictReader(io.StringIO(EVALUATION_REPORTS.load("csv")(summary))))
    assert rows[2]["correlation"] == "" and float(rows[0]["correlation"]) > 0.99
    assert "| Correlation |" in EVALUATION_REPORTS.load("md")(summary)
