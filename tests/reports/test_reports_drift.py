"""Two runs compared: a change worked by hand, no change, and what may not be compared."""

import json
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from everyday import only
from gallery import Gallery
from report_samples import (
    ANNS,
    BOBS,
    CLASSES,
    GROUPS,
    Visible,
    biased_run,
    explained_text,
    image_attribution,
    stored_run,
    text_attribution,
    tokens_of,
)

from transexplain.analysis.groups.answers import answer_of
from transexplain.errors import ConfigurationError
from transexplain.reports import DRIFT_REPORTS
from transexplain.reports.runs_compared import DriftSummary, compare_runs
from transexplain.reports.runs_compared.compared_items import LEAST, agreement, rate_changes
from transexplain.reports.runs_compared.comparison_records import AnswerChanges, GroupAnswers
from transexplain.reports.runs_compared.comparison_summary import (
    gone,
    mcnemar_p,
    mean_over_items,
    newly,
)
from transexplain.reports.summary import summarise
from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure
from transexplain.types.pairs import joined
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, PrivacyPlan, Shard
from transexplain.types.scores import MethodSpec

OTHER = ModelRef(source="models/other", classes=CLASSES, digest="e" * 64)


@pytest.fixture(scope="module")
def compared(gallery: Gallery) -> DriftSummary:
    """With a run to whose model `bad` is good, Anns are worth nothing and Bobs 0.9."""
    with gallery["compared"].open() as db:
        return compare_runs(db, *gallery["compared"].runs)


def test_predictions_worked_by_hand(compared: DriftSummary) -> None:
    found = compared.predictions
    assert (found.common, found.changed) == (36, 12), "the texts with `bad`"
    assert [(one.before, one.after, one.items) for one in found.counts] == [
        ("positive", "negative", 12)
    ]
    assert (found.labelled, found.right_before, found.right_after) == (36, 24, 36)
    assert (found.lost, found.gained) == (0, 12)
    assert found.p == pytest.approx(2 / 2**12)
    # a Bob's logit for positive is 0.2 + 0.03 - 1, and its opposite for negative
    assert found.shown[0].margin == pytest.approx(2 * 0.77)
    assert found.shown[0].text == "Bob was bad today"
    assert len(found.shown) == 12


def test_explanations_worked_by_hand(compared: DriftSummary) -> None:
    (found,) = compared.changes
    assert (found.target, found.class_name, found.items) == ("class:positive", "positive", 36)
    # 12 good Anns gain 0.5, 6 bad ones lose 1.5, 12 good Bobs lose 0.89, 6 bad ones 2.89
    moves = np.repeat([0.5, -1.5, -0.89, -2.89], [12, 6, 12, 6])
    assert found.logit_change.mean == pytest.approx(moves.mean())
    assert found.logit_change_size == pytest.approx(np.abs(moves).mean())
    assert found.logit_after - found.logit_before == pytest.approx(moves.mean())
    # ranks of name, was, word, today; e.g. 1 2.5 4 2.5 and 3 1.5 4 1.5 for a good Ann
    ranks = np.repeat([1 / 3, -1.0, (2 / 3) ** 0.5, -((2 / 3) ** 0.5)], [12, 6, 12, 6])
    assert found.agreement is not None and found.agreement.interval is not None
    assert found.agreement.mean == pytest.approx(ranks.mean())
    low, high = found.agreement.interval
    half = 1.96 * ranks.std(ddof=1) / 6
    assert (low, high) == pytest.approx((ranks.mean() - half, ranks.mean() + half), abs=0.05)
    assert len(found.least_alike) == LEAST
    assert [one.agreement for one in found.least_alike] == pytest.approx([-1.0] * LEAST)


