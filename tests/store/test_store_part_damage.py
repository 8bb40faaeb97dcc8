"""A damaged part is found, named, left out where that is asked for, and computed again."""

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select, text, update
from store_samples import make_attribution, make_outcome, make_plan, make_result, make_shards

from transexplain.errors import DamagedRowError, DatabaseError
from transexplain.store import noteworthy, parts, results, run_totals, runs, shards
from transexplain.store import part_columns as col
from transexplain.store.database import Database
from transexplain.store.part_reading import Part
from transexplain.store.part_summary import summary_of
from transexplain.store.readers import iter_pairs
from transexplain.store.recorded import explained_rows, recorded_shards
from transexplain.store.revisions import open_database
from transexplain.store.schema import result_part
from transexplain.store.shard_digests import damaged
from transexplain.types.plans import Shard, ShardResult

RESULTS = [make_result(shard) for shard in make_shards()]


def saved(db: Database) -> str:
    run_id = runs.create(db, make_plan(), make_shards())
    for one in RESULTS:
        claim = shards.claim(db, run_id, "w", 60, one.shard.index)
        results.save(db, claim, one)
    assert runs.finalise(db, run_id)
    return run_id


def flip(db: Database, column: str, place: int = -1) -> None:
    """Turn a bit of the middle shard's part."""
    with db.begin() as connection:
        where = result_part.c.shard == 1
        held = connection.execute(select(result_part.c[column]).where(where)).scalar_one()
        data = bytearray(held)
        data[place] ^= 16
        connection.execute(update(result_part).where(where).values({column: bytes(data)}))


