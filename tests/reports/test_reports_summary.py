"""From stored rows to the summary, on a small run whose truth is known."""

from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import (
    ANNS,
    CLASSES,
    biased_run,
    explained_text,
    image_attribution,
    ledger,
    stored_run,
    swapped,
)

from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.errors import ConfigurationError
from transexplain.reports import REPORTS
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemOutcome
from transexplain.types.plans import DatasetRef, ModelRef


def texts(summary: object, kind: str) -> str:
    return "\n".join(line.text for line in summary.headline if line.kind == kind)  # type: ignore[attr-defined]


def test_counts_accuracy_and_failures(db: Database) -> None:
    found = summarise(db, biased_run(db))
    counts = found.counts
    assert (counts.total, counts.done, counts.failed, counts.pending) == (38, 36, 2, 0)
    # an Ann turns `bad` (-1 + .5) or leaves `good`; every label agrees with the word
    assert (counts.labelled, counts.correct, counts.accuracy) == (36, 36, 1.0)
    assert [(kind.kind, kind.count) for kind in found.failures] == [("empty-text", 1), ("null", 1)]
    assert found.failures[0].examples[0].item_id == "row-36"
    assert "36 of 38 texts were explained; 2 failed" in texts(found, "fact")


def test_the_planted_bias_is_in_the_headline(db: Database) -> None:
    found = summarise(db, biased_run(db))
    assert found.groups is not None
    rows = {row.group: row for row in found.groups.rows}
    assert rows["anns"].flagged and rows["anns"].entities == len(ANNS)
    assert rows["anns"].difference == pytest.approx(0.49, abs=1e-6)
    flagged = texts(found, "flagged")
    assert "anns against all other groups. The mention changes the prediction" in flagged
    assert "moves the log-odds of positive by +0.98" in flagged
    relevance = "anns add 0.49 logit more to positive than those of all other groups"
    assert relevance in texts(found, "fact")
    assert found.groups.never_mentioned == ("places",)
    assert "places" in texts(found, "unknown")


def test_groups_with_few_entities_are_not_judged(db: Database) -> None:
    run = stored_run(
        db,
        [explained_text(n, f"{'Ann' if n % 2 else 'Bob'} is good", None) for n in range(8)],
        groups=(EntityGroup(name="anns", terms=("Ann",)), EntityGroup(name="b", terms=("Bob",))),
    )
    found = summarise(db, run)
    assert not texts(found, "flagged") and not texts(found, "clear")
    assert "fewer than 10 items on a side" not in texts(found, "flagged")
    assert "too few entities for a comparison of relevance" in texts(found, "unknown")
    assert found.counts.accuracy is None and "the accuracy is not known" in texts(found, "unknown")


def test_top_words_by_mean_and_total(db: Database) -> None:
    (view,) = summarise(db, biased_run(db)).classes
    assert (view.target, view.class_name, view.items, view.minimum) == (
        "class:positive",
        "positive",
        36,
        2,
    )
    assert view.raising_by_total[0].word == "good"
    assert view.raising_by_total[0].total == pytest.approx(24.0)
    assert view.raising_by_total[0].documents == 24
    assert view.raising_by_mean[0].mean == pytest.approx(1.0)
    assert [word.word for word in view.lowering_by_mean] == ["bad"]
    assert view.lowering_by_total[0].total == pytest.approx(-12.0)
    means = [word.mean for word in view.raising_by_mean]
    assert means == sorted(means, reverse=True)


def test_words_in_few_documents_are_left_out(db: Database) -> None:
    run = stored_run(db, [explained_text(0, "unique", None), explained_text(1, "is is", None)])
    (view,) = summarise(db, run).classes
    assert view.raising_by_total == ()