def test_groups_worked_by_hand(compared: DriftSummary) -> None:
    summary = compared
    rows = {row.group: row for row in summary.groups.shifts}
    anns, bobs = rows["anns"], rows["bobs"]
    assert (anns.before, anns.after, anns.change) == pytest.approx((0.0, 0.5, 0.5), abs=1e-6)
    assert bobs.change == pytest.approx(-0.89, abs=1e-6)
    assert anns.p == bobs.p == anns.adjusted_p == pytest.approx(2 / 64)
    assert (anns.entities, anns.mentions, anns.verdict) == (6, 18, "difference")
    assert anns.apart == pytest.approx(0.5 + 0.89, abs=1e-6)
    moves = {one.group: one for one in summary.groups.transitions}
    assert moves["anns"].difference_before == pytest.approx(-0.9, abs=1e-6)
    assert moves["anns"].difference_after == pytest.approx(0.49, abs=1e-6)
    assert moves["anns"].turned, "a difference in both, of the other sign"
    assert newly(summary.groups) == gone(summary.groups) != []
    printed = " ".join(one.text for one in summary.headline)
    assert "12 of 36 items in both (33.3\u00a0%) are predicted differently" in printed
    relevance = [one for one in summary.headline if one.text.startswith("The relevance of")]
    assert relevance and {one.kind for one in relevance} == {"fact"}, "no measure of harm"
    assert summary.headline[-len(relevance) :] == tuple(relevance), "it comes last"


def test_rates_of_groups_are_paired_by_item(compared: DriftSummary) -> None:
    """All 18 items of either group were positive, and the 6 with `bad` are not now."""
    summary = compared
    rows = {row.group: row for row in summary.groups.rates}
    assert rows.keys() == {"anns", "bobs"}
    for row in rows.values():
        assert (row.prediction, row.items) == ("positive", 18)
        assert (row.before, row.after) == pytest.approx((1.0, 12 / 18))
        assert row.measure.value == pytest.approx(-1 / 3)
        low, high = row.measure.interval or (0.0, 0.0)
        assert -1 / 3 > low > -0.6 and 0.0 > high > -1 / 3, "the interval that decided"


