"""Where errors were raised: of items, of shards that failed, of items that hung."""

from dataclasses import replace

import pytest
from store_samples import make_plan, make_result, make_shards

from transexplain.store import noteworthy, results, runs, shards
from transexplain.store.browsing_items import failed_page, item_record, troubled_shards
from transexplain.store.database import Database
from transexplain.store.rows import _ALIKE, failure_rows
from transexplain.store.shard_digests import digest_of
from transexplain.types.items import ItemFailure
from transexplain.types.plans import Shard, ShardResult

WHERE = "  transexplain/x.py:1 in f\nValueError"
ODD = "odd \x00 \udc80"


def failed(count: int, *others: ItemFailure) -> ShardResult:
    alike = [
        ItemFailure(item_id=f"i{n}", index=n, kind="model-error", message="m", traceback=WHERE)
        for n in range(count)
    ]
    shard = Shard(index=0, start=0, stop=count + len(others))
    return replace(
        make_result(shard), outcomes=(), attributions=(), mentions=(), failures=(*alike, *others)
    )


def saved(db: Database, result: ShardResult) -> str:
    run_id = runs.create(db, make_plan(), [result.shard])
    claim = shards.claim(db, run_id, "w", 60, 0)
    results.save(db, claim, result)
    return run_id


def test_it_comes_back_with_the_item(db: Database) -> None:
    other = ItemFailure(item_id="o", index=2, kind="null", message="n", traceback=ODD)
    run_id = saved(db, failed(2, other))
    wanted = [WHERE, WHERE, ODD]
    assert [one.traceback for one in results.failures(db, run_id)] == wanted
    assert [one.traceback for one in failed_page(db, run_id, start=0, limit=9)] == wanted
    found = item_record(db, run_id, "o")
    assert isinstance(found, ItemFailure) and found.traceback == ODD
    examples = noteworthy.failure_examples(db, run_id, 5)
    assert [one.traceback for one in examples["model-error"][1]] == [WHERE, WHERE]


def test_equal_ones_are_kept_with_the_first_items() -> None:
    other = ItemFailure(item_id="o", index=9, kind="null", message="n", traceback="elsewhere")
    rows = failure_rows("r", failed(9, other))
    assert [row["traceback"] for row in rows[: _ALIKE + 1]] == [WHERE] * _ALIKE + [None]
    assert rows[-1]["traceback"] == "elsewhere"


def test_the_digest_of_a_shard_does_not_cover_lines_of_code() -> None:
    one = failure_rows("r", failed(2))
    other = [{**row, "traceback": "moved"} for row in one]
    assert digest_of(one, (), ()) == digest_of(other, (), ())
    changed = [{**row, "error": "moved"} for row in one]
    assert digest_of(one, (), ()) != digest_of(changed, (), ())


def test_a_shard_keeps_that_of_its_last_error(db: Database) -> None:
    run_id = runs.create(db, make_plan(max_attempts=1), make_shards(4))
    claim = shards.claim(db, run_id, "w", 60, 0)
    assert shards.fail(db, claim, "ValueError: no", WHERE) == "dead"
    (found,) = troubled_shards(db, run_id, 9)
    assert (found.error, found.traceback) == ("ValueError: no", WHERE)
    assert shards.list_shards(db, run_id)[0].traceback == WHERE


def test_an_item_in_quarantine_keeps_where_it_hung(db: Database) -> None:
    run_id = runs.create(db, make_plan(), make_shards(4))
    for where, convicted in (("first", False), (WHERE, True)):
        claim = shards.claim(db, run_id, "w", 60, 0)
        shards.hang(db, claim, ["id-1"], "it hung", where, convicted=convicted)
    (found,) = troubled_shards(db, run_id, 9)
    assert found.quarantined == {"id-1": "it hung"} and found.tracebacks == {"id-1": WHERE}
    claim = shards.claim(db, run_id, "w", 60, 0)
    assert claim is not None and claim.caution.tracebacks == {"id-1": WHERE}


def test_a_death_without_one_forgets_the_one_before(db: Database) -> None:
    run_id = runs.create(db, make_plan(), make_shards(4))
    claim = shards.claim(db, run_id, "w", 60, 0)
    shards.fail(db, claim, "ValueError: no", WHERE)
    shards.claim(db, run_id, "w", -1.0, 0)
    assert shards.claim(db, run_id, "w", 60, 0) is not None
    (found,) = troubled_shards(db, run_id, 9)
    assert "ran out" in str(found.error) and found.traceback is None


@pytest.mark.parametrize("traceback", ["", WHERE])
def test_failures_are_equal_wherever_they_were_raised(traceback: str) -> None:
    one = ItemFailure(item_id="i", index=0, kind="k", message="m")
    assert replace(one, traceback=traceback) == one
