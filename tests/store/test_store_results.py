"""What is saved comes back: items, failures, attributions, mentions, aggregates and totals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from store_samples import (
    make_attribution,
    make_image,
    make_ledger,
    make_mention,
    make_outcome,
    make_plan,
    make_result,
    make_shards,
    same,
    saved,
)

from transexplain.errors import ConfigurationError
from transexplain.store import blocks, ranked_items, readers, results, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.run_totals import ALL, mean_scores
from transexplain.types.items import Attribution, ItemFailure
from transexplain.types.plans import Shard, ShardResult
from transexplain.types.scores import MetricScore


def only(outcome: Any, *attributions: Attribution, **changes: Any) -> ShardResult:
    """A result of the single row 0."""
    empty = make_result(Shard(index=0, start=0, stop=1), failing=frozenset({0}))
    return replace(
        empty, outcomes=(outcome,), failures=(), attributions=attributions, mentions=(), **changes
    )


def test_all_comes_back_as_it_was(db: Database) -> None:
    failing = {0: frozenset({2}), 2: frozenset({9})}
    made = [
        make_result(shard, failing=failing.get(shard.index, frozenset())) for shard in make_shards()
    ]
    run_id = saved(db, *reversed(made))
    outcomes = [one for part in made for one in part.outcomes]
    lost = [one for part in made for one in part.failures]
    items = list(readers.iter_items(db, run_id))
    assert items == sorted([*outcomes, *lost], key=lambda one: one.index)
    assert list(readers.iter_items(db, run_id, only_failed=True)) == lost
    wanted = [one for part in made for one in part.attributions]
    found = list(readers.iter_attributions(db, run_id))
    assert len(found) == len(wanted) == 20
    assert all(map(same, found, wanted))
    assert all(one.relevance.dtype == np.float32 for one in found)
    assert list(readers.iter_mentions(db, run_id)) == [m for part in made for m in part.mentions]
    assert list(run_totals.aggregates(db, run_id)) == [dict(part.aggregate) for part in made]


def test_images_keep_their_grid_and_prefix(db: Database) -> None:
    outcome = make_outcome(0, text=None, source="cats/1.png", meta={})
    made = only(outcome, make_image(outcome))
    run_id = saved(db, made)
    [found] = readers.iter_attributions(db, run_id)
    assert same(found, made.attributions[0])
    assert found.relevance.shape == (2, 3)
    assert list(readers.iter_items(db, run_id)) == [outcome]


def test_strings_that_databases_refuse_come_back(db: Database) -> None:
    odd = "nul \x00 surrogate \udc80 escape \x10 end \U0001f600"
    outcome = make_outcome(0, item_id=odd, text=odd, label=odd, meta={odd: odd}, source=odd)
    attribution = make_attribution(outcome)
    mention = make_mention(outcome, surface=odd, entity=odd)
    made = replace(only(outcome, attribution), mentions=(mention,), aggregate={odd: [odd]})
    run_id = saved(db, made)
    assert list(readers.iter_items(db, run_id)) == [outcome]
    [found] = readers.iter_attributions(db, run_id, item_ids=[odd])
    assert same(found, attribution)
    assert list(readers.iter_mentions(db, run_id)) == [mention]
    assert list(run_totals.aggregates(db, run_id)) == [{odd: [odd]}]


def test_numpy_numbers_are_stored_as_numbers(db: Database) -> None:
    logits, zero, first = (np.float32(0.5), np.float64(1.5)), np.int64(0), np.int64(1)
    outcome = make_outcome(zero, logits=logits, positions=np.int64(5))
    attribution = make_attribution(outcome, logit=logits[1], rank=zero, class_index=first)
    mention = make_mention(outcome, relevance=np.float32(0.5), start=np.int64(1))
    run_id = saved(db, replace(only(outcome, attribution), mentions=(mention,)))
    [found] = readers.iter_attributions(db, run_id)
    assert (found.logit, found.rank, found.class_index) == (1.5, 0, 1)
    assert list(readers.iter_mentions(db, run_id)) == [mention]
    assert list(readers.iter_items(db, run_id)) == [outcome]


@pytest.mark.parametrize("page", [1, 2, 3, 512])
def test_pages_meet_without_gap_or_overlap(db, page: int, monkeypatch) -> None:
    monkeypatch.setattr(readers, "_PAGE", page)
    monkeypatch.setattr(blocks, "ITEMS", page)
    run_id = saved(db, *map(make_result, make_shards(7, 3)))
    assert [one.item_id for one in readers.iter_items(db, run_id)] == [f"id-{n}" for n in range(7)]
    found = [(one.item_id, one.target) for one in readers.iter_attributions(db, run_id)]
    targets = ("predicted", "contrast:positive-negative")
    assert found == [(f"id-{n}", target) for n in range(7) for target in targets]
    chosen = ["id-6", "id-0", "nobody", "id-3", "id-0"]
    some = readers.iter_attributions(db, run_id, item_ids=chosen, target="predicted")
    assert [one.item_id for one in some] == ["id-0", "id-3", "id-6"]
    both = [
        (one.item_id, one.target) for one in readers.iter_attributions(db, run_id, item_ids=chosen)
    ]
    assert both == [(f"id-{n}", target) for n in (0, 3, 6) for target in targets]
    for nothing in ({"item_ids": []}, {"item_ids": ["nobody"]}, {"target": "label"}):
        assert list(readers.iter_attributions(db, run_id, **nothing)) == []


def test_a_reader_that_stops_halfway_holds_nothing(db, monkeypatch) -> None:
    monkeypatch.setattr(readers, "_PAGE", 1)
    monkeypatch.setattr(blocks, "ITEMS", 1)
    run_id = saved(db, *map(make_result, make_shards(9, 3)))
    reading = readers.iter_items(db, run_id)
    next(reading)
    assert db.engine.pool.checkedout() == 0


def test_accuracy_counts_labelled_items_only(db: Database) -> None:
    shard = Shard(index=0, start=0, stop=5)
    made = make_result(shard, failing=frozenset({4}))
    outcomes = (replace(made.outcomes[0], label=None), *made.outcomes[1:])
    run_id = saved(db, replace(made, outcomes=outcomes))
    # rows 1 and 3 are predicted positive, as labelled; row 2 is not; row 0 has no label
    assert run_totals.accuracy(db, run_id) == (2, 3)
    unlabelled = saved(db, only(make_outcome(0, label=None)))
    assert run_totals.accuracy(db, unlabelled) is None


def test_the_most_wrong_are_found_by_their_logits(db: Database) -> None:
    # of every second row the label is wrong, the later the more; the others have no result
    made = [
        make_result(one, failing=frozenset({one.start + 1, one.start + 3})) for one in make_shards()
    ]
    assert ranked_items.wrong(db, saved(db, *made), 3) == ["id-10", "id-8", "id-6"]


def test_conservation_sums_the_ledgers(db: Database) -> None:
    shard = Shard(index=0, start=0, stop=3)
    run_id = saved(db, make_result(shard))
    found = run_totals.conservation(db, run_id)
    ledgers = [make_ledger(n) for n in (1, 2, 3)]
    assert found.n == 3
    assert found.max_relative_gap == max(one.relative_gap for one in ledgers)
    assert found.mean_relative_gap == pytest.approx(np.mean([o.relative_gap for o in ledgers]))
    assert found.worst_item == "id-2"
    assert found.sums["inputs"] == pytest.approx(3.0)
    assert found.sums["embeddings"] == pytest.approx(-0.375)
    assert found.absolute["embeddings"] == pytest.approx(0.375)
    assert found.sums["magnitude"] == 6.0


def test_conservation_without_ledgers_and_without_magnitude(db: Database) -> None:
    outcome = make_outcome(0)
    assert run_totals.conservation(db, saved(db, only(outcome))) is None
    bare = replace(make_ledger(), magnitude=0.0, gap=-0.5, biases_by_kind={}, rules_by_kind={})
    run_id = saved(db, only(outcome, make_attribution(outcome, ledger=bare)))
    found = run_totals.conservation(db, run_id)
    assert (found.max_relative_gap, bare.relative_gap) == (0.5, 0.5)
    assert [one.ledger for one in readers.iter_attributions(db, run_id)] == [bare]


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ({"outcomes": ()}, r"4 missing .first"),
        ({"failures": (ItemFailure(item_id="x", index=1, kind="k", message="m"),)}, "1 twice"),
        ({"failures": (ItemFailure(item_id="x", index=7, kind="k", message="m"),)}, "1 outside"),
        ({"attributions": (make_attribution(make_outcome(9)),)}, "'id-9'.*no outcome"),
        ({"mentions": (make_mention(make_outcome(9)),)}, "'id-9'.*no outcome"),
    ],
)
def test_a_result_must_cover_its_shard(db: Database, change: Any, printed: str) -> None:
    shard = Shard(index=0, start=0, stop=4)
    with pytest.raises(ValueError, match=printed):
        saved(db, replace(make_result(shard), **change))


def test_a_result_of_another_shard_is_refused(db: Database) -> None:
    run_id = runs.create(db, make_plan(), make_shards())
    claim = shards.claim(db, run_id, "w", 60)
    with pytest.raises(ValueError, match="claim"):
        results.save(db, claim, make_result(make_shards()[1]))


def test_relevance_must_fit_the_positions(db: Database) -> None:
    outcome = make_outcome(0)
    with pytest.raises(ValueError, match="'id-0': 4 relevances"):
        saved(db, only(outcome, make_attribution(outcome, relevance=np.zeros(4))))
    both = (make_attribution(outcome), make_image(outcome))
    with pytest.raises(ValueError, match="differ in their"):
        saved(db, only(outcome, *both))


# ---- means over the items that mention a group, as the database adds them up: by brute force


GROUPS = ("names", "pla\x00ces")


def groups_of(index: int) -> list[str]:
    """Every third item mentions nobody; every second of the rest both groups, one of them twice."""
    if index % 3 == 0:
        return []
    return [GROUPS[0], *([GROUPS[1]] * 2 if index % 2 else [])]


def value(index: int) -> float | None:
    return None if index == 4 else float(index**2)


@pytest.fixture
def run_id(db: Database) -> str:
    def score(method: str, outcome: Any) -> MetricScore:
        number = value(outcome.index)
        of = {"item_id": outcome.item_id, "target": "predicted", "metric": "sparsity"}
        reason = "no position" if number is None else ""
        return MetricScore(**of, method=method, value=number, reason=reason)

    made = []
    for shard in make_shards():
        one = make_result(shard)
        scores = [score("lrp", outcome) for outcome in one.outcomes]
        scores += [score("random", outcome) for outcome in one.outcomes if outcome.index < 2]
        pairs = [(outcome, group) for outcome in one.outcomes for group in groups_of(outcome.index)]
        mentions = tuple(make_mention(outcome, group=group) for outcome, group in pairs)
        made.append(replace(one, mentions=mentions, scores=tuple(scores)))
    return saved(db, *made)


def test_scores(db: Database, run_id: str) -> None:
    found = mean_scores(db, run_id, "lrp")
    assert set(found) == {(group, "predicted", "sparsity") for group in (ALL, *GROUPS)}
    for (group, *_), mean in found.items():
        inside = [i for i in range(12) if group == ALL or group in groups_of(i)]
        values = [v for i in inside if (v := value(i)) is not None]
        assert mean.items == len(values)
        assert mean.mean == pytest.approx(sum(values) / len(values))
    assert mean_scores(db, run_id, "other") == {}
    of_random = {key[0]: mean.items for key, mean in mean_scores(db, run_id, "random").items()}
    assert of_random == {ALL: 2, GROUPS[0]: 1, GROUPS[1]: 1}
    empty = runs.create(db, make_plan(), make_shards())
    assert mean_scores(db, empty, "lrp") == {}
    with pytest.raises(ConfigurationError, match="nothing"):
        mean_scores(db, "nothing", "lrp")
