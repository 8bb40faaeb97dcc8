"""From stored rows to the summary, on a small run whose truth is known."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from gallery import Gallery
from redaction_gaps import gaps
from report_samples import (
    ANNS,
    CLASSES,
    Visible,
    biased_run,
    explained_text,
    image_run,
    stored_run,
    swapped,
)

from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.errors import ConfigurationError
from transexplain.reports import REPORTS
from transexplain.reports.report_formats import render_html, render_json
from transexplain.reports.report_records import SCHEMA_VERSION, Summary
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.item_fates import (
    SECTION,
    Confusion,
    FateCounts,
    TextsByLength,
    _parts,
    by_chance,
)
from transexplain.reports.sections.measured_faithfulness import conservation_sentences
from transexplain.reports.summary import redacted, rules, summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup
from transexplain.types.plans import ModelRef


def texts(summary: object, kind: str) -> str:
    return "\n".join(line.text for line in summary.headline if line.kind == kind)  # type: ignore[attr-defined]


def test_counts_accuracy_and_failures(gallery: Gallery) -> None:
    found = gallery.summary("biased")
    counts = found.counts
    assert (counts.total, counts.done, counts.failed, counts.pending) == (38, 36, 2, 0)
    # an Ann turns `bad` (-1 + .5) or leaves `good`; every label agrees with the word
    assert (counts.labelled, counts.correct, counts.accuracy) == (36, 36, 1.0)
    assert [(kind.kind, kind.count) for kind in found.failures] == [("empty-text", 1), ("null", 1)]
    assert found.failures[0].examples[0].item_id == "row-36"


def test_the_planted_bias_is_found(gallery: Gallery) -> None:
    found = gallery.summary("biased")
    rows = {row.group: row for row in found.groups.rows}
    assert rows["anns"].flagged and rows["anns"].entities == len(ANNS)
    assert rows["anns"].difference == pytest.approx(0.49, abs=1e-6)
    assert found.groups.never_mentioned == ("places",)


def test_groups_with_few_entities_are_not_judged(db: Database) -> None:
    explained = [explained_text(n, f"{('Bob', 'Ann')[n % 2]} is good", None) for n in range(8)]
    groups = [EntityGroup(name=name, terms=(name,)) for name in ("Ann", "Bob")]
    found = summarise(db, stored_run(db, explained, groups=groups))
    assert not texts(found, "flagged") and not texts(found, "clear")
    assert "too few entities" in texts(found, "unknown") and found.counts.accuracy is None


def test_top_words_by_mean_and_total(gallery: Gallery) -> None:
    (view,) = gallery.summary("biased").classes
    assert (view.target, view.class_name) == ("class:positive", "positive")
    assert (view.items, view.minimum) == (36, 2)
    first = view.raising_by_total[0]
    assert (first.word, first.total, first.documents) == ("good", pytest.approx(24.0), 24)
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
def test_conservation_is_judged_against_the_number_type(db: Database, gallery: Gallery) -> None:
    found = gallery.summary("biased")
    kept = found.conservation
    assert kept is not None and kept.attributions == 36
    assert kept.worst == pytest.approx(1e-7) and kept.tolerance == 5e-6 and kept.above == 0
    assert kept.average["special"] == pytest.approx(0.2)
    assert kept.average["biases"] == pytest.approx(-0.1)
    assert kept.average_size["biases"] == pytest.approx(0.1)

    for dtype, kind, above in (("float64", "problem", 36), ("bfloat16", "fact", None)):
        model = ModelRef(source="m", dtype=dtype, classes=CLASSES)
        judged = summarise(db, biased_run(db, model=model)).conservation
        assert next(iter(conservation_sentences(judged))).kind == kind
        assert judged.tolerance is None if above is None else judged.above == above


def test_a_method_without_ledger_says_so(db: Database) -> None:
    outcome, attribution = explained_text(0, "good", None)
    run = stored_run(db, [(outcome, replace(attribution, ledger=None))])
    found = summarise(db, run)
    assert found.conservation is None and "conserve" in texts(found, "unknown")


def test_a_method_that_does_not_distinguish_classes_is_named(
    db: Database, gallery: Gallery
) -> None:
    for value in (0.01, 0.6):
        found = summarise(db, biased_run(db, sensitivity=value))
        assert found.class_sensitivity.mean == pytest.approx(value)
        assert ("distinguishes classes" in texts(found, "problem")) == (value < 0.1)
    assert gallery.summary("biased").class_sensitivity is None


def test_an_unfinished_run_is_reported_as_such(gallery: Gallery) -> None:
    found = gallery.summary("unfinished")
    assert found.audited.state == "running"
    assert found.counts.pending == 38 - 28 and found.counts.done == 28
    assert "10 texts" in texts(found, "problem")


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
    assert [len(item.text.split()) for item in wrong] == [5, 5, 4]
    assert len({item.item_id for item in found.gallery.items}) == 9
    assert len(summarise(db, run).gallery.items) == 30  # all of a run below the default of 40
    assert summarise(db, run, gallery=0).gallery.items == ()
    with pytest.raises(ConfigurationError, match="gallery"):
        summarise(db, run, gallery=-1)


def test_long_texts_are_shown_in_part_and_unread_parts_marked(db: Database) -> None:
    text = "good " + "x" * 9_000
    outcome, attribution = explained_text(0, text, None, truncated=True)
    read = (attribution.features[0], attribution.features[1])  # type: ignore[index]
    short = replace(attribution, features=read, relevance=attribution.relevance[:2])
    found = summarise(db, stored_run(db, [(outcome, short)]))
    (item,) = found.gallery.items
    assert item.truncated and item.unread_from == 4
    assert item.text == text[:4_000] and item.hidden == len(text) - 4_000
    assert found.counts.truncated == 1 and "1 text " in texts(found, "problem")


def test_confusion_keeps_the_order_of_classes_and_items_without_label(db: Database) -> None:
    labels = ["positive", "negative", None, "positive", "other"]
    texts = ["bad" if n == 3 else "good" for n in range(5)]
    explained = [explained_text(n, *row) for n, row in enumerate(zip(texts, labels, strict=True))]
    table = summarise(db, stored_run(db, explained)).confusion
    assert table.labels == ("negative", "positive", "other", "")
    assert table.predicted == ("negative", "positive")
    assert table.counts == ((0, 1), (1, 1), (0, 1), (0, 1)) and table.omitted == 0
    many = [explained_text(n, "good", f"label {n:02}") for n in range(20)]
    table = summarise(db, stored_run(db, many)).confusion
    assert len(table.labels) == 16 and table.omitted == 4


def test_images_have_mean_heatmaps_per_class(db: Database, tmp_path: Path) -> None:
    found = summarise(db, image_run(db, tmp_path))
    heatmaps = {view.class_name: view.heatmap[0] for view in found.classes}
    assert heatmaps == {"cat": (4.0, -4.0), "dog": (3.0, -3.0)}, "of cats the mean of 2, 4, 6"
    (item, *_) = found.gallery.items
    assert item.source == "cat/4.png" and item.explanations[0].grid == ((5.0, -5.0), (0.0, 0.0))
    assert item.text is None


def test_rows_are_walked_not_held(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no time do more attributions live than two blocks of the store hold."""
    import gc
    import weakref

    from transexplain.store import blocks, readers

    alive: set[int] = set()
    most = 0
    original = readers.iter_attributions

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal most
        for one in original(*args, **kwargs):  # type: ignore[arg-type]
            key = id(one.relevance)
            alive.add(key)
            weakref.finalize(one.relevance, alive.discard, key)
            most = max(most, len(alive))
            yield one

    monkeypatch.setattr(blocks, "ITEMS", 7)
    monkeypatch.setattr(readers, "iter_attributions", counted)
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
    assert {one.mention for one in found.groups.verdicts} == {mention}
    assert any(row.flagged for row in found.groups.rows), "relevance differs in any case"
    assert ("<h3>Swaps " in REPORTS.load("html")(found)) == (effect is not None)