@pytest.mark.exhaustive
def test_conservation_is_judged_against_the_number_type(db: Database) -> None:
    found = summarise(db, biased_run(db))
    kept = found.conservation
    assert kept is not None and kept.attributions == 36
    assert kept.worst == pytest.approx(1e-7) and kept.tolerance == 5e-6 and kept.above == 0
    assert "The ledgers close for every explanation" in texts(found, "good")
    assert kept.average["special"] == pytest.approx(0.2)
    assert kept.average["biases"] == pytest.approx(-0.1)
    assert kept.average_size["biases"] == pytest.approx(0.1)

    strict = biased_run(db, model=ModelRef(source="m", dtype="float64", classes=CLASSES))
    judged = summarise(db, strict)
    assert judged.conservation is not None and judged.conservation.above == 36
    assert "The ledgers of 36 of 36 explanations do not close" in texts(judged, "problem")

    half = biased_run(db, model=ModelRef(source="m", dtype="bfloat16", classes=CLASSES))
    measured = summarise(db, half)
    assert measured.conservation is not None and measured.conservation.tolerance is None
    assert "measured, not judged" in texts(measured, "fact")


def test_a_method_without_ledger_says_so(db: Database) -> None:
    from dataclasses import replace

    outcome, attribution = explained_text(0, "good", None)
    run = stored_run(db, [(outcome, replace(attribution, ledger=None))])
    found = summarise(db, run)
    assert found.conservation is None and "does not conserve" in texts(found, "unknown")


def test_a_method_that_does_not_distinguish_classes_is_named(db: Database) -> None:
    for value, kind in ((0.01, "problem"), (0.6, None)):
        found = summarise(db, biased_run(db, sensitivity=value))
        assert found.class_sensitivity is not None
        assert found.class_sensitivity.mean == pytest.approx(value)
        reported = "hardly distinguishes classes" in texts(found, "problem")
        assert reported == (kind == "problem")
        assert any("Class sensitivity is" in note for note in found.notes)
    assert summarise(db, biased_run(db)).class_sensitivity is None


def test_an_unfinished_run_is_reported_as_such(db: Database) -> None:
    found = summarise(db, biased_run(db, leave=2))
    assert found.audited.state == "running"
    assert found.counts.pending == 38 - 28 and found.counts.done == 28
    assert "10 texts have no result: the run is running" in texts(found, "problem")


def test_a_run_without_any_result(db: Database) -> None:
    run = stored_run(db, [explained_text(0, "good", None)], leave=1)
    found = summarise(db, run)
    assert found.counts.pending == 1 and found.classes == () and found.gallery.items == ()
    assert found.conservation is None and "conserve" not in texts(found, "unknown")


def test_the_gallery_is_bounded_deterministic_and_says_why(db: Database) -> None:
    explained = [
        explained_text(n, " ".join(["good"] * (n % 5 + 1)), CLASSES[n % 3 > 0]) for n in range(30)
    ]
    run = stored_run(db, explained)
    found = summarise(db, run, gallery=9)
    assert found == summarise(db, run, gallery=9)
    reasons = [item.reason for item in found.gallery.items]
    assert reasons == ["wrong"] * 3 + ["strong"] * 3 + ["first"] * 3
    wrong = found.gallery.items[:3]
    assert all(item.label == "negative" and item.predicted == "positive" for item in wrong)
    assert [item.text for item in wrong] == ["good good good good good"] * 2 + [
        "good good good good"
    ]
    assert len({item.item_id for item in found.gallery.items}) == 9
    assert len(summarise(db, run).gallery.items) == 30  # all of a run below the default of 40
    assert summarise(db, run, gallery=0).gallery.items == ()
    with pytest.raises(ConfigurationError, match="gallery"):
        summarise(db, run, gallery=-1)


def test_long_texts_are_shown_in_part_and_unread_parts_marked(db: Database) -> None:
    text = "good " + "x" * 9_000
    outcome, attribution = explained_text(0, text, None, truncated=True)
    from dataclasses import replace

    read = (attribution.features[0], attribution.features[1])  # type: ignore[index]
    short = replace(attribution, features=read, relevance=attribution.relevance[:2])
    found = summarise(db, stored_run(db, [(outcome, short)]))
    (item,) = found.gallery.items
    assert item.truncated and item.unread_from == 4
    assert item.text == text[:4_000] and item.hidden == len(text) - 4_000
    assert found.counts.truncated == 1
    assert "1 text was longer than the model reads" in texts(found, "problem")


def test_confusion_keeps_the_order_of_classes_and_items_without_label(db: Database) -> None:
    labels = ["positive", "negative", None, "positive", "other"]
    explained = [
        explained_text(n, "bad" if n == 3 else "good", label) for n, label in enumerate(labels)
    ]
    table = summarise(db, stored_run(db, explained)).confusion
    assert table.labels == ("negative", "positive", "other", "")
    assert table.predicted == ("negative", "positive")
    assert table.counts == ((0, 1), (1, 1), (0, 1), (0, 1)) and table.omitted == 0


