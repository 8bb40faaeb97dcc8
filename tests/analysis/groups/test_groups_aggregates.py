import json
import random
from dataclasses import replace

import numpy as np
import pytest
from entity_samples import POSITIVE, mention
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_attribution, new_outcome
from store_samples import make_outcome, make_plan

from transexplain.analysis.groups import text_totals
from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.hidden_regions import HiddenRegion
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.mixed_audits import ExactSample, MethodAgreement, PairedMentions
from transexplain.analysis.groups.shard_aggregate import (
    ALL,
    ControlResults,
    ShardAggregate,
    merged_aggregates,
)
from transexplain.errors import ConfigurationError
from transexplain.types.items import Attribution, ItemOutcome, Ledger, PatchGrid
from transexplain.types.plans import AuditPlan, PrivacyPlan
from transexplain.types.tokens import Token


def outcome(
    label: str | None = "yes", predicted: str = "no", truncated: bool = False
) -> ItemOutcome:
    return new_outcome(
        label=label, predicted=predicted, logits=(0.0, 1.0), truncated=truncated, positions=3
    )


def record(relevance: np.ndarray, features: tuple[Token, ...] | PatchGrid, **more) -> Attribution:
    fields = {"item_id": "i", "target": "all", "class_name": "yes", "logit": 0.0} | more
    return new_attribution(relevance=relevance, features=features, **fields)


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


#: squares of the larger ones, and some sums of them, are beyond 64 bits in units of 2**-50
RELEVANCE = st.floats(-1e6, 1e6, allow_nan=False, width=32)
ITEMS = st.lists(
    st.tuples(
        st.sampled_from([None, "yes", "no"]),
        st.lists(
            st.tuples(st.sampled_from("ABC"), st.sampled_from("aAbcÉ"), RELEVANCE),
            min_size=1,
            max_size=5,
        ),
    ),
    max_size=12,
)
ANSWER = Answer(name="yes", plus=(0,), minus=(1,))


def add_controls(checked: ControlResults, document: str, value: float) -> None:
    """A record in each of the lists of an item's controls."""
    of = {"target": "t", "class_name": "c", "group": "A", "entity": "x"}
    swapped = Observation(document=document, group="A", entity="x", log_odds=(value,))
    checked.observations.append(swapped)
    checked.candidates.append(replace(swapped, own=True))
    checked.regions.append(HiddenRegion(document=document, place=0, group="A", entity="x"))
    checked.ablations.append(
        MentionAblation(item_id=document, flipped=value > 0, change=value, relevance=1.0, **of)
    )
    checked.unpaired["A"] += 1
    both = {"item_id": document, "cheap": value, "exact": 1.0}
    reading = {"predicted": "c", "label": "", "slice": "", "mentions": 1}
    agreement = MethodAgreement(
        target="t", class_name="c", correlation=value if value > 0 else None, error=None, **both
    )
    mentioned = PairedMentions(**of, **both, **reading)
    checked.exact.merge(
        ExactSample(items=1, failed=1, agreements=[agreement], mentions=[mentioned])
    )


def whole(items: list) -> ShardAggregate:
    total = ShardAggregate()
    for label, words in items:
        values = [value for *_, value in words]
        written = text(" ".join(word for _, word, _ in words), values)
        total.add(outcome(label), [written, image([values], class_name=str(label))])
        total.add_sensitivity(abs(values[0]) / 1e6)
        mentions = [mention(group, word, value) for group, word, value in words]
        for stratum in (POSITIVE, POSITIVE._replace(label=label or "")):
            ranks = [0.5] * len(mentions)
            total.entities.add(stratum, mentions, 9.0, ranks, cluster=label or "")
        total.second.add(POSITIVE, mentions[:1], magnitude=9.0)
        total.checked.randomised.of_draw(len(words) % 2).add(POSITIVE, mentions, 9.0)
        total.add_dropped([(mentions[0].group, mentions[0].entity)])
        add_controls(total.checked, str(len(values)), values[0])
        groups = {row.group for row in mentions}
        total.outcomes.add(outcome(label), groups, answers=(ANSWER,), cluster=label or "")
    return total


def saved(total: ShardAggregate) -> dict:
    return json.loads(json.dumps(total.to_json()))


