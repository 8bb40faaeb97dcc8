"""The sections about the audit itself: verdict, what was not tested, matching, manifest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gallery import Gallery
from report_samples import (
    ANNS,
    WORTH,
    Visible,
    biased_run,
    explained_text,
    stored_run,
    swapped,
)
from sqlalchemy import delete

from transexplain.analysis.groups.group_verdicts import Mentioned, Outcomes
from transexplain.analysis.groups.matching_sheet import precisions
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.reports.phrasing import short
from transexplain.reports.report_formats import render_html
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.untested import untested
from transexplain.reports.summary import summarise, verdict
from transexplain.reports.verdict_words import gone, newly
from transexplain.store.database import Database
from transexplain.store.schema import run
from transexplain.types.items import EntityGroup
from transexplain.types.plans import DatasetRef


def biased(db: Database, **changes: Any) -> Summary:
    return summarise(db, biased_run(db, **changes))


States = tuple[Mentioned, Outcomes]
CLEAR: States = ("does not change", "do not differ")
OPEN: States = ("open", "open")


def with_verdicts(summary: Summary, *states: States) -> Summary:
    """The summary with these verdicts on groups."""
    groups = summary.groups
    first = replace(
        groups.verdicts[0],
        missing=(),
        mention_reasons=("because",),
        outcome_reasons=("therefore",),
        counterfactual=None,
        rates=None,
    )
    verdicts = tuple(
        replace(first, mention=mention, outcome=outcome, group=f"g{place}")
        for place, (mention, outcome) in enumerate(states)
    )
    counts = replace(summary.counts, total=36)  # nothing failed
    return replace(summary, counts=counts, groups=replace(groups, verdicts=verdicts))


@pytest.mark.parametrize(
    ("states", "kind", "named"),
    [
        ((("changes", "open"), CLEAR), "flagged", "g1"),
        ((("does not change", "differ"),), "flagged", "g0: therefore."),
        ((CLEAR, OPEN), "unknown", "g0"),
        ((OPEN,), "unknown", "g0: because."),
        ((OPEN, OPEN), "unknown", "g0: therefore."),
        ((("does not change", "open"),), "unknown", "g0"),
        ((CLEAR, CLEAR), "clear", "2 groups"),
        ((CLEAR,), "clear", ""),
        ((), "unknown", ""),
    ],
)
def test_the_verdict_is_made_of_those_on_groups(
    gallery: Gallery, states: tuple[States, ...], kind: str, named: str
) -> None:
    found = verdict(with_verdicts(gallery.summary("biased"), *states))
    assert found.kind == kind and named in found.text, found.text


def test_nothing_is_clear_where_something_is_missing(gallery: Gallery) -> None:
    summary = with_verdicts(gallery.summary("biased"), CLEAR, CLEAR)
    groups = summary.groups
    gap = replace(groups.verdicts[0], missing=("Ann is 40 % of its mentions",))
    for change, named in (
        ({"counts": replace(summary.counts, total=38, failed=2)}, "2 of 38 items"),
        ({"counts": replace(summary.counts, truncated=4)}, "4 of 36 items"),
        ({"groups": replace(groups, verdicts=(gap, *groups.verdicts[1:]))}, "g0: Ann is 40 %"),
    ):
        found = verdict(replace(summary, **change))
        assert found.kind == "unknown" and named in found.text


def test_doubts_come_before_what_was_found(db: Database) -> None:
    summary = biased(db, sensitivity=0.01)
    assert summary.verdict is not None and summary.verdict.kind == "problem"
    assert summary.verdict.text.startswith("Read with care")
    broken = replace(summary, conservation=replace(summary.conservation, above=3))
    assert verdict(broken).text.startswith("Do not rely")


def test_a_run_that_is_not_over_says_so_far(db: Database) -> None:
    found = biased(db, leave=2).verdict
    assert found is not None and found.text.startswith("So far: ")
    nothing = biased(db, leave=6).verdict
    assert nothing is not None and nothing.kind == "unknown"


def test_a_contrast_explains_both_of_its_classes(db: Database) -> None:
    outcome, one = explained_text(0, "good", "positive")
    for target in ("contrast:positive-negative", "mine"):
        other = replace(one, target=target, class_name=target.removeprefix("contrast:"))
        summary = summarise(db, stored_run(db, [(outcome, other)], targets=(target,)))
        assert not [row for row in summary.untested if row.what.startswith("What speaks for")]


def test_what_was_tested_is_not_listed(gallery: Gallery) -> None:
    summary = gallery.summary("biased")
    rows = tuple(row for row in summary.groups.rows if row.verdict == "difference")
    groups = replace(summary.groups, rows=rows, never_mentioned=())
    counts = replace(summary.counts, total=summary.counts.done, failed=0)
    left = {row.what for row in untested(replace(summary, groups=groups, counts=counts))}
    assert {row.what for row in summary.untested} - left >= {
        *("Groups that no item mentions", "Items without an explanation")
    }


def test_an_import_names_no_remedy_that_needs_the_model(db: Database) -> None:
    summary = biased(db, task="imported", checked=ControlResults())
    found = {row.what: row for row in summary.untested}
    assert "Other methods of explanation" not in found
    assert found["The attributions themselves"].remedy == "An audit of the model itself."
    assert found["Another name, another prediction"].remedy == ""


@pytest.mark.parametrize("targets", [("class:positive",), ("predicted", "class:positive")])
def test_matching_counts_items_once(db: Database, targets: tuple[str, ...]) -> None:
    rows = {one.group: one for one in biased(db, targets=targets).groups.matching}
    anns, places = rows["anns"], rows["places"]
    assert (anns.terms, anns.entities, anns.mentions, anns.items) == (len(ANNS), 6, 18, 18)
    assert anns.most == "Abby" and anns.most_share == pytest.approx(1 / 6)
    assert (places.mentions, places.items, places.most, places.most_share) == (0, 0, "", 0.0)
    assert list(rows) == ["anns", "bobs", "places"]


def test_items_explained_for_every_class_are_counted_once(db: Database) -> None:
    """Of a target that explains two classes of each item, mentions come twice."""
    explained = []
    for number in range(12):
        outcome, one = explained_text(number, f"{ANNS[number % 6]} was good", "positive")
        explained.append((outcome, replace(one, target="all")))
        assert outcome.predicted == "positive"
    run = stored_run(db, explained, groups=[EntityGroup(name="anns", terms=ANNS)], targets=("all",))
    (found,) = summarise(db, run).groups.matching
    assert (found.mentions, found.items) == (6, 6)  # 12 explanations, two classes


@pytest.mark.exhaustive
def test_the_precision_of_a_sheet_stands_beside_its_group(db: Database) -> None:
    answers = [("anns", True), ("anns", False), ("bobs", True)]
    found = summarise(db, biased_run(db), precisions=precisions(answers))
    groups = found.groups
    assert groups.precision is not None and groups.precision.checked == 3
    of = {one.group: one.precision for one in groups.matching}
    assert of["places"] is None
    assert of["anns"] is not None and of["anns"].precision == pytest.approx(0.5)
    assert "66.7\u00a0%" in Visible(render_html(found)).text


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("/data/private/x.csv", "x.csv"),
        ("imagefolder:/data/private/cats", "imagefolder:cats"),
        ("hf:org/name@rev#c:train", "hf:org/name@rev#c:train"),
        ("org/model", "org/model"),
        ("./models/m", "m"),
    ],
)
def test_folders_of_the_machine_are_not_shown(source: str, shown: str) -> None:
    assert short(source) == shown


# ---- a run beside the one before ----------------------------------------------------------------


def test_two_runs_side_by_side(gallery: Gallery) -> None:
    found = gallery.summary("compared")
    previous = found.previous
    assert previous.run_id == gallery["compared"].runs[0]
    assert previous.model_changed and not previous.data_changed and not previous.method_changed
    assert (previous.common, previous.other_prediction) == (36, 12), "the texts with `bad`"
    assert previous.counts.accuracy == pytest.approx(24 / 36)
    changes = {one.group: one for one in previous.groups}
    assert changes["anns"].before == pytest.approx(-0.9, abs=1e-6)
    assert changes["anns"].now == pytest.approx(0.49, abs=1e-6)
    rates = {row.group: (row.before.share, row.now.share) for row in previous.rates}
    assert rates == {"anns": pytest.approx((1.0, 2 / 3)), "bobs": pytest.approx((1.0, 2 / 3))}


def mirrored() -> ControlResults:
    """Swaps by which Bobs raise `positive`, where Anns do now."""
    return ControlResults(
        observations=[
            replace(one, log_odds=tuple(-odds for odds in one.log_odds)) for one in swapped()
        ]
    )


def test_a_difference_that_changed_its_sign_is_new(db: Database) -> None:
    before = biased_run(db, checked=mirrored())
    previous = summarise(db, biased_run(db, previous=before)).previous
    assert all(one.turned for one in previous.verdicts)
    assert {one.group for one in newly(previous.verdicts)} == {"anns", "bobs"}
    assert newly(previous.verdicts) == gone(previous.verdicts)


def test_mentions_that_newly_change_the_prediction(db: Database) -> None:
    unknown = biased_run(db, checked=ControlResults())
    now = summarise(db, biased_run(db, previous=unknown))
    assert [(one.group, one.question) for one in newly(now.previous.verdicts)] == [
        ("anns", "mention"),
        ("bobs", "mention"),
    ]
    assert not gone(now.previous.verdicts)
    assert any("anns and bobs" in line.text for line in now.headline if line.kind == "flagged")


def test_relevance_alone_makes_no_group_newly_flagged(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ANNS:
            patch.setitem(WORTH, name, 0.01)
        even = biased_run(db, checked=ControlResults())
    previous = summarise(db, biased_run(db, previous=even, checked=ControlResults())).previous
    assert {one.flagged_now for one in previous.groups} == {True}
    assert not newly(previous.verdicts)


def test_a_previous_run_that_was_deleted_is_left_out(gallery: Gallery, tmp_path: Path) -> None:
    audit = gallery["compared"].copy(tmp_path)
    with audit.open(read_only=False) as db:
        with db.begin() as connection:
            connection.execute(delete(run).where(run.c.id == audit.runs[0]))
        assert summarise(db, audit.id).previous is None


def test_other_texts_under_the_same_id_are_not_counted(gallery: Gallery, tmp_path: Path) -> None:
    """Another dataset has the same row numbers: only equal texts are the same items."""
    texts = [f"{name} was {'good' if n % 3 else 'bad'} today" for n, name in enumerate(ANNS)]
    changed = [*texts[:4], "somebody else", "nobody"]
    data = DatasetRef(source="y", modality="text", snapshot="s", fingerprint="a" * 64, rows=6)
    explained = [explained_text(n, text, "positive") for n, text in enumerate(changed)]
    audit = gallery["compared"].copy(tmp_path)
    with audit.open(read_only=False) as db:
        found = summarise(db, stored_run(db, explained, previous=audit.runs[0], dataset=data))
    assert found.previous is not None and found.previous.data_changed
    assert (found.previous.common, found.previous.other_prediction) == (4, 2), "with `bad`"