def test_rare_classes_beyond_the_table_are_counted(db: Database) -> None:
    explained = [explained_text(n, "good", f"label {n:02}") for n in range(20)]
    table = summarise(db, stored_run(db, explained)).confusion
    assert len(table.labels) == 16 and table.omitted == 4


def image_run(db: Database, folder: Path, count: int = 6) -> str:
    explained = []
    for index in range(count):
        value = float(index + 1)
        outcome = ItemOutcome(
            item_id=f"cat/{index}.png",
            index=index,
            label="cat",
            predicted="cat" if index % 2 else "dog",
            logits=(0.0, value) if index % 2 == 0 else (value, 0.0),
            truncated=False,
            positions=5,
            source=f"cat/{index}.png",
        )
        attribution = image_attribution(
            [[value, -value], [0.0, 0.0]],
            item_id=outcome.item_id,
            target="top:1",
            class_index=0,
            class_name=outcome.predicted,
            ledger=ledger(0.0),
        )
        explained.append((outcome, attribution))
    return stored_run(
        db,
        explained,
        model=ModelRef(source="m", modality="image", classes=("cat", "dog"), digest="d"),
        dataset=DatasetRef(
            source="imagefolder:x",
            modality="image",
            snapshot="s",
            fingerprint="f",
            rows=count,
            root=str(folder),
        ),
        targets=("top:1",),
    )


def test_images_have_mean_heatmaps_per_class(db: Database, tmp_path: Path) -> None:
    found = summarise(db, image_run(db, tmp_path))
    heatmaps = {view.class_name: view.heatmap for view in found.classes}
    assert heatmaps == {
        "cat": ((4.0, -4.0), (0.0, 0.0)),  # mean of 2, 4, 6
        "dog": ((3.0, -3.0), (0.0, 0.0)),
    }
    (item, *_) = found.gallery.items
    assert item.source == "cat/4.png" and item.explanations[0].grid == ((5.0, -5.0), (0.0, 0.0))
    assert item.text is None


def test_an_unknown_run_is_refused(db: Database) -> None:
    biased_run(db)
    with pytest.raises(ConfigurationError, match="sample audit"):
        summarise(db, "nothing")


def test_rows_are_walked_not_held(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no time do more attributions live than two parts of the store hold."""
    import gc
    import weakref

    from transexplain.store import parts, results

    alive: set[int] = set()
    most = 0
    original = results.iter_attributions

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal most
        for one in original(*args, **kwargs):  # type: ignore[arg-type]
            key = id(one.relevance)
            alive.add(key)
            weakref.finalize(one.relevance, alive.discard, key)
            most = max(most, len(alive))
            yield one

    monkeypatch.setattr(parts, "_PAYLOADS", 1)
    monkeypatch.setattr(results, "iter_attributions", counted)
    run = biased_run(db)
    gc.disable()
    try:
        summarise(db, run, gallery=3)
    finally:
        gc.enable()
    assert 0 < most <= 14


@pytest.mark.parametrize(
    ("effect", "mention"),
    [(0.98, "changes"), (0.0, "open"), (None, "open")],
)
def test_swaps_decide_and_relevance_does_not(
    db: Database, effect: float | None, mention: str
) -> None:
    observations = [] if effect is None else swapped(effect)
    found = summarise(db, biased_run(db, checked=ControlResults(observations=observations)))
    assert found.groups is not None
    assert {one.mention for one in found.groups.verdicts} == {mention}
    assert any(row.flagged for row in found.groups.rows), "relevance differs in any case"
    page = REPORTS.load("html")(found)
    assert ("<h3>Swaps " in page) == (effect is not None)
    assert "no measure of harm" in page


def test_saved_answers_that_are_not_the_plans_are_damage(db: Database) -> None:
    wrong = [replace(one, log_odds=(*one.log_odds, 1.0)) for one in swapped()]
    run = biased_run(db, checked=ControlResults(observations=wrong))
    with pytest.raises(ConfigurationError, match="have 2 answers where its plan has 1"):
        summarise(db, run)