@given(ITEMS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_cut_and_any_order_give_the_same_bits(items: list, size: int, rng: random.Random):
    parts = [whole(items[at : at + size]) for at in range(0, len(items), size)]
    rng.shuffle(parts)
    payloads = list(map(saved, parts))
    before = json.dumps(payloads)
    merged = json.dumps(merged_aggregates(iter(payloads)).to_json())
    assert json.dumps(payloads) == before, "what was read is left alone"
    assert merged == json.dumps(whole(items).to_json())


@given(ITEMS)
def test_sums_are_those_of_the_floats_and_places_add_up_to_words(items: list) -> None:
    total = whole(items)
    words = total.words("all", "yes")
    for word in words:
        values = [r for _, row in items for _, w, r in row if w.lower() == word.word]
        assert word.mentions == len(values)
        assert word.relevance == pytest.approx(sum(values), abs=1e-6)
        assert word.magnitude == pytest.approx(sum(map(abs, values)), abs=1e-6)
    parts = total.positions("all", "yes")
    assert sum(part.positions for part in parts) == sum(word.mentions for word in words)
    for name in ("relevance", "magnitude"):
        assert sum(getattr(part, name) for part in parts) == pytest.approx(
            sum(getattr(word, name) for word in words), abs=1e-6
        )
    assert max((part.texts for part in parts), default=0) <= len(items)
    values = [abs(row[0][2]) / 1e6 for _, row in items]
    mean = (pytest.approx(sum(values) / len(values), abs=1e-12), len(values)) if values else None
    assert total.class_sensitivity == mean


# ---- what a row of the database holds may be damaged


def test_a_number_beyond_what_is_summed_is_refused_by_item() -> None:
    for value in (1e15, -1e300, float("nan")):
        with pytest.raises(ValueError, match="'i'"):
            ShardAggregate().add(outcome(), [text("a", [value])])
    total = ShardAggregate()
    for _ in range(3):
        total.add(outcome(), [text("a", [9e14])])
    merged = merged_aggregates([saved(total)] * 20)
    assert merged.words("all", "yes")[0].relevance == 60 * 9e14


@pytest.mark.parametrize(
    ("rows", "content"),
    [
        ("ablations", {"item_id": "i"}),
        ("ablations", {"relevance": float("nan")}),
        ("observations", {"positions": -1}),
        ("regions", {"document": "d", "place": 0, "group": "A", "entity": "x", "without": ["no"]}),
    ],
)
def test_damaged_rows_are_refused_by_place(rows: str, content: dict) -> None:
    damaged = saved(ShardAggregate())
    damaged[rows] = [content]
    with pytest.raises(ConfigurationError, match=rows):
        ShardAggregate.from_json(damaged)


@pytest.mark.parametrize("lacking", sorted(ShardAggregate().to_json().keys() - {"version"}))
def test_an_aggregate_that_lacks_a_part_is_refused(lacking: str) -> None:
    payload = ShardAggregate().to_json()
    del payload[lacking]
    with pytest.raises(ConfigurationError, match=lacking):
        ShardAggregate.from_json(payload)


@pytest.mark.parametrize("content", [None, [], 3, "x", {}, {"version": [4]}, {"version": 1}])
def test_another_version_or_none_is_refused(content: object) -> None:
    with pytest.raises(ConfigurationError, match="version"):
        merged_aggregates([content])


@pytest.mark.parametrize("packed", ["", "AAAA", "*", 3, None, "cut", "other width"])
def test_damaged_totals_are_refused(packed: object) -> None:
    payload = saved(whole([(None, [("A", "a", 1.0)])]))
    width, text_of = next(iter(payload["totals"].items()))
    damaged = {"cut": text_of[: len(text_of) // 8 * 4]}.get(packed, packed)
    other = {"7": text_of} if packed == "other width" else {width: damaged}
    payload["totals"] |= other
    with pytest.raises(ConfigurationError, match="aggregate cannot be read"):
        ShardAggregate.from_json(payload)


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
            found.append(sorted(total.repeats.texts))
    assert all(texts == found[0] for texts in found)


def test_of_many_all_items_of_a_text_are_drawn_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_totals, "DRAWN", ROWS // 4)
    whole = merged_aggregates(one.to_json() for one in shards(listed(), 500)).repeats
    sizes = sorted(whole.texts)
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
    (whole,) = shards(plan, 7000)
    assert not whole.repeats.drawn


def ledger(gap: float, magnitude: float = 2.0) -> Ledger:
    nothing = dict.fromkeys(("inputs", "special", "embeddings", "biases", "rules", "total"), 0.0)
    return Ledger(**nothing, gap=gap, magnitude=magnitude)


def test_gaps_by_hand() -> None:
    bare = text("a", [1.0])
    one, other = replace(bare, ledger=ledger(4e-17)), replace(bare, ledger=ledger(-1e-17, 0.0))
    first, second = ShardAggregate(), ShardAggregate()
    first.gaps.add([one, other], {"A", "B"})
    second.gaps.add([one], {"A"})
    second.gaps.add([bare], {"C"})
    found = merged_aggregates([saved(second), saved(first)]).gaps.means()
    assert {group: items for group, (items, _) in found.items()} == {ALL: 2, "A": 2, "B": 1}
    assert found["A"][1] == found[ALL][1] == pytest.approx(5e-17 / 3, rel=1e-12)
    assert found["B"][1] == pytest.approx(1.5e-17, rel=1e-12)
