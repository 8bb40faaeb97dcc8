"""Two runs of models that generate their answers: how often the answer changed, and where."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from report_samples import ANNS, BOBS, Visible, explained_text, stored_run
from test_reports_drift import GROUPS, dataset

from transexplain.errors import ConfigurationError
from transexplain.reports import DRIFT_REPORTS
from transexplain.reports.runs_compared import compare_runs
from transexplain.reports.runs_compared.comparison_records import AnswerChanges, GroupAnswers
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.pairs import joined
from transexplain.types.plans import ModelRef, PrivacyPlan

Call = Callable[..., tuple[int, str]]
PROMPTS = [f"{name} was late because" for name in (*ANNS[:3], *BOBS[:3])]
EXPECTED = "he"
BEFORE = ["he was", "he", "he", "she", "he", "he"]
AFTER = ["she", "she", "he", "she", "they", "he"]  # another one to both of Ann, Ava and to Ben


def answering(count: int = 8, digest: str = "d") -> ModelRef:
    return ModelRef(
        source=f"lm:m?generate={count}", classes=("answer",), head="answer", digest=digest * 64
    )


def answered(index: int, prompt: str, answer: str, *, labelled: bool = True) -> Any:
    """An item with its answer, as audits of generated answers store it."""
    right = answer == EXPECTED or not labelled
    text, second_at = joined(prompt, answer)
    outcome, one = explained_text(
        index,
        text,
        "answer" if labelled else None,
        predicted="answer" if right else "another answer",
        logits=(-1.0 - index,),
    )
    made = replace(one, target="predicted", class_index=0, class_name="answer")
    return (
        replace(outcome, second_at=second_at),
        replace(made, logit=outcome.logits[0], second_at=second_at),
    )


def run_of(db: Database, answers: Sequence[str], labelled: bool = True, **plan: Any) -> str:
    rows = zip(PROMPTS, answers, strict=True)
    items = [answered(i, *row, labelled=labelled) for i, row in enumerate(rows)]
    settings: dict[str, Any] = {"model": answering(), "groups": GROUPS, "targets": ("predicted",)}
    return stored_run(db, plan.pop("items", items), **{**settings, **plan})


def test_changed_answers_are_counted_by_hand(db: Database) -> None:
    ids = run_of(db, BEFORE), run_of(db, AFTER, model=answering(digest="e"))
    found = compare_runs(db, *ids)
    seen = found.predictions
    assert (seen.common, seen.other_content, seen.changed) == (6, 0, 3)
    anns = GroupAnswers(
        group="anns", items=3, changed=2, share=2 / 3, labelled=3, right_before=2, right_after=1
    )
    bobs = GroupAnswers(
        group="bobs", items=3, changed=1, share=1 / 3, labelled=3, right_before=2, right_after=1
    )
    assert seen.answers == AnswerChanges(
        items=6, changed=3, share=0.5, unknown=0, groups=(anns, bobs)
    )
    assert (seen.labelled, seen.right_before, seen.right_after) == (6, 4, 2)
    assert (seen.lost, seen.gained) == (2, 0)
    assert {(one.before, one.after): one.items for one in seen.counts} == {
        ("answer", "another answer"): 2,
        ("another answer", "another answer (other words)"): 1,
    }
    first = next(one for one in seen.shown if one.item_id == "row-0")
    assert (first.before, first.after, first.margin) == ("he was", "she", None)
    assert first.text == PROMPTS[0]
    printed = [one.text for one in found.headline]
    assert "3 of 6 prompts in both (50.0\u00a0%) have another answer." in printed
    assert (
        "By the group that a prompt names that share is 33.3\u00a0% (bobs) to 66.7\u00a0% (anns)."
    ) in printed
    assert not any("left out" in text for text in printed)


def test_explanations_of_the_same_answers_alone_are_compared(db: Database) -> None:
    found = compare_runs(db, run_of(db, BEFORE), run_of(db, AFTER))
    (change,) = found.changes
    assert change.items == 3 and found.other_class == 0
    assert change.logit_before == pytest.approx(-(3 + 4 + 6) / 3), "of Amy, Bob and Bill"
    assert change.agreement is not None and change.agreement.mean == 1.0
    assert found.groups is not None and found.groups.unpaired == 6, "three mentions in either run"
    assert {row.group: row.mentions for row in found.groups.shifts} == {"anns": 1, "bobs": 2}
    other = compare_runs(db, run_of(db, BEFORE), run_of(db, ["no"] * 6))
    assert other.changes == () and other.predictions.changed == 6
    printed = [one.text for one in other.headline]
    assert "No answer is the same in both, so no explanation is compared." in printed


def test_unlabelled_answers_that_changed_are_found(db: Database) -> None:
    """Without labels every prediction is `answer`, whatever was said."""
    ids = run_of(db, BEFORE, False), run_of(db, AFTER, False)
    seen = compare_runs(db, *ids).predictions
    assert (seen.changed, seen.labelled, seen.p) == (3, 0, None)
    assert [(one.before, one.after) for one in seen.counts] == [("answer", "answer (other words)")]
    same = compare_runs(db, ids[0], ids[0])
    assert same.predictions.answers is not None and same.predictions.answers.changed == 0
    printed = [one.text for one in same.headline]
    assert "0 of 6 prompts in both (0.0\u00a0%) have another answer." in printed
    assert next(one for one in same.headline if "prompts" in one.text).kind == "clear"


def test_other_prompts_are_no_pair_and_other_lengths_are_refused(db: Database) -> None:
    moved = [answered(i, f"{PROMPTS[i]} surely", AFTER[i]) for i in range(6)]
    some = [*moved[:2], *(answered(i, PROMPTS[i], AFTER[i]) for i in range(2, 6))]
    ids = run_of(db, BEFORE), run_of(db, AFTER, items=some, dataset=dataset(6, "a" * 64))
    seen = compare_runs(db, *ids, force=True).predictions
    assert (seen.common, seen.other_content) == (4, 2)
    assert seen.answers is not None and (seen.answers.items, seen.answers.changed) == (4, 1)
    with pytest.raises(ConfigurationError, match="tokens of an answer: 8 before, 4 after"):
        compare_runs(db, run_of(db, BEFORE), run_of(db, AFTER, model=answering(4)))


def unstored(items: Sequence[Any], *, words: bool) -> list[Any]:
    """The items as they are stored without their texts: stand-ins of words, or nothing."""
    found = []
    for outcome, one in items:
        tokens = tuple(
            replace(token, text=f"#{token.text[::-1]}" if words else "") for token in one.features
        )
        found.append((replace(outcome, text=None), replace(one, text=None, features=tokens)))
    return found


@pytest.mark.parametrize(
    ("words", "counts"), [(True, (6, 3, 0)), (False, (0, 0, 6))], ids=["hashed", "none"]
)
def test_answers_of_texts_that_are_not_stored(
    db: Database, words: bool, counts: tuple[int, int, int]
) -> None:
    kept = PrivacyPlan(store_text="hashed" if words else "none")
    ids = [
        run_of(
            db,
            answers,
            items=unstored([answered(i, PROMPTS[i], answers[i]) for i in range(6)], words=words),
            privacy=kept,
        )
        for answers in (BEFORE, AFTER)
    ]
    found = compare_runs(db, *ids)
    seen = found.predictions.answers
    assert seen is not None and (seen.items, seen.changed, seen.unknown) == counts
    assert found.predictions.common == 6
    assert sum(one.items for one in found.changes) == counts[0] - counts[1]
    printed = " ".join(one.text for one in found.headline)
    assert ("the answers are not stored" in printed) == (not words)
    page = Visible(DRIFT_REPORTS.load("html")(found)).text
    assert "Another answer" in page


def test_the_page_the_terminal_and_json_say_it(
    db: Database, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = run_of(db, BEFORE), run_of(db, AFTER)
    found = compare_runs(db, *ids)
    document = json.loads(DRIFT_REPORTS.load("json")(found))
    assert document["predictions"]["answers"]["share"] == 0.5
    page = Visible(DRIFT_REPORTS.load("html")(found)).text
    assert "Prompts that name" in page and "66.7 %" in page
    assert "Prompts with another answer" in page
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", db.url)
    code, printed = call("compare", *ids)
    assert code == 0, printed
    assert "6 items in both; 3 with another answer (50.0 %)" in printed
    assert "66.7 %" in printed and "right before" in printed


def test_a_report_counts_the_answers_that_changed_since_the_run_before(db: Database) -> None:
    first = run_of(db, BEFORE, False)
    found = summarise(db, run_of(db, AFTER, False, previous=first))
    assert found.previous is not None
    assert (found.previous.common, found.previous.other_prediction) == (6, 3)
    moved = [answered(i, f"{PROMPTS[i]}!" if i < 2 else PROMPTS[i], AFTER[i]) for i in range(6)]
    other = run_of(db, AFTER, items=moved, previous=first, dataset=dataset(6, "a" * 64))
    found = summarise(db, other)
    assert found.previous is not None
    assert (found.previous.common, found.previous.other_prediction) == (4, 2), "a label changes one"
