import json
import random
from dataclasses import replace

import numpy as np
import pytest
from entity_samples import POSITIVE, mention
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_outcome
from store_samples import make_outcome, make_plan

from transexplain.analysis.groups import text_totals
from transexplain.analysis.groups.merged_aggregates import merged_aggregates
from transexplain.analysis.groups.shard_aggregate import ShardAggregate, WordTotal
from transexplain.analysis.groups.text_totals import TextRepeats
from transexplain.errors import ConfigurationError
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.plans import AuditPlan, PrivacyPlan
from transexplain.types.tokens import Token


def outcome(
    label: str | None = "yes", predicted: str = "no", truncated: bool = False
) -> ItemOutcome:
    return new_outcome(
        label=label, predicted=predicted, logits=(0.0, 1.0), truncated=truncated, positions=3
    )


def record(relevance: np.ndarray, features: tuple[Token, ...] | PatchGrid, **more) -> Attribution:
    given_fields = {"target": "all", "class_name": "yes", "text": None} | more
    return Attribution(
        item_id="i",
        method="lrp",
        rank=0,
        class_index=0,
        logit=0.0,
        relevance=relevance,
        unit="logits",
        at="encoder",
        features=features,
        ledger=None,
        **given_fields,
    )


def text(words: str, relevance: list[float], **more) -> Attribution:
    tokens, at = [], 0
    for number, word in enumerate(words.split()):
        tokens.append(Token(text=word, start=at, end=at + len(word), word=number))
        at += len(word) + 1
    return record(np.array(relevance, dtype=np.float64), tuple(tokens), text=words, **more)


def image(values: list[list[float]], **more) -> Attribution:
    array = np.array(values, dtype=np.float64)
    grid = PatchGrid(rows=array.shape[0], cols=array.shape[1], height=8, width=8)
    return record(array, grid, **more)


def test_words_by_hand() -> None:
    total = ShardAggregate()
    total.add(outcome(), [text("Good good bad", [1.0, -0.25, 2.0])])
    total.add(outcome(), [text("GOOD", [0.5]), text("good", [8.0], class_name="no")])
    assert total.words("all", "yes") == [
        WordTotal(word="bad", documents=1, mentions=1, relevance=2.0, magnitude=2.0),
        WordTotal(word="good", documents=2, mentions=3, relevance=1.25, magnitude=1.75),
    ]
    assert [word.relevance for word in total.words("all", "no")] == [8.0]
    assert total.words("all", "maybe") == []
    assert total.class_keys == [("all", "no"), ("all", "yes")]


def test_counts_by_hand() -> None:
    total = ShardAggregate()
    total.add(outcome("yes", "no"), [])
    total.add(outcome("yes", "no", truncated=True), [])
    total.add(outcome(None, "yes"), [])
    assert (total.items, total.truncated) == (3, 1)
    assert total.predictions == {("yes", "no"): 2, (None, "yes"): 1}


def test_heatmaps_by_hand_and_sizes_apart() -> None:
    total = ShardAggregate()
    total.add(outcome(), [image([[1.0, 2.0], [3.0, -4.0]]), image([[5.0]])])
    total.add(outcome(), [image([[3.0, 0.0], [0.0, 1.0]])])
    single, pair = total.heatmaps()
    assert (single.count, single.relevance.tolist()) == (1, [[5.0]])
    assert (pair.count, pair.relevance.tolist()) == (2, [[2.0, 1.0], [1.5, -1.5]])
    assert (pair.target, pair.class_name) == ("all", "yes")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_relevance_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="relevance"):
        ShardAggregate().add(outcome(), [text("a", [bad])])


def test_another_version_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="version 1"):
        ShardAggregate.from_json(ShardAggregate().to_json() | {"version": 1})