def test_saved_answers_that_are_not_the_plans_are_damage(db: Database) -> None:
    wrong = [replace(one, log_odds=(*one.log_odds, 1.0)) for one in swapped()]
    run = biased_run(db, checked=ControlResults(observations=wrong))
    with pytest.raises(ConfigurationError, match="have 2 answers where its plan has 1"):
        summarise(db, run)


# ---- the sentence on accuracy -------------------------------------------------------------------


def confusion(*rows: tuple[int | None, ...], labels: str = "ab", omitted: int = 0) -> Confusion:
    names = tuple(label.strip() for label in labels)
    return Confusion(labels=names, predicted=("a", "b"), counts=rows, omitted=omitted)


def kind(found: Confusion) -> str:
    """Of the sentence on accuracy."""
    rows = dict(zip(found.labels, found.counts, strict=True))
    labelled = sum(sum(count or 0 for count in row) for label, row in rows.items() if label)
    correct = (rows["a"][0] or 0) + (rows["b"][1] or 0)
    none = dict.fromkeys(("failed", "pending", "dead_shards", "truncated"), 0)
    of_all = dict.fromkeys(("total", "done", "labelled"), labelled)
    counts = FateCounts(**none, **of_all, correct=correct, accuracy=correct / labelled)
    audited = SimpleNamespace(modality="text", state="done", head="classes")
    report = SimpleNamespace(audited=audited, counts=counts, confusion=found, failures=())
    *_, accuracy = SECTION.sentences(report)
    return accuracy.kind


