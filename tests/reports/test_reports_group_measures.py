"""What the report says of groups besides their table: numbers and words."""

import json
import random
from dataclasses import replace

import pytest
from evaluation_samples import plan_of
from report_samples import (
    ANNS,
    BOBS,
    CLASSES,
    GROUPS,
    Visible,
    biased_run,
    explained_text,
    stored_run,
)

from transexplain.analysis.groups.group_table import Reversal, Split
from transexplain.reports.report_formats import render_html, render_json
from transexplain.reports.report_section import merged
from transexplain.reports.sections.group_matching import dropped_by_group
from transexplain.reports.sections.group_relevance import ALL_ITEMS, quality_by_group
from transexplain.reports.summary import summarise
from transexplain.store import readers, runs
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup
from transexplain.types.scores import MetricScore, MetricSpec

FILLERS = tuple(f"filler{'abcdefghijkl'[i]}" for i in range(12))


def seen(document: str) -> str:
    return " ".join(Visible(document).text.split())


def background_run(db: Database) -> str:
    """Each name is in three texts, and so is each of twelve other words."""
    explained = [
        explained_text(n, f"{(*ANNS, *BOBS)[n % 12]} {FILLERS[(n * 5) % 12]} good", None)
        for n in range(36)
    ]
    return stored_run(db, explained, groups=GROUPS)


def test_words_as_frequent_are_shown(db: Database) -> None:
    found = summarise(db, background_run(db))
    anns, bobs = found.groups.rows
    assert anns.background.words == 12  # neither names nor "good"
    assert anns.background.mean == pytest.approx(0.01, abs=1e-4)
    assert anns.background.difference == pytest.approx(0.49, abs=1e-3)
    assert bobs.background.difference == pytest.approx(0.0, abs=1e-3)
    text = seen(render_html(found))
    assert "+0.010 [0.010, 0.010] 12 words" in text and "+0.49 [0.49, 0.49]" in text
    row = json.loads(render_json(found))["groups"]["rows"][0]
    assert row["quantiles"]["median"] == pytest.approx(0.5, rel=0.005)
    assert row["background"]["entities"] == 6


def split_run(db: Database) -> str:
    """Anns raise `positive` only where the text is good; names of either kind in both."""
    draw = random.Random(1)
    explained = []
    for number in range(96):
        name = (*ANNS, *BOBS)[number % 12]
        good = number // 12 % 2 == 0
        outcome, attribution = explained_text(number, f"{name} was {'good' if good else 'bad'}", "")
        relevance = attribution.relevance.copy()
        relevance[1] = (1.0 if good and name in ANNS else 0.0) + draw.gauss(0, 0.01)
        outcome = replace(outcome, predicted=CLASSES[good], label=None)
        explained.append((outcome, replace(attribution, relevance=relevance)))
    return stored_run(db, explained, groups=GROUPS)


@pytest.mark.exhaustive
def test_splits_are_shown(db: Database) -> None:
    found = summarise(db, split_run(db))
    (split,) = found.groups.splits
    assert split.by == "predicted class"
    differences = {
        part.value: next(r.difference for r in part.rows if r.group == "anns")
        for part in split.parts
    }
    assert differences["positive"] == pytest.approx(1.0, abs=0.05)
    assert differences["negative"] == pytest.approx(0.0, abs=0.05)
    assert "equivalent among items predicted negative: anns" in seen(render_html(found))
    document = json.loads(render_json(found))["groups"]["splits"]
    assert [part["value"] for part in document[0]["parts"]] == ["negative", "positive"]


@pytest.mark.exhaustive
def test_reversals_are_pointed_out(db: Database) -> None:
    found = summarise(db, split_run(db))
    groups = found.groups
    turned = Reversal(
        group="anns",
        target="class:positive",
        class_name="positive",
        overall=0.5,
        parts={"negative": -0.25, "positive": -0.125},
    )
    (split,) = groups.splits
    changed = Split(by="label", parts=split.parts, omitted=3, reversals=(turned,))
    text = seen(render_html(replace(found, groups=replace(groups, splits=(changed,)))))
    assert "+0.50 over all items, but \N{MINUS SIGN}0.25 among negative" in text
    assert "3 parts with fewer mentions" in text


def test_dropped_terms_by_group() -> None:
    counts = {("b", "Will"): 3, ("a", "Mark"): 1, **{("b", f"x{n}"): n for n in range(4, 9)}}
    a, b = dropped_by_group(counts)
    assert (a.group, a.count, a.entities) == ("a", 1, (("Mark", 1),))
    assert (b.count, len(b.entities), b.entities[0]) == (33, 5, ("x8", 8))
    assert dropped_by_group({}) == ()


def sparsities(count: int) -> tuple[MetricScore, ...]:
    return tuple(
        MetricScore(
            item_id=f"row-{n}", method="lrp", target="predicted", metric="sparsity", value=n / 10
        )
        for n in range(count)
    )


def test_quality_by_group(db: Database) -> None:
    """Of the first nine items the first six mention Anns and three Bobs: too few for a figure."""
    plan = plan_of(["lrp", "random"], MetricSpec(name="sparsity"))
    run_id = biased_run(db, evaluation=plan, scores=sparsities(9), shard_size=38)
    every, anns, bobs = quality_by_group(db, runs.get(db, run_id), merged(db, run_id).gaps)
    assert [(one.group, one.items) for one in (every, anns, bobs)] == [
        ("all items", 36),
        ("anns", 18),
        ("bobs", 18),
    ]
    assert every.gap == pytest.approx(1e-7) and anns.gap == pytest.approx(1e-7)
    assert [one.scores[0].items for one in (every, anns, bobs)] == [9, 6, 3]
    assert every.scores[0].mean == pytest.approx(0.4)
    assert anns.scores[0].mean == pytest.approx(0.25)
    assert bobs.scores[0].mean is None
    assert "too few 3 texts" in seen(render_html(summarise(db, run_id)))


def test_gaps_of_the_totals_are_those_of_the_rows(db: Database) -> None:
    run = runs.get(db, biased_run(db, shard_size=7))
    found = quality_by_group(db, run, merged(db, run.id).gaps)
    assert [row.group for row in found] == ["all items", "anns", "bobs"]
    mentioned: dict[str, set[str]] = {}
    for each in readers.iter_mentions(db, run.id):
        mentioned.setdefault(each.group, set()).add(each.item_id)
    ledgers = [(each.item_id, each.ledger) for each in readers.iter_attributions(db, run.id)]
    for row in found:
        gaps = [
            ledger.relative_gap
            for item_id, ledger in ledgers
            if ledger is not None and (row.group == ALL_ITEMS or item_id in mentioned[row.group])
        ]
        assert row.gap == pytest.approx(sum(gaps) / len(gaps), rel=1e-12)


def test_without_ledgers_or_mentions_there_is_no_quality(db: Database) -> None:
    outcome, attribution = explained_text(0, "good", None)
    bare = [(outcome, replace(attribution, ledger=None))]
    found = summarise(db, stored_run(db, bare, groups=(EntityGroup(name="a", terms=("Ann",)),)))
    assert found.groups.quality == () == found.groups.splits
    assert render_html(found)