HEATMAP = {"target": "a", "class_name": "b", "shape": [1, 2], "count": 1, "cells": [1, 2]}


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"items": "3"}, "items"),
        ({"items": -1}, "items"),
        ({"predictions": [["yes", "no"]]}, "predictions"),
        ({"words": None}, "words"),
        ({"words": [{"target": "all", "class_name": "yes", "words": {"a": [1, 2, 3]}}]}, "words"),
        ({"heatmaps": [{**HEATMAP, "count": 0}]}, "heatmaps"),
        (
            {"heatmaps": [{**HEATMAP, "cells": [1]}]},
            "1 cells",
        ),
        ({"checked": {"removals": [{"item_id": "i"}]}}, "removals"),
        ({"checked": []}, "checked"),
        ({"checked": None}, "checked"),
        ({"heatmaps": [{**HEATMAP, "cells": [0, 10**400]}]}, "a sum beyond"),
        ({"positions": [{"target": "a", "class_name": "b", "parts": [[1, 1, 10**400, 1]]}]}, "sum"),
        ({"seen": {"classes": []}}, "seen"),
        ({"gaps": [["all", 1, 0, 0]]}, "gaps"),
        ({"entities": [{"stratum": ["a"]}]}, "entities|stratum"),
    ],
)
def test_a_damaged_aggregate_is_refused_by_place(changed: dict, place: str) -> None:
    damaged = whole([("yes", [("a", 1.0)], [1.0, 2.0])]).to_json() | changed
    for read in (ShardAggregate.from_json, lambda content: merged_aggregates([content])):
        with pytest.raises(
            ConfigurationError, match=r"aggregate (cannot|has 3 numbers)"
        ) as reported:
            read(damaged)
    with pytest.raises(ConfigurationError, match=place):
        ShardAggregate.from_json(damaged)
    assert "run the audit" in str(reported.value)


@pytest.mark.parametrize("lacking", sorted(ShardAggregate().to_json().keys() - {"version"}))
def test_an_aggregate_that_lacks_a_part_is_refused(lacking: str) -> None:
    payload = ShardAggregate().to_json()
    del payload[lacking]
    with pytest.raises(ConfigurationError, match=lacking):
        ShardAggregate.from_json(payload)


@pytest.mark.parametrize("content", [None, [], 3, "x", {}, {"version": [4]}])
def test_a_document_that_is_no_aggregate_has_no_version(content: object) -> None:
    with pytest.raises(ConfigurationError, match="version None"):
        merged_aggregates([content])


RELEVANCE = st.floats(-50, 50, allow_nan=False, width=32)
ITEMS = st.lists(
    st.tuples(
        st.sampled_from([None, "yes", "no"]),
        st.lists(st.tuples(st.sampled_from("aAbcÉ"), RELEVANCE), min_size=1, max_size=5),
        st.lists(RELEVANCE, min_size=2, max_size=2),
    ),
    max_size=12,
)


def whole(items: list) -> ShardAggregate:
    total = ShardAggregate()
    for label, words, cells in items:
        written = text(" ".join(w for w, _ in words), [r for _, r in words])
        total.add(outcome(label), [written, image([cells], class_name=str(label))])
        total.add_sensitivity(abs(cells[0]) / 50)
        seen = [mention("A", word, value) for word, value in words]
        total.second.add(POSITIVE, seen, magnitude=9.0)
    return total