def test_chance_is_what_guesses_of_the_same_frequencies_reach() -> None:
    assert by_chance(confusion((14, 56), (6, 24))) == pytest.approx(0.7 * 0.2 + 0.3 * 0.8)


def test_chance_is_not_given_where_counts_are_missing() -> None:
    for table in (
        confusion((40, 10), (10, 40), omitted=3),  # rare classes are left out
        confusion((40, None), (10, 40)),  # redacted
        confusion((40, 10), (10, 40), labels="a "),  # one label
        confusion((0, 0), (0, 0)),
    ):
        assert by_chance(table) is None


def test_swapped_and_unrelated_labels_are_a_problem() -> None:
    for rows in (((10, 40), (40, 10)), ((25, 25), (25, 25)), ((90, 0), (10, 0))):
        assert kind(confusion(*rows)) == "problem"
    for rows in (((40, 10), (10, 40)), ((2, 3), (3, 2))):
        assert kind(confusion(*rows)) == "fact", "a high accuracy, and few items"


def test_unlabelled_items_are_no_part_of_chance() -> None:
    with_others = confusion((40, 10), (10, 40), (0, 900), labels="ab ")
    assert by_chance(with_others) == by_chance(confusion((40, 10), (10, 40))) == 0.5


# ---- how labels were read -----------------------------------------------------------------------


STARS = {"1": "negative", "3": None, "5": "positive"}


def test_every_label_is_listed_with_its_class(db: Database) -> None:
    """Twelve texts have one star, three have three, five have five."""
    explained = [
        explained_text(index, "good x", STARS[star], raw_label=star)
        for index, star in enumerate("1" * 12 + "3" * 3 + "5" * 5)
    ]
    summary = summarise(db, stored_run(db, explained))
    found = summary.sections["labels"]
    assert [(one.label, one.class_name, one.items) for one in found.readings] == [
        ("1", "negative", 12),
        ("5", "positive", 5),
        ("3", None, 3),
    ]
    assert found.omitted == 0
    assert "no class" in Visible(render_html(summary)).text
    published = redacted(summary, 5).sections["labels"].readings
    assert published == found.readings[:2], "not those of few items"


