"""Digests of shards: what is taken at the commit is what the tables give, on both databases."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import exc, text
from store_samples import make_attribution, make_image, make_outcome, make_plan, make_shards
from store_samples import make_result as sample

from transexplain.errors import DatabaseError
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import RecordedShard, recorded_shards
from transexplain.store.shard_digests import damaged
from transexplain.types.plans import ShardResult
from transexplain.types.scores import MetricScore

ODD = "Zoë \x00 \x10 \ud800 \U0001f600 'quoted' \\"


def saved(db: Database, result: ShardResult, **plan: Any) -> tuple[str, RecordedShard]:
    """A run whose first shard holds `result`."""
    run_id = runs.create(db, make_plan(**plan), make_shards())
    claim = shards.claim(db, run_id, "w", 60, shard_index=0)
    results.save(db, claim, result)
    return run_id, recorded_shards(db, run_id)[0]


def odd_result() -> ShardResult:
    """Every kind of value that a column may hold, and what databases are particular about."""
    shard = make_shards()[0]
    outcomes = [make_outcome(row) for row in range(4)]
    outcomes[0] = make_outcome(0, text=ODD, label=None, logits=(-0.0, 1e-310), meta={})
    outcomes[1] = make_outcome(1, text=None, source="a/b.png", meta={ODD: ODD})
    made = [
        make_attribution(outcomes[0], text=ODD, logit=-0.0, notes=(ODD,)),
        make_image(outcomes[1]),
        make_attribution(outcomes[2], relevance=np.zeros(5, dtype=np.float32), ledger=None),
    ]
    score = MetricScore(item_id="id-0", method="m", target="t", metric="a", value=-0.0)
    scores = (
        replace(score, curve=(0.1,)),
        replace(score, item_id="id-1", value=None, reason=ODD),
        replace(score, item_id="id-1", metric="b", value=1.0, detail={"n": [1, 2.5]}),
    )
    whole = sample(shard, failing=frozenset({3}), note=ODD)
    aggregate = {"big": 2**80, "z": [1, {"b": 0.1, "a": None}], "a": ODD}
    return replace(
        whole,
        outcomes=tuple(outcomes[:3]),
        attributions=tuple(made),
        mentions=tuple(replace(one, surface=ODD) for one in whole.mentions),
        scores=scores,
        aggregate=aggregate,
    )


def test_the_tables_give_the_digest_of_the_commit_whatever_the_run(db: Database) -> None:
    run_id, first = saved(db, odd_result())
    assert first.digest is not None and damaged(db, run_id) == []
    assert "transexplain" in first.environment["software"]
    for again in (odd_result(), replace(odd_result(), seconds=9.0)):
        assert saved(db, again)[1].digest == first.digest


CHANGES = (
    'UPDATE shard SET explained = 2 WHERE "index" = 0',
    'UPDATE shard SET digest = NULL WHERE "index" = 0',
    "UPDATE failure SET shard = 1",
    "UPDATE failure SET error = 'other'",
    "DELETE FROM failure",
    "UPDATE item SET item_id = 'x' WHERE idx = 1",
    "UPDATE item SET predicted = 'x' WHERE idx = 1",
    "UPDATE item SET truncated = NOT truncated WHERE idx = 1",
    "DELETE FROM item WHERE idx = 0",
    "UPDATE attribution SET relevance = lengths WHERE idx = 0",
    "UPDATE attribution SET ledger_gap = 0.5 WHERE idx = 0",
    "UPDATE attribution SET class_name = 'x' WHERE idx = 1",
    "DELETE FROM attribution WHERE idx = 2",
    "UPDATE mention SET relevance = 2 * relevance",
    "UPDATE score SET value = 0.5 WHERE ordinal = 1",
    "UPDATE shard_aggregate SET summary = payload",
    "UPDATE shard_aggregate SET payload = summary",
    "DELETE FROM shard_aggregate",
)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_row_shows(db: Database, change: str) -> None:
    run_id, _ = saved(db, odd_result())
    assert damaged(db, run_id) == []
    with db.begin() as connection:
        assert connection.execute(text(change)).rowcount >= 1
    assert [one.index for one in damaged(db, run_id)] == [0]
    assert [one.index for one in damaged(db, run_id, [0])] == [0]
    assert damaged(db, run_id, [1, 2]) == []


def test_a_shard_that_is_computed_again_has_its_own(db: Database) -> None:
    run_id, one = saved(db, odd_result())
    other = sample(make_shards()[1])
    claim = shards.claim(db, run_id, "w", 60, shard_index=1)
    results.save(db, claim, other)
    first, second, third = recorded_shards(db, run_id)
    assert (first.digest, third.digest) == (one.digest, None)
    assert second.digest not in (None, first.digest)
    assert damaged(db, run_id) == []


def test_an_error_of_reading_is_the_databases(db: Database) -> None:
    run_id, _ = saved(db, odd_result())
    with db.begin() as connection:
        connection.execute(text("ALTER TABLE score RENAME TO elsewhere"))
    with pytest.raises((DatabaseError, exc.SQLAlchemyError)):
        damaged(db, run_id)