@given(ITEMS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_cut_and_any_order_give_the_same_bits(items: list, size: int, rng: random.Random):
    expected = whole(items).to_json()
    parts = [whole(items[at : at + size]) for at in range(0, len(items), size)]
    rng.shuffle(parts)
    merged = ShardAggregate()
    for part in parts:
        merged.merge(ShardAggregate.from_json(json.loads(json.dumps(part.to_json()))))
    assert json.dumps(merged.to_json()) == json.dumps(expected)


@given(ITEMS)
def test_places_add_up_to_the_words(items: list) -> None:
    total = whole(items)
    parts, words = total.positions.parts("all", "yes"), total.words("all", "yes")
    assert sum(part.positions for part in parts) == sum(word.mentions for word in words)
    for name in ("relevance", "magnitude"):
        assert sum(getattr(part, name) for part in parts) == pytest.approx(
            sum(getattr(word, name) for word in words), abs=1e-9
        )
    assert max((part.texts for part in parts), default=0) <= len(items)


@given(ITEMS)
def test_sums_are_those_of_the_floats(items: list) -> None:
    total = whole(items)
    for word in total.words("all", "yes"):
        values = [r for _, words, _ in items for w, r in words if w.lower() == word.word]
        assert word.mentions == len(values)
        assert word.relevance == pytest.approx(sum(values), abs=1e-9)
        assert word.magnitude == pytest.approx(sum(map(abs, values)), abs=1e-9)


@given(ITEMS)
def test_class_sensitivity_is_a_mean(items: list) -> None:
    values = [abs(cells[0]) / 50 for _, _, cells in items]
    found = whole(items).class_sensitivity
    assert found == (
        (pytest.approx(sum(values) / len(values), abs=1e-12), len(values)) if values else None
    )


# ---- texts that repeat each other, counted shard by shard


ROWS = 60_000


def listed(rows: int = ROWS, **changes: object) -> AuditPlan:
    plan = make_plan(rows)
    return replace(plan, dataset=replace(plan.dataset, manifest=True), **changes)


def texts() -> list[str]:
    """4,000 texts that stand alone, 500 that two items have and 20 that fifty have."""
    found = [f"alone {n}" for n in range(4000)]
    found += [f"twice {n}" for n in range(500)] * 2 + [f"often {n}" for n in range(20)] * 50
    random.Random(3).shuffle(found)
    return found


def shards(plan: AuditPlan, size: int) -> list[ShardAggregate]:
    every = [make_outcome(n, text=text) for n, text in enumerate(texts())]
    made = []
    for start in range(0, len(every), size):
        made.append(ShardAggregate.of(plan))
        made[-1].add_all(every[start : start + size], ())
    return made


def test_all_texts_are_counted_however_shards_are_cut_and_merged() -> None:
    found = []
    for size in (7000, 256, 100):
        payloads = [one.to_json() for one in shards(listed(), size)]
        for some in (payloads, payloads[::-1]):
            total = merged_aggregates(some)
            assert (total.repeats.drawn, total.repeats.repeating) == (6000, 2000)
            found.append(total.to_json()["repeats"])
    assert all(one == found[0] for one in found)


def test_of_many_all_items_of_a_text_are_drawn_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_totals, "DRAWN", ROWS // 4)
    whole = merged_aggregates(one.to_json() for one in shards(listed(), 500)).repeats
    sizes = sorted(whole.texts.values())
    assert set(sizes) == {1, 2, 50}
    assert 900 < sizes.count(1) < 1100
    assert 90 < sizes.count(2) < 160
    # as a share of all: 2000 of 6000, of about a quarter of the texts
    assert whole.repeating / whole.drawn == pytest.approx(1 / 3, abs=0.12)


@pytest.mark.parametrize(
    "plan",
    [
        make_plan(ROWS),
        listed(1000),
        listed(privacy=PrivacyPlan(store_text="hashed", key="k")),
        listed(privacy=PrivacyPlan(redact="a.b:c")),
    ],
    ids=["copied", "few", "hashed", "redacted"],
)
def test_they_are_not_counted_where_planning_has_read_them_or_none_is_kept(plan: AuditPlan) -> None:
    assert TextRepeats.of(plan) is None
    (one,) = shards(plan, 7000)
    assert "repeats" not in one.to_json()


def test_damage_is_told() -> None:
    payload = shards(listed(), 7000)[0].to_json()
    payload["repeats"]["texts"][0][1] = -3
    with pytest.raises(ConfigurationError, match="aggregate"):
        ShardAggregate.from_json(payload)
