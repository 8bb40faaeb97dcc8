"""Items in another order than that of the data, and those with a word: read a piece at a time."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from report_samples import CLASSES, biased_run, explained_text, ledger, stored_run
from serving import told
from sqlalchemy import Text, type_coerce
from starlette.testclient import TestClient

from orchestrator.serve.links import link
from transexplain.errors import DamagedRowError
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.store.ranked_items import ORDERS, ItemSearch, Ranking
from transexplain.store.run_totals import margin_of, summaries
from transexplain.store.schema import item
from transexplain.types.items import Attribution, ItemOutcome
from transexplain.types.label_sets import SeveralLabels
from transexplain.types.plans import ModelRef
from transexplain.types.words import size_of, spans_of

Value = Callable[[ItemOutcome, list[Attribution]], float | None]


def various(db: Database, items: int = 60, shift: float = 0.0, **changes: object) -> str:
    """Texts with different numbers of good and bad words; every fourth label is wrong.

    `shift` moves both logits of an item, by another amount for each.
    """
    explained = []
    for number in range(items):
        words = (
            ["good"] * (number * 7 % 5) + ["bad"] * (number * 3 % 4) + ["tea"] * (number % 7 + 1)
        )
        text = " ".join(words)
        outcome, made = explained_text(number, text, CLASSES[number % 4 > 0])
        # no two alike, so that no order rests on the last bit of a number
        moved, apart = shift * (number * 13 % 7), outcome.logits[1] + number / 1024
        logits = (moved - apart, moved + apart)
        made = replace(made, ledger=ledger(made.logit, gap=number * 17 % 60 * 1e-3))
        explained.append((replace(outcome, logits=logits), made))
    return stored_run(db, explained, **changes)


def word_of(one: Attribution, word: str) -> float | None:
    text, spans = spans_of(one)
    found = [span.relevance for span in spans if text[span.start : span.end].lower() == word]
    return sum(found) if found else None


def by_hand(db: Database, run_id: str, value: Value, sign: int) -> list[str]:
    """Ids by value, of all that have one, from every record; nearly equal ones by row."""
    explained: dict[str, list[Attribution]] = {}
    for one in readers.iter_attributions(db, run_id):
        explained.setdefault(one.item_id, []).append(one)
    known = [
        (-sign * round(found, 9), one.index, one.item_id)
        for one in readers.iter_items(db, run_id)
        if isinstance(one, ItemOutcome)
        for found in [value(one, explained[one.item_id])]
        if found is not None
    ]
    return [name for *_, name in sorted(known)]


def _margin(one: ItemOutcome, _: object) -> float | None:
    return margin_of(one, {name: n for n, name in enumerate(CLASSES)})


BY_HAND: dict[str, Value] = {
    # of two classes the softmax grows with what is between the logits
    "unsure": lambda one, _: abs(one.logits[0] - one.logits[1]),
    "confident": lambda one, _: abs(one.logits[0] - one.logits[1]),
    "logit": lambda one, _: max(one.logits),
    "low-logit": lambda one, _: max(one.logits),
    "wrong": _margin,
    "strong": lambda _, some: max(map(size_of, some)),
    "gap": lambda _, some: max(one.ledger.relative_gap for one in some if one.ledger),
    "word-raises": lambda _, some: word_of(some[0], "good"),
    "word-lowers": lambda _, some: word_of(some[0], "good"),
    "word-share": lambda _, some: (
        None
        if (own := word_of(some[0], "good")) is None
        else abs(own) / sum(abs(span.relevance) for span in spans_of(some[0])[1])
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_that_of_all_records(client: TestClient, db: Database, order: str) -> None:
    run_id = various(db)
    wanted = by_hand(db, run_id, BY_HAND[order], ORDERS[order].sign)
    word = "GOOD" if ORDERS[order].needs_word else ""
    found = told(client, link("runs", run_id, "items", sort=order, word=word))
    ids = [one["item_id"] for one in found["items"]]
    assert found["ranked"]["done"] and len(wanted) > 10
    if found["next"]:
        ids += [one["item_id"] for one in told(client, found["next"])["items"]]
    assert ids == wanted


def test_items_of_several_labels_stand_by_the_probability_of_the_likeliest(
    client: TestClient, db: Database
) -> None:
    model = ModelRef(source="models/m", classes=CLASSES, digest="d" * 64, head="labels")
    run_id = various(db, shift=0.7, model=model, several=SeveralLabels())
    wanted = by_hand(db, run_id, lambda one, _: max(one.logits), 1)
    assert wanted != by_hand(db, run_id, BY_HAND["confident"], 1)
    found = told(client, link("runs", run_id, "items", sort="confident"))
    first = found["items"][0]
    ids = [one["item_id"] for one in found["items"]]
    assert ids == wanted[: len(ids)]
    logits = {one.item_id: one.logits for one in readers.iter_items(db, run_id)}
    assert first["value"] == pytest.approx(1 / (1 + np.exp(-max(logits[ids[0]]))))


def test_an_unknown_order_and_a_bad_cursor_are_said(client: TestClient, run_id: str) -> None:
    for query in ({"sort": "odd"}, {"sort": "gap", "after": "x"}, {"sort": "word-share"}):
        assert client.get(link("runs", run_id, "items", **query)).status_code == 422


def test_a_ranking_goes_on_where_it_stopped(db: Database) -> None:
    run_id, steps = various(db), 0
    ranking = Ranking(run_id, ItemSearch(), "confident", lambda one: one.item_id)
    while not ranking.done:
        before = ranking.seen
        ranking.go_on(db, 1e-9)
        assert ranking.certain == 0 or ranking.done
        assert ranking.seen >= before
        steps += 1
        assert steps < 100
    assert steps > 2, "some rows at a time"
    wanted = by_hand(db, run_id, BY_HAND["confident"], 1)
    assert [one.shown for one in ranking.best] == wanted and ranking.certain == len(wanted)


def test_parts_that_cannot_hold_better_items_are_not_read(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transexplain.store.ranked_items.KEPT", 3)
    run_id = various(db)
    ranking = Ranking(run_id, ItemSearch(), "wrong", lambda one: one.item_id)
    ranking.go_on(db, 60.0)
    assert [one.shown for one in ranking.best] == by_hand(db, run_id, BY_HAND["wrong"], 1)[:3]
    assert ranking.done and ranking.seen < 60


def test_a_word_is_a_whole_one(client: TestClient, db: Database) -> None:
    texts = ["good tea", "goods and tea", "no tea", "GOOD grief", "tea: good"]
    run_id = stored_run(db, [explained_text(n, one, None) for n, one in enumerate(texts)])
    found = told(client, link("runs", run_id, "items", word="good"))
    assert [one["item_id"] for one in found["items"]] == ["row-0", "row-3", "row-4"]
    raising = told(client, link("runs", run_id, "items", word="good", sort="word-raises"))
    values = {one["item_id"]: one["value"] for one in raising["items"]}
    assert values == pytest.approx({"row-0": 1.0, "row-4": 1.0, "row-3": 0.01}, abs=1e-3)
    narrow = told(client, link("runs", run_id, "items", word="good", text="tea:"))
    assert [one["item_id"] for one in narrow["items"]] == ["row-4"]


def test_a_damaged_part_is_said_and_the_ranking_begins_anew(db: Database, run_id: str) -> None:
    key = (item.c.run_id == run_id) & (item.c.shard == 2)
    with db.begin() as connection:
        connection.execute(item.update().where(key).values(meta=type_coerce("{", Text)))
    ranking = Ranking(run_id, ItemSearch(), "logit", lambda one: one.item_id)
    with pytest.raises(DamagedRowError, match="a row of shard 2"):
        ranking.go_on(db, 60.0)
    with db.begin() as connection:
        connection.execute(item.update().where(key).values(meta=None))
    ranking.go_on(db, 60.0)
    assert ranking.done and ranking.seen == 36 == len(ranking.best)
    assert len(list(summaries(db, run_id))) == 6


def test_neighbours_of_an_item(client: TestClient, db: Database, run_id: str) -> None:
    def near(run: str, item: str) -> dict[str, object]:
        found: dict[str, object] = told(client, link("runs", run, "items", item))["neighbours"]
        return found

    assert [near(run_id, "row-0")[side] for side in ("before", "after")] == [None, "row-1"]
    assert near(run_id, "row-7")["before"] == "row-6", "in the shard before"
    assert near(run_id, "row-6")["after"] == "row-7", "in the shard after"
    assert near(run_id, "row-35")["after"] is None
    alike = near(run_id, "row-3")["alike"]
    assert {one["item_id"]: one["entity"] for one in alike} == {"row-15": "Ada", "row-27": "Ada"}
    whole = biased_run(db, shard_size=50)
    alike = near(whole, "row-0")["alike"]
    assert [(one["item_id"], one["entity"]) for one in alike] == [
        ("row-12", "Ann"),
        ("row-24", "Ann"),
    ]