def test_any_flipped_byte_of_a_payload_is_found(db: Database) -> None:
    saved(db)
    with db.read() as connection:
        row = connection.execute(select(result_part).limit(1)).one()
    assert len(Part((0, 0), row.payload)) == summary_of(row.summary).attributions / 2
    for name in ("payload", "summary", "ids"):
        data = bytes(getattr(row, name))
        for place in (*range(9), len(data) // 3, len(data) // 2, len(data) - 1):
            broken = bytearray(data)
            broken[place] ^= 1
            with pytest.raises(ValueError, match="those that were"):
                col.unsealed(bytes(broken))
    for data in (b"", b"x", b"\x00" * 4 + b"more"):
        with pytest.raises(ValueError, match=r"not those|not in|nothing|Corrupt|decompress"):
            Part((0, 0), data)


@pytest.mark.parametrize(("place", "what"), [(4, "payload"), (-1, "payload"), (30, "payload")])
def test_a_damaged_payload_is_named_by_every_reader(db: Database, place: int, what: str) -> None:
    run_id = saved(db)
    flip(db, what, place)
    named = rf"run {run_id}: part 0 of shard 1 \(rows 4 to 7\) cannot be read.*resume {run_id}`"
    readers = (
        lambda: list(results.iter_items(db, run_id)),
        lambda: list(results.iter_items(db, run_id, item_ids=["id-5"])),
        lambda: list(results.iter_attributions(db, run_id)),
        lambda: list(results.iter_mentions(db, run_id)),
        lambda: list(results.iter_answers(db, run_id)),
        lambda: list(results.iter_scores(db, run_id)),
        lambda: list(iter_pairs(db, run_id, run_id)),
        lambda: list(explained_rows(db, run_id)),
        lambda: noteworthy.strongest(db, run_id, 99),
        lambda: noteworthy.wrong(db, run_id, 99),
    )
    for read in readers:
        with pytest.raises(DamagedRowError, match=named):
            read()
    with pytest.raises(DamagedRowError, match=named):
        run_totals.items_of(db, run_id, ["names"], 99)
    # what needs nothing of that part does not mind
    assert [one.item_id for one in results.iter_items(db, run_id, item_ids=["id-9"])] == ["id-9"]
    assert results.accuracy(db, run_id) == (6, 12)


@pytest.mark.parametrize("what", ["payload", "summary", "ids"])
def test_who_spares_damaged_parts_loses_their_items_only(db: Database, what: str) -> None:
    run_id = saved(db)
    assert damaged(db, run_id) == []
    flip(db, what)
    [found] = damaged(db, run_id)
    assert (found.index, found.start, found.stop) == (1, 4, 8)
    assert str(found) == "shard 1 (rows 4 to 7): part 0 (rows 4 to 7) is damaged"
    left = {f"id-{row}" for row in (0, 1, 2, 3, 8, 9, 10, 11)}
    with parts.sparing():
        if what == "payload":
            assert {one.item_id for one in results.iter_items(db, run_id)} == left
            assert set(noteworthy.strongest(db, run_id, 99)) == left
        if what == "summary":
            assert results.accuracy(db, run_id) == (4, 8)
        if what == "ids":
            some = results.iter_items(db, run_id, item_ids=["id-9", *(f"id-{n}" for n in range(9))])
            assert {one.item_id for one in some} == left - {"id-10", "id-11"}
    with pytest.raises(DamagedRowError):
        results.accuracy(db, run_id) if what == "summary" else [
            *results.iter_items(db, run_id, item_ids=[f"id-{n}" for n in range(12)])
        ]


def test_a_part_in_an_unknown_layout_is_read_by_nobody(db: Database) -> None:
    run_id = saved(db)
    with db.begin() as connection:
        connection.execute(text("UPDATE result_part SET format = 'arrow-2' WHERE shard = 2"))
    readers = (
        lambda: list(results.iter_items(db, run_id)),
        lambda: list(results.iter_items(db, run_id, item_ids=["id-9"])),
        lambda: results.accuracy(db, run_id),
        lambda: list(parts.hashes(db, run_id)),
    )
    for read in readers:
        with pytest.raises(DatabaseError, match="layout 'arrow-2'"):
            read()
    with parts.sparing():
        assert len(list(results.iter_items(db, run_id))) == 8
        assert results.accuracy(db, run_id) == (4, 8)
    [found] = damaged(db, run_id)
    assert found.index == 2 and "layout 'arrow-2'" in found.what
    assert shards.redrive(db, run_id) == 1


def test_a_shard_with_a_damaged_part_is_done_again_and_whole(db: Database) -> None:
    run_id = saved(db)
    before = {one.index: one.digest for one in recorded_shards(db, run_id)}
    assert shards.redrive(db, run_id) == 0
    flip(db, "payload")
    assert shards.redrive(db, run_id) == 1
    assert runs.get(db, run_id).state == "running"
    claim = shards.claim(db, run_id, "w", 60)
    assert claim is not None and claim.shard.index == 1
    results.save(db, claim, RESULTS[1])
    assert runs.finalise(db, run_id)
    assert damaged(db, run_id) == []
    assert len(list(results.iter_attributions(db, run_id))) == 24
    assert {one.index: one.digest for one in recorded_shards(db, run_id)} == before
    assert shards.retry_failed(db, run_id) == 0


def long_result(shard: Shard) -> ShardResult:
    """A shard of a few megabytes that do not compress."""
    random = np.random.default_rng(shard.index)
    outcomes = [
        make_outcome(row, text=random.bytes(500_000).decode("latin-1")) for row in range(4, 8)
    ]
    made = make_result(shard)
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(make_attribution(one, text=one.text) for one in outcomes),
        failures=(),
        mentions=(),
        aggregate=made.aggregate,
        seconds=1.0,
    )


def test_a_full_disk_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        run_id = runs.create(db, make_plan(), make_shards())
        first = shards.claim(db, run_id, "w", 600, 0)
        results.save(db, first, RESULTS[0])
        second = shards.claim(db, run_id, "w", 600, 1)
        with db.engine.connect() as connection:  # the pool's only one
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count = {pages + 100}"))
        with pytest.raises(DatabaseError, match="full"):
            results.save(db, second, long_result(second.shard))
        found = [one.item_id for one in results.iter_items(db, run_id)]
        assert found == [f"id-{row}" for row in range(4)]
        assert damaged(db, run_id) == []
        one, other, _ = recorded_shards(db, run_id)
        assert (one.state, other.state, other.explained) == ("done", "running", 0)
        with db.engine.connect() as connection:
            connection.execute(text("PRAGMA max_page_count = 1000000"))
        results.save(db, second, long_result(second.shard))
        assert len(list(results.iter_items(db, run_id))) == 8
