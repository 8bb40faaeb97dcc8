"""Means over the items that mention a group, as the database adds them up: by brute force."""

from dataclasses import replace

import pytest
from store_samples import make_ledger, make_mention, make_plan, make_result, make_shards

from transexplain.errors import ConfigurationError
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.run_totals import ALL, mean_gaps, mean_scores
from transexplain.types.scores import MetricScore

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
    made = []
    for shard in make_shards():
        one = make_result(shard)
        scores = tuple(
            MetricScore(
                item_id=outcome.item_id,
                method=method,
                target="predicted",
                metric="sparsity",
                value=value(outcome.index),
                reason="" if value(outcome.index) is not None else "no position",
            )
            for outcome in one.outcomes
            for method in ("lrp", "random")
            if method == "lrp" or outcome.index < 2
        )
        mentions = tuple(
            make_mention(outcome, group=group)
            for outcome in one.outcomes
            for group in groups_of(outcome.index)
        )
        made.append(replace(one, mentions=mentions, scores=scores))
    found = runs.create(db, make_plan(), [one.shard for one in made])
    for one in made:
        claim = shards.claim(db, found, "w", 60, one.shard.index)
        results.save(db, claim, one)
    return found


def test_gaps(db: Database, run_id: str) -> None:
    gaps = [make_ledger(index + 1).relative_gap for index in range(12)]
    found = mean_gaps(db, run_id)
    assert set(found) == {ALL, *GROUPS}
    for group in (ALL, *GROUPS):
        inside = [i for i in range(12) if group == ALL or group in groups_of(i)]
        assert found[group].items == len(inside)
        assert found[group].mean == pytest.approx(sum(gaps[i] for i in inside) / len(inside))


def test_scores(db: Database, run_id: str) -> None:
    found = mean_scores(db, run_id, "lrp")
    assert set(found) == {(group, "predicted", "sparsity") for group in (ALL, *GROUPS)}
    for (group, *_), mean in found.items():
        inside = [i for i in range(12) if group == ALL or group in groups_of(i)]
        values = [v for i in inside if (v := value(i)) is not None]
        assert mean.items == len(values)
        assert mean.mean == pytest.approx(sum(values) / len(values))
    assert mean_scores(db, run_id, "other") == {}
    of_random = mean_scores(db, run_id, "random")
    assert {key[0]: mean.items for key, mean in of_random.items()} == {
        ALL: 2,
        GROUPS[0]: 1,
        GROUPS[1]: 1,
    }


def test_another_run_does_not_count_and_an_unknown_one_is_refused(db, run_id: str) -> None:
    empty = runs.create(db, make_plan(), make_shards())
    assert mean_gaps(db, empty) == {}
    assert mean_scores(db, empty, "lrp") == {}
    for read in (lambda: mean_gaps(db, "nothing"), lambda: mean_scores(db, "nothing", "lrp")):
        with pytest.raises(ConfigurationError, match="nothing"):
            read()