# ---- the JSON report ----------------------------------------------------------------------------


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_the_report_is_strict_json_of_the_documented_keys(gallery: Gallery) -> None:
    found = gallery.document("biased")
    assert set(found) == {field.name for field in fields(Summary)}
    assert found["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_hold_are_null(gallery: Gallery, odd: float) -> None:
    summary = gallery.summary("biased")
    summary = replace(summary, gallery=replace(summary.gallery, scale=odd))
    assert json.loads(render_json(summary), parse_constant=refuse)["gallery"]["scale"] is None


# ---- texts by length ----------------------------------------------------------------------------


def of_lengths(db: Database, lengths: Sequence[int], wrong: Sequence[int] = ()) -> str:
    """A text of so many words each, and two special tokens; labels of `wrong` do not match."""
    explained = []
    for index, words in enumerate(lengths):
        text = " ".join(["good", *["x"] * (words - 1)])
        explained.append(explained_text(index, text, CLASSES[index not in wrong]))
    return stored_run(db, explained)


def test_parts_worked_by_hand(db: Database) -> None:
    summary = summarise(db, of_lengths(db, [1, 1, 1, 2, 3, 4, 5, 6], wrong=[7]))
    found = summary.sections["texts_by_length"]
    parts = [(part.shortest, part.longest, part.items) for part in found.parts]
    assert parts == [(3, 3, 3), (4, 4, 1), (5, 6, 2), (7, 8, 2)]
    assert [one.accuracy for one in found.parts] == [1.0, 1.0, 1.0, 0.5]
    assert found.parts[-1].interval[0] < 0.5 < found.parts[-1].interval[1]
    assert sum(one.items for one in found.parts) == summary.counts.done


@pytest.mark.parametrize("counts", [[1] * 7, [9, 1, 1], [1, 1, 9], [100], [3, 3, 3, 3], [1, 2]])
def test_no_text_is_lost_or_counted_twice(counts: list[int]) -> None:
    parts = list(_parts([(place, many, many, 0, 0) for place, many in enumerate(counts)]))
    assert sum(one.items for one in parts) == sum(counts)
    assert 1 <= len(parts) <= 4
    assert all(before.longest < after.shortest for before, after in pairwise(parts))


def test_texts_of_one_length_have_no_section(db: Database) -> None:
    summary = summarise(db, of_lengths(db, [3] * 8))
    assert summary.sections == {}
    assert 'id="lengths"' not in render_html(summary)


def test_a_sentence_only_beyond_chance(db: Database) -> None:
    lengths = [*[2] * 40, *[9] * 40]
    few = summarise(db, of_lengths(db, lengths, wrong=[41, 42]))
    assert not [one for one in few.headline if "length" in one.text]
    many = summarise(db, of_lengths(db, lengths, wrong=range(40, 80)))
    (line,) = [one for one in many.headline if "length" in one.text]
    assert "1.000 on texts of up to 4 tokens, 0.000 from 11 on" in line.text
    assert 'id="lengths"' in render_html(many)


def test_few_texts_are_not_published(db: Database) -> None:
    lengths = [*[2] * 40, *[5] * 40, *[9] * 40, *[12] * 3]
    summary = summarise(db, of_lengths(db, lengths, wrong=[40, 41]))
    parts = redacted(summary, 10).sections["texts_by_length"].parts
    assert [one.items for one in parts] == [40, 40, 43]
    assert [one.accuracy for one in parts] == [1.0, None, 1.0]
    assert [one.correct for one in parts] == [40, None, 43]
    assert render_html(redacted(summary, 10))
    assert len(redacted(summary, 42).sections["texts_by_length"].parts) == 1
    assert 'id="lengths"' not in render_html(redacted(summary, 42))


def test_records_of_sections_have_rules() -> None:
    records = [SECTIONS.load(name).record for name in SECTIONS]
    assert TextsByLength in records
    for record in records:
        assert record is None or list(gaps(record, rules())) == []