@pytest.mark.parametrize("size", [1, 20])
def test_items_that_are_alike_make_the_interval_of_a_rate_wider(size: int) -> None:
    """200 items of 400 change; by themselves, or twenty at a time."""
    moves, clusters = Counter[tuple[str, str]](), []
    for number in range(400 // size):
        after = CLASSES[number % 2]
        moves[CLASSES[1], after] += size
        clusters.append((Counter({CLASSES[1]: size}), Counter({after: size})))
    answer = answer_of("positive", (1,), 2, several=False)
    alike = {"anns": clusters} if size > 1 else {}
    (row,) = rate_changes({"anns": moves}, [answer], CLASSES, 0.05, clusters=alike)
    low, high = row.measure.interval or (0.0, 0.0)
    assert (row.before, row.after) == (1.0, 0.5)
    known = 2 * 1.96 * (0.25 / (400 / size)) ** 0.5
    assert high - low == pytest.approx(known, rel=0.25)


def test_a_run_and_itself_cut_up_otherwise_are_alike(db: Database) -> None:
    unchanged(compare_runs(db, biased_run(db), biased_run(db, shard_size=7)), 36)


def test_the_order_of_the_data_does_not_matter_with_force(db: Database) -> None:
    texts = [f"{name} was good today" for name in (*ANNS, *BOBS)] * 20
    order = np.random.default_rng(0).permutation(len(texts))
    old, new = (
        [explained_text(i, texts[row], "positive", item_id=f"row-{row}") for i, row in rows]
        for rows in (enumerate(range(len(texts))), enumerate(order))
    )
    ids = of_other_data(db, old, new, groups=GROUPS, shard_size=50)
    with pytest.raises(ConfigurationError, match="data: ffffffffffff before, aaaaaaaaaaaa after"):
        compare_runs(db, *ids)
    unchanged(compare_runs(db, *ids, force=True), 240, forced=1)


def of_other_data(
    db: Database, old: Sequence[Any], new: Sequence[Any], **plan: Any
) -> tuple[str, str]:
    """A run of each, of other data with the same ids."""
    first, second = (
        stored_run(db, items, dataset=dataset(len(items), digest * 64), **plan)
        for items, digest in ((old, "f"), (new, "a"))
    )
    return first, second


def texts_of(texts: Sequence[str]) -> list[Any]:
    return [explained_text(i, text, "positive") for i, text in enumerate(texts)]


def test_other_texts_under_the_same_id_are_no_pair(db: Database) -> None:
    texts = [f"{name} was good today" for name in ANNS]
    changed = [*texts[:4], "Somebody else was bad today", "Nobody was good"]
    ids = of_other_data(db, texts_of(texts), texts_of(changed))
    found = compare_runs(db, *ids, force=True)
    reported = found.predictions
    assert (reported.common, reported.other_content, reported.unknown_content) == (4, 2, 0)
    assert (reported.changed, reported.lost, reported.labelled) == (0, 0, 4)
    (change,) = found.changes
    assert change.items == 4
    assert (change.agreement.mean, change.agreement.items) == (1.0, 4)
    assert json.loads(DRIFT_REPORTS.load("json")(found))["predictions"]["other_content"] == 2
    with pytest.raises(ConfigurationError, match=r"1 have different contents, and 0 contents"):
        compare_runs(db, *of_other_data(db, texts_of(["Ann"]), texts_of(["Bob"])), force=True)


@pytest.mark.parametrize(("same", "kept"), [(True, (6, 0, 0)), (False, (5, 1, 0))])
def test_hashed_texts_are_compared_by_the_hashes_of_their_words(
    db: Database, same: bool, kept: tuple[int, int, int]
) -> None:
    """A text is not stored then, and its words are: the same word has the same hash."""
    texts = [f"{name} was good today" for name in ANNS]
    changed = texts if same else [*texts[:5], "Bob was good today"]
    old, new = (list(map(without_text, texts_of(some))) for some in (texts, changed))
    ids = of_other_data(db, old, new)
    reported = compare_runs(db, *ids, force=True).predictions
    assert (reported.common, reported.other_content, reported.unknown_content) == kept


def without_text(explained: Any, *, words: bool = True) -> Any:
    """The item as it is stored without its text; its tokens hold stand-ins of words, or nothing."""
    outcome, one = explained
    tokens = tuple(
        replace(token, text=f"#{token.text[::-1]}" if words else "") for token in one.features
    )
    return replace(outcome, text=None), replace(one, text=None, features=tokens)


def test_contents_that_are_not_stored_cannot_be_compared(db: Database) -> None:
    bob = without_text(explained_text(1, "Bob", "positive"), words=False)
    items = [explained_text(0, "Ann was good", "positive"), bob]
    reported = compare_runs(db, *of_other_data(db, items, items), force=True).predictions
    assert (reported.common, reported.other_content, reported.unknown_content) == (1, 0, 1)
    same = stored_run(db, items), stored_run(db, items)
    assert compare_runs(db, *same).predictions.common == 2, "the data are the same"


def dataset(rows: int, digest: str) -> DatasetRef:
    return DatasetRef(source="x.csv", modality="text", snapshot="s", fingerprint=digest, rows=rows)


def unchanged(found: DriftSummary, items: int, forced: int = 0) -> None:
    assert len(found.disparities) == forced
    assert (found.predictions.common, found.predictions.changed) == (items, 0)
    assert (found.predictions.p, found.other_class) == (1.0, 0)
    for change in found.changes:
        assert (change.agreement.mean, change.agreement.interval) == (1.0, (1.0, 1.0))
        assert (change.logit_change_size, change.least_alike) == (0.0, ())
    assert found.groups is not None and found.groups.shifts
    for row in found.groups.shifts:
        assert (row.change, row.p, row.verdict) == (0.0, 1.0, "equivalent")
        assert row.apart == 0.0 and row.apart_verdict == "equivalent"
    assert all(one.before == one.after and not one.turned for one in found.groups.transitions)
    assert not {"flagged"} & {one.kind for one in found.headline}
    assert all(row.before == row.after for row in found.groups.rates)
    assert not any(row.changed for row in found.groups.verdicts)


OTHER_PLANS: list[tuple[dict[str, Any], str]] = [
    ({"method": MethodSpec(name="gae")}, "method: lrp before, gae after"),
    (
        {"method": MethodSpec(name="lrp", params={"gamma": 0.2})},
        'parameters of the method: {} before, {"gamma": 0.2} after',
    ),
    ({"targets": ("predicted",)}, "targets"),
    ({"labels": {"0": "negative"}}, "labels"),
    ({"max_length": 64}, "long texts"),
    ({"reference": "bobs"}, "reference group: null before, bobs after"),
    ({"practical": 0.2}, "smallest difference that matters: 0.1 before, 0.2 after"),
    ({"correction": "holm"}, "correction of p-values: bh before, holm after"),
    ({"dataset": dataset(38, "a" * 64)}, "data: ffffffffffff before"),
    (
        {"model": ModelRef(source="m", classes=(*CLASSES, "mixed"), digest="e")},
        'classes: ["negative", "positive"] before',
    ),
]


@pytest.mark.parametrize(("changes", "what"), only(*OTHER_PLANS[::4], of=OTHER_PLANS))
def test_what_is_not_comparable_is_refused_by_name(
    db: Database, changes: dict[str, Any], what: str
) -> None:
    ids = (biased_run(db), biased_run(db, **changes))
    with pytest.raises(ConfigurationError) as refused:
        compare_runs(db, *ids)
    assert what in str(refused.value) and "--force" in str(refused.value)
    assert len(compare_runs(db, *ids, force=True).disparities) == 1


def run_of(db: Database, texts: Sequence[str], groups: Sequence[EntityGroup], **more: Any) -> str:
    return stored_run(db, texts_of(texts), groups=groups, **more)


def test_lexicons_are_compared_term_by_term(db: Database) -> None:
    texts = [f"{name} was good" for name in ANNS]
    fewer = (EntityGroup(name="anns", terms=ANNS[1:]), EntityGroup(name="places", terms=("Rome",)))
    ids = run_of(db, texts, GROUPS), run_of(db, texts, fewer)
    with pytest.raises(ConfigurationError) as refused:
        compare_runs(db, *ids)
    printed = str(refused.value)
    assert "groups of the lexicon: bobs before, places after" in printed
    assert "terms of anns: 6 terms, Ann among them before, 5 terms after" in printed
    found = compare_runs(db, *ids, force=True).groups
    assert found is not None and found.unpaired == 1, "Ann"


def test_another_tokenizer_is_seen_in_the_tokens(db: Database) -> None:
    first = [explained_text(i, "Ann was good today", None) for i in range(3)]
    outcome, pieces = explained_text(2, "Ann was good today", None)
    *tokens, today, end = tokens_of("Ann was good today")
    middle = today.start + 2
    halves = [replace(today, text="to", end=middle), replace(today, text="##day", start=middle)]
    relevance = np.array([0.1, 0.5, 0.01, 1.0, 0.0, 0.01, 0.1], dtype=np.float32)
    cut = replace(pieces, features=(*tokens, *halves, end), relevance=relevance)
    ids = stored_run(db, first), stored_run(db, [*first[:2], (outcome, cut)])
    with pytest.raises(ConfigurationError, match="tokens of item row-2: 6 tokens"):
        compare_runs(db, *ids)
    (change,) = compare_runs(db, *ids, force=True).changes
    assert (change.agreement.mean, change.without_agreement) == (1.0, 0), "name, was, good agree"


def test_agreement_of_pictures_short_texts_and_flat_maps() -> None:
    grid = image_attribution([[1.0, 2.0], [3.0, 4.0]])
    assert agreement(grid, image_attribution([[4.0, 3.0], [2.0, 1.0]])) == pytest.approx(-1.0)
    assert agreement(grid, image_attribution([[1.0, 2.0]])) is None
    short = text_attribution("a b", tokens_of("a b"), [0.0, 1.0, 2.0, 0.0])
    assert agreement(short, short) is None, "two positions are alike or opposite, no more"
    flat = text_attribution("a b c", tokens_of("a b c"), [0.0, 1.0, 1.0, 1.0, 0.0])
    assert agreement(flat, flat) == 1.0


def test_an_item_explained_for_another_class_has_no_pair(db: Database) -> None:
    def predicted(name: str) -> Any:
        outcome, one = explained_text(0, "Ann was good", None, predicted=name)
        return outcome, replace(one, target="predicted", class_name=name)

    ids = [stored_run(db, [predicted(name)], targets=("predicted",)) for name in reversed(CLASSES)]
    found = compare_runs(db, *ids)
    assert (found.predictions.changed, found.other_class, found.changes) == (1, 1, ())
    assert found.predictions.p is None and found.groups is None
    assert DRIFT_REPORTS.load("html")(found)


def test_failed_items_and_unfinished_runs_are_in_the_headline(db: Database) -> None:
    good = [explained_text(i, "Ann was good today", "positive") for i in range(4)]
    broken = ItemFailure(item_id="row-3", index=3, kind="null", message="the text is null")
    found = compare_runs(
        db, stored_run(db, good, shard_size=2, leave=1), stored_run(db, good[:3], [broken])
    )
    assert found.predictions.common == 2
    printed = " ".join(line.text for line in found.headline)
    assert "2 of 4 items of run" in printed and "1 of 4 items" in printed


def test_runs_without_a_common_item_and_evaluations_are_refused(db: Database) -> None:
    one = stored_run(db, [explained_text(0, "Ann", None)])
    other = stored_run(db, [explained_text(0, "Bob", None, item_id="elsewhere")])
    with pytest.raises(ConfigurationError, match="no item in common"):
        compare_runs(db, one, other)
    plan = AuditPlan(name="e", model=OTHER, dataset=dataset(1, "f"), task="evaluation")
    evaluation = runs.create(db, plan, (Shard(index=0, start=0, stop=1),))
    with pytest.raises(ConfigurationError, match="is no audit"):
        compare_runs(db, one, evaluation)
    assert shards.list_shards(db, evaluation)[0].state == "queued"


def test_mcnemar_and_means() -> None:
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(1, 9) == pytest.approx(2 * (1 + 10) / 2**10)
    assert mean_over_items(array("d", [1.0, 2.0])).interval is None
    many = array("d", np.random.default_rng(1).normal(2.0, 1.0, 12_000).tolist())
    low, high = mean_over_items(many).interval or (0.0, 0.0)
    assert high - low == pytest.approx(2 * 1.96 / 12_000**0.5, rel=0.03)


def test_the_page_keeps_its_promise(db: Database) -> None:
    other = biased_run(db, name="<script>alert(1)</script>"[:20])
    page = DRIFT_REPORTS.load("html")(compare_runs(db, biased_run(db), other))
    visible = Visible(page)
    assert not {"script", "link", "iframe", "form"} & {tag for tag, _ in visible.tags}
    assert "<script>alert" in visible.text, "shown as text"
    assert "https:" not in page and "http:" not in page
    ids = {str(a["id"]) for _, a in visible.tags if "id" in a}
    assert {str(a["href"])[1:] for tag, a in visible.tags if tag == "a"} <= ids


# ---- two runs of models that generate their answers ---------------------------------------------


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
    predicted = "answer" if answer == EXPECTED or not labelled else "another answer"
    text, second_at = joined(prompt, answer)
    said: dict[str, Any] = {"predicted": predicted, "logits": (-1.0 - index,)}
    outcome, one = explained_text(index, text, "answer" if labelled else None, **said)
    explained_for = {"target": "predicted", "class_index": 0, "class_name": "answer"}
    one = replace(one, **explained_for, logit=outcome.logits[0], second_at=second_at)
    return replace(outcome, second_at=second_at), one


def answering_run(db: Database, answers: Sequence[str], labelled: bool = True, **plan: Any) -> str:
    rows = zip(PROMPTS, answers, strict=True)
    items = [answered(i, *row, labelled=labelled) for i, row in enumerate(rows)]
    settings: dict[str, Any] = {"model": answering(), "groups": GROUPS, "targets": ("predicted",)}
    return stored_run(db, plan.pop("items", items), **{**settings, **plan})


def test_changed_answers_are_counted_by_hand(db: Database) -> None:
    ids = answering_run(db, BEFORE), answering_run(db, AFTER, model=answering(digest="e"))
    found = compare_runs(db, *ids)
    seen = found.predictions
    assert (seen.common, seen.other_content, seen.changed) == (6, 0, 3)
    of_each = {"items": 3, "labelled": 3, "right_before": 2, "right_after": 1}
    anns = GroupAnswers(group="anns", changed=2, share=2 / 3, **of_each)
    bobs = GroupAnswers(group="bobs", changed=1, share=1 / 3, **of_each)
    both = (anns, bobs)
    assert seen.answers == AnswerChanges(items=6, changed=3, share=0.5, unknown=0, groups=both)
    assert (seen.labelled, seen.right_before, seen.right_after) == (6, 4, 2)
    assert (seen.lost, seen.gained) == (2, 0)
    assert {(one.before, one.after): one.items for one in seen.counts} == {
        ("answer", "another answer"): 2,
        ("another answer", "another answer (other words)"): 1,
    }
    first = next(one for one in seen.shown if one.item_id == "row-0")
    assert (first.before, first.after, first.margin) == ("he was", "she", None)
    assert first.text == PROMPTS[0]


def test_explanations_of_the_same_answers_alone_are_compared(db: Database) -> None:
    found = compare_runs(db, answering_run(db, BEFORE), answering_run(db, AFTER))
    (change,) = found.changes
    assert change.items == 3 and found.other_class == 0
    assert change.logit_before == pytest.approx(-(3 + 4 + 6) / 3), "of Amy, Bob and Bill"
    assert change.agreement is not None and change.agreement.mean == 1.0
    assert found.groups is not None and found.groups.unpaired == 6, "three mentions in either run"
    assert {row.group: row.mentions for row in found.groups.shifts} == {"anns": 1, "bobs": 2}
    other = compare_runs(db, answering_run(db, BEFORE), answering_run(db, ["no"] * 6))
    assert other.changes == () and other.predictions.changed == 6


def test_unlabelled_answers_that_changed_are_found(db: Database) -> None:
    """Without labels every prediction is `answer`, whatever was said."""
    ids = answering_run(db, BEFORE, False), answering_run(db, AFTER, False)
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
    ids = (
        answering_run(db, BEFORE),
        answering_run(db, AFTER, items=some, dataset=dataset(6, "a" * 64)),
    )
    seen = compare_runs(db, *ids, force=True).predictions
    assert (seen.common, seen.other_content) == (4, 2)
    assert seen.answers is not None and (seen.answers.items, seen.answers.changed) == (4, 1)
    with pytest.raises(ConfigurationError, match="tokens of an answer: 8 before, 4 after"):
        compare_runs(db, answering_run(db, BEFORE), answering_run(db, AFTER, model=answering(4)))


@pytest.mark.parametrize(
    ("words", "counts"), [(True, (6, 3, 0)), (False, (0, 0, 6))], ids=["hashed", "none"]
)
def test_answers_of_texts_that_are_not_stored(
    db: Database, words: bool, counts: tuple[int, int, int]
) -> None:
    kept = PrivacyPlan(store_text="hashed" if words else "none")
    items = (
        [without_text(answered(i, PROMPTS[i], answer), words=words) for i, answer in answers]
        for answers in (enumerate(BEFORE), enumerate(AFTER))
    )
    ids = [answering_run(db, BEFORE, items=some, privacy=kept) for some in items]
    found = compare_runs(db, *ids)
    seen = found.predictions.answers
    assert seen is not None and (seen.items, seen.changed, seen.unknown) == counts
    assert found.predictions.common == 6
    assert sum(one.items for one in found.changes) == counts[0] - counts[1]
    assert DRIFT_REPORTS.load("html")(found)


def test_a_report_counts_the_answers_that_changed_since_the_run_before(db: Database) -> None:
    first = answering_run(db, BEFORE, False)
    found = summarise(db, answering_run(db, AFTER, False, previous=first))
    assert (found.previous.common, found.previous.other_prediction) == (6, 3)
    moved = [answered(i, f"{PROMPTS[i]}!" if i < 2 else PROMPTS[i], AFTER[i]) for i in range(6)]
    other = answering_run(db, AFTER, items=moved, previous=first, dataset=dataset(6, "a" * 64))
    found = summarise(db, other)
    assert (found.previous.common, found.previous.other_prediction) == (4, 2), "a label changes one"
