"""A run beside the one before: what was changed, and what came out differently."""

import json
from dataclasses import replace

import pytest
from report_samples import (
    ANNS,
    BOBS,
    CLASSES,
    WORTH,
    biased_run,
    explained_text,
    stored_run,
    swapped,
)
from sqlalchemy import delete

from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.reports import REPORTS
from transexplain.reports.sections.previous_run import gone, newly
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.schema import run
from transexplain.types.plans import DatasetRef, ModelRef


@pytest.fixture
def before(db: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of another model, to which `bad` is good and Bobs matter as much as Anns do now."""
    with monkeypatch.context() as patch:
        for name in ANNS:
            patch.setitem(WORTH, name, 0.0)
        for name in BOBS:
            patch.setitem(WORTH, name, 0.9)
        patch.setitem(WORTH, "bad", 1.0)
        return biased_run(db, model=ModelRef(source="m", classes=CLASSES, digest="e" * 64))


def test_two_runs_side_by_side(db: Database, before: str) -> None:
    found = summarise(db, biased_run(db, previous=before))
    previous = found.previous
    assert previous is not None
    assert previous.run_id == before
    assert (previous.model_changed, previous.data_changed, previous.method_changed) == (
        True,
        False,
        False,
    )
    assert (previous.common, previous.other_prediction) == (36, 12), "the texts with `bad`"
    assert previous.counts.accuracy == pytest.approx(24 / 36)
    changes = {one.group: one for one in previous.groups}
    assert changes["anns"].before == pytest.approx(-0.9, abs=1e-6)
    assert changes["anns"].now == pytest.approx(0.49, abs=1e-6)
    printed = " ".join(one.text for one in found.headline)
    assert f"The model changed since run {before}; 12 of 36 items in both are predicted" in printed
    assert "accuracy was 0.667 and is 1.000" in printed


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
    assert previous is not None
    assert all(one.turned for one in previous.verdicts)
    assert {one.group for one in newly(previous)} == {"anns", "bobs"}
    assert newly(previous) == gone(previous)


def test_mentions_that_newly_change_the_prediction(db: Database) -> None:
    unknown = biased_run(db, checked=ControlResults())
    now = summarise(db, biased_run(db, previous=unknown))
    assert now.previous is not None
    assert [(one.group, one.question) for one in newly(now.previous)] == [
        ("anns", "mention"),
        ("bobs", "mention"),
    ]
    assert not gone(now.previous)
    printed = [one.text for one in now.headline if one.kind == "flagged"]
    assert "Newly shown: the mention changes the prediction for anns and bobs." in printed


def test_relevance_alone_makes_no_group_newly_flagged(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ANNS:
            patch.setitem(WORTH, name, 0.01)
        even = biased_run(db, checked=ControlResults())
    previous = summarise(db, biased_run(db, previous=even, checked=ControlResults())).previous
    assert previous is not None
    assert {one.flagged_now for one in previous.groups} == {True}
    assert not newly(previous)


def test_rates_of_groups_stand_side_by_side(db: Database, before: str) -> None:
    found = summarise(db, biased_run(db, previous=before))
    assert found.previous is not None
    rates = {row.group: (row.before.share, row.now.share) for row in found.previous.rates}
    assert rates == {"anns": pytest.approx((1.0, 2 / 3)), "bobs": pytest.approx((1.0, 2 / 3))}
    texts = [one.text for one in found.headline if "predicted positive" in one.text]
    assert any("100.0" in text and "66.7" in text for text in texts)


def test_two_runs_without_a_change_have_a_sentence(db: Database) -> None:
    nothing = summarise(db, biased_run(db, previous=biased_run(db)))
    assert nothing.previous is not None
    assert not newly(nothing.previous) and not gone(nothing.previous)
    assert any("Neither model, data nor method changed" in one.text for one in nothing.headline)


def test_every_format_shows_the_previous_run_and_a_run_alone_does_not(
    db: Database, before: str
) -> None:
    run_id = biased_run(db, previous=before)
    page = REPORTS.load("html")(summarise(db, run_id))
    assert "Compared with the run before" in page and before in page
    assert json.loads(REPORTS.load("json")(summarise(db, run_id)))["previous"]["run_id"] == before
    alone = summarise(db, before)
    assert alone.previous is None
    assert "Compared with" not in REPORTS.load("html")(alone)


def test_a_previous_run_that_was_deleted_is_left_out(db: Database, before: str) -> None:
    run_id = biased_run(db, previous=before)
    with db.begin() as connection:
        connection.execute(delete(run).where(run.c.id == before))
    assert runs.get(db, run_id).previous == before
    assert summarise(db, run_id).previous is None


def test_other_texts_under_the_same_id_are_not_counted(db: Database, before: str) -> None:
    """Another dataset has the same row numbers: only equal texts are the same items."""
    texts = [f"{name} was {'good' if n % 3 else 'bad'} today" for n, name in enumerate(ANNS)]
    changed = [*texts[:4], "somebody else", "nobody"]
    data = DatasetRef(source="y", modality="text", snapshot="s", fingerprint="a" * 64, rows=6)
    explained = [explained_text(n, text, "positive") for n, text in enumerate(changed)]
    found = summarise(db, stored_run(db, explained, previous=before, dataset=data))
    assert found.previous is not None and found.previous.data_changed
    assert (found.previous.common, found.previous.other_prediction) == (4, 2), "with `bad`"
    printed = " ".join(one.text for one in found.headline)
    assert "2 of 4 items with the same text in both are predicted differently" in printed
