"""Parquet files of a sink: written before the commit, read as the store is, swept and mended."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow.parquet as pq
import pytest
import s3fs
from faulty_s3 import BUCKET, FaultyS3
from sqlalchemy import func, select, update
from store_samples import make_plan, make_result, make_shards, same, work

from transexplain.errors import DamagedRowError, FencedError, ObjectStoreError
from transexplain.files import remote_files
from transexplain.reports.sections.item_fates import unreadable
from transexplain.store import (
    blocks,
    readers,
    results,
    run_totals,
    runs,
    shards,
    sink_files,
    upkeep,
)
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.runs import recorded_shards
from transexplain.store.schema import attribution, run, shard
from transexplain.store.shard_digests import damaged
from transexplain.types.plans import Keep, Sink

EXHAUSTIVE = [pytest.param(how, marks=pytest.mark.exhaustive) for how in ("gone", "cut")]
RESULTS = [make_result(one, failing=frozenset({one.start})) for one in make_shards()]


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.exhaustive)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where sinks are: a local folder, and an S3 server."""
    if request.param == "file":
        return str(tmp_path / "a lake" / "run-{run}")
    request.getfixturevalue("s3")
    return f"s3://{BUCKET}/sinks/run-{{run}}/"


def created(db: Database, place: str | None, keep: Keep = "sink", **changes: Any) -> str:
    sink = None if place is None else Sink(url=place, keep=keep)
    return runs.create(db, make_plan(sink=sink, **changes), make_shards())


def save(db: Database, run_id: str, index: int) -> None:
    claim = shards.claim(db, run_id, "w", 60, index)
    results.save(db, claim, RESULTS[index])


def saved(db: Database, place: str | None, keep: Keep = "sink", **changes: Any) -> str:
    run_id = created(db, place, keep, **changes)
    for index in range(3):
        save(db, run_id, index)
    assert runs.finalise(db, run_id)
    return run_id


def names(db: Database, run_id: str) -> list[str]:
    """What lies in the folder of a run."""
    folder = sink_files.run_folder(db, run_id)
    return sorted(one.url.rpartition("/")[2] for one in remote_files.under(folder))


def committed(db: Database, run_id: str) -> list[str]:
    return [one.name for one in sink_files.files_of(db, run_id)]


def test_files_alone_give_what_the_store_gives(db: Database, place: str) -> None:
    plain, both, alone = saved(db, None), saved(db, place, "both"), saved(db, place)
    for one in (both, alone):
        assert list(readers.iter_items(db, one)) == list(readers.iter_items(db, plain))
        pairs = zip(
            readers.iter_attributions(db, one), readers.iter_attributions(db, plain), strict=True
        )
        assert all(same(a, b) for a, b in pairs)
        assert list(readers.iter_mentions(db, one)) == list(readers.iter_mentions(db, plain))
        assert list(readers.iter_answers(db, one)) == list(readers.iter_answers(db, plain))
        few = readers.iter_items(db, one, item_ids=["id-9", "id-2", "nobody"])
        assert [item.item_id for item in few] == ["id-2", "id-9"]
        for total, argument in (
            (run_totals.items_of, (["names"], 99)),
            (run_totals.conservation, (0.1,)),
        ):
            assert total(db, one, *argument) == total(db, plain, *argument)
        assert damaged(db, one) == []
    with db.read() as connection:
        counts = select(attribution.c.run_id, func.count()).group_by(attribution.c.run_id)
        held = {row[0]: row[1] for row in connection.execute(counts)}
    assert held == {plain: 18, both: 18}


def test_files_and_manifest_are_plain(db: Database, tmp_path: Path) -> None:
    run_id = saved(db, str(tmp_path / "run-{run}"))
    folder = tmp_path / f"run-{run_id}"
    listed = json.loads((folder / "_manifest").read_text())
    assert [one["name"] for one in listed["files"]] == committed(db, run_id)
    assert names(db, run_id) == ["_manifest", *committed(db, run_id)]
    assert [listed[key] for key in ("run", "state", "items", "rows")] == [run_id, "done", 9, 18]
    table = pq.read_table(folder / "shard-000001-token-1.parquet")
    types = {column["name"]: column["type"] for column in listed["columns"]}
    assert types == {column.name: str(column.type) for column in table.schema}
    row = table.to_pylist()[0]
    [first, *_] = readers.iter_attributions(db, run_id, item_ids=["id-5"])
    assert (row["item_id"], row["idx"], row["target"]) == ("id-5", 5, "predicted")
    assert row["logit"] == first.logit
    assert row["relevance"] == first.relevance.tolist()
    assert row["starts"] == [token.start for token in first.features]
    assert json.loads(row["pieces"])["0"] == "[CLS]" == first.features[0].text
    assert row["ledger_total"] == first.ledger.total
    assert row["mentions"][0]["entity"] == "Ann"
    columns = "item_id, target, ledger_gap, len(mentions)"
    query = f"SELECT {columns} FROM read_parquet(?) ORDER BY idx, target"
    found = duckdb.sql(query, params=[str(folder / "*.parquet")]).fetchall()
    assert len(found) == 18
    assert found[0][:2] == ("id-1", "contrast:positive-negative")
    assert found[0][2] is None and found[1][3] == 1


def test_of_two_tokens_only_the_committed_one_has_a_file(db: Database, place: str) -> None:
    run_id = created(db, place)
    late = shards.claim(db, run_id, "late", 60, 0)
    shards.expire(db, run_id, "late")
    newer = shards.claim(db, run_id, "newer", 60, 0)
    assert newer is not None and newer.token == 2
    results.save(db, newer, RESULTS[0])
    with pytest.raises(FencedError, match="1 is dropped"):
        results.save(db, late, RESULTS[0])
    assert names(db, run_id) == ["shard-000000-token-2.parquet"]
    # lost between the look at the lease and the commit: the file is there, and deleted again
    with mock.patch.object(results, "_check_held"), pytest.raises(FencedError):
        results.save(db, late, RESULTS[0])
    assert names(db, run_id) == ["shard-000000-token-2.parquet"] == committed(db, run_id)


class Killed(BaseException):
    """Ends a process in a test."""


def killed_before_commit(db: Database, run_id: str, index: int) -> None:
    claim = shards.claim(db, run_id, "killed", 60, index)
    with mock.patch.object(results, "_commit", side_effect=Killed), pytest.raises(Killed):
        results.save(db, claim, RESULTS[index])
    shards.expire(db, run_id, "killed")


def test_who_dies_between_upload_and_commit_leaves_garbage_alone(db: Database, place: str) -> None:
    run_id = created(db, place)
    save(db, run_id, 0)
    killed_before_commit(db, run_id, 1)
    assert committed(db, run_id) == ["shard-000000-token-1.parquet"]
    assert names(db, run_id) == ["shard-000000-token-1.parquet", "shard-000001-token-1.parquet"]
    assert [one.index for one in recorded_shards(db, run_id) if one.digest] == [0]
    claim = shards.claim(db, run_id, "w", 60, 2)  # under way: its file is nobody's yet
    with mock.patch.object(results, "_commit"):
        results.save(db, claim, RESULTS[2])
    assert upkeep.stray_files(db) == ([], {}), "whoever holds the token might still commit"
    other = shards.claim(db, run_id, "w", 60, 1)
    stray, away = upkeep.stray_files(db)
    assert [url.rpartition("/")[2] for url in stray] == ["shard-000001-token-1.parquet"]
    assert away == {}
    assert upkeep.prune(db, upkeep.Age(3600.0)).files == 1
    assert names(db, run_id) == ["shard-000000-token-1.parquet", "shard-000002-token-1.parquet"]
    results.save(db, claim, RESULTS[2])
    shards.give_back(db, other)
    killed_before_commit(db, run_id, 1)
    save(db, run_id, 1)
    assert runs.finalise(db, run_id)
    assert names(db, run_id) == ["_manifest", *committed(db, run_id)]
    assert committed(db, run_id)[1] == "shard-000001-token-4.parquet"
    assert len(list(readers.iter_attributions(db, run_id))) == 18


@pytest.mark.parametrize("keep", ["both", "sink"])
@pytest.mark.parametrize("how", ["changed", *EXHAUSTIVE])
def test_a_damaged_file_is_named_and_mended(db: Database, place: str, how: str, keep: Keep) -> None:
    run_id = saved(db, place, keep)
    before = {one.index: one.digest for one in recorded_shards(db, run_id)}
    assert shards.redrive(db, run_id) == 0
    file = sink_files.files_of(db, run_id)[1]
    content = bytearray(remote_files.read(file.url))
    content[len(content) // 2] ^= 1
    if how == "gone":
        remote_files.delete(file.url)
    else:
        remote_files.write(file.url, bytes(content) if how == "changed" else bytes(content[:-9]))
    sink_files._content.cache_clear()
    [(index, what)] = sink_files.faults(db, run_id).items()
    assert index == 1 and file.url in what
    if keep == "sink":
        named = (
            rf"a row of shard 1 \(rows 5 to 7 of the data\) cannot be read: its file .*{file.name}"
        )
        with pytest.raises(DamagedRowError, match=f"{named}.*resume {run_id}"):
            list(readers.iter_attributions(db, run_id))
        with blocks.sparing():
            assert len(list(readers.iter_attributions(db, run_id))) == 12
        assert [one.index for one in damaged(db, run_id)] == [1]
        assert shards.redrive(db, run_id) == 1
        assert "_manifest" not in names(db, run_id), "the run goes on"
        save(db, run_id, 1)
        assert runs.finalise(db, run_id)
    else:
        assert len(list(readers.iter_attributions(db, run_id))) == 18
        assert damaged(db, run_id) == []
        assert shards.redrive(db, run_id) == 0, "the file is written again, the run stays over"
        assert runs.get(db, run_id).state == "done"
    assert sink_files.faults(db, run_id) == {}
    assert names(db, run_id) == ["_manifest", *committed(db, run_id)]
    assert {one.index: one.digest for one in recorded_shards(db, run_id)} == before
    assert len(list(readers.iter_attributions(db, run_id))) == 18


@contextmanager
def gone(db: Database, run_id: str, how: str, s3: FaultyS3) -> Iterator[None]:
    """A run's files are where they were, and cannot be seen in here."""
    there = {"no bucket": "s3://nowhere-at-all/x", "empty": f"s3://{BUCKET}/sinks/elsewhere"}
    with db.read() as connection:
        sink = connection.execute(select(run.c.sink).where(run.c.id == run_id)).scalar_one()
    moved = {**sink, "url": there.get(how, sink["url"])}
    s3.refusal = "InvalidAccessKeyId" if how == "refused" else ""
    endpoint = "http://127.0.0.1:9" if how == "no server" else s3.endpoint
    sink_files._content.cache_clear()
    with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": endpoint}):
        s3fs.S3FileSystem.clear_instance_cache()
        for url in (moved, sink):
            with db.begin() as connection:
                connection.execute(update(run).where(run.c.id == run_id).values(sink=url))
            if url is moved:
                yield
    s3.refusal = ""
    s3fs.S3FileSystem.clear_instance_cache()
    sink_files._content.cache_clear()


@pytest.mark.parametrize("how", ["no bucket", "empty", "refused", "no server"])
@pytest.mark.parametrize("keep", ["both", "sink"])
@pytest.mark.exhaustive
def test_a_store_that_is_away_un_finishes_nothing(db, s3, how: str, keep: Keep) -> None:
    run_id = saved(db, f"s3://{BUCKET}/sinks/run-{{run}}", keep)
    before = recorded_shards(db, run_id)
    with gone(db, run_id, how, s3):
        for again in (shards.redrive, shards.retry_failed):
            with pytest.raises(ObjectStoreError, match=r"endpoint|ENDPOINT|credentials|bucket"):
                again(db, run_id)
        assert recorded_shards(db, run_id) == before
        assert runs.get(db, run_id).state == "done"
        if keep == "both":
            assert damaged(db, run_id) == []
            found = unreadable(db, run_id)
            assert found is not None and found.files and not found.parts
        else:
            with pytest.raises(ObjectStoreError):
                damaged(db, run_id)
    assert damaged(db, run_id) == [] and unreadable(db, run_id) is None
    assert shards.redrive(db, run_id) == 0


@pytest.mark.parametrize("keep", ["both", "sink"])
def test_files_that_are_said_to_be_lost_are_written_again(db, tmp_path, keep: Keep) -> None:
    run_id = saved(db, str(tmp_path / "lake-{run}"), keep)
    shutil.rmtree(tmp_path / f"lake-{run_id}")
    with pytest.raises(ObjectStoreError, match="--files-lost"):
        shards.redrive(db, run_id)
    assert shards.redrive(db, run_id, files_lost=True) == (3 if keep == "sink" else 0)
    if keep == "sink":
        for index in range(3):
            save(db, run_id, index)
        assert runs.finalise(db, run_id)
    assert runs.get(db, run_id).state == "done"
    assert sink_files.faults(db, run_id) == {} and damaged(db, run_id) == []
    assert len(list(readers.iter_attributions(db, run_id))) == 18
    for file in (tmp_path / f"lake-{run_id}").glob("*.parquet"):
        file.unlink()
    assert sorted(sink_files.faults(db, run_id)) == [0, 1, 2], "the manifest is at the place"


def old(db: Database, run_id: str) -> None:
    with db.begin() as connection:
        moment = DatabaseTime() - 90 * 86_400.0
        connection.execute(update(run).where(run.c.id == run_id).values(finished=moment))


def test_prune_deletes_the_files_of_a_run_and_no_others(db: Database, place: str) -> None:
    run_id, young = saved(db, place, name="old"), saved(db, place)
    folder = sink_files.run_folder(db, run_id)
    remote_files.write(f"{folder}/notes.txt", b"of a person")
    kept = names(db, young)
    old(db, run_id)
    assert [one.id for one in upkeep.prune(db, upkeep.Age(86_400.0)).runs] == [run_id]
    assert [one.url for one in remote_files.under(folder or "")] == [f"{folder}/notes.txt"]
    assert names(db, young) == kept
    assert upkeep.stray_files(db) == ([], {})


def test_a_manifest_that_was_not_written_is_written_by_prune(db, place: str, caplog) -> None:
    away = ObjectStoreError("s3://x is away")
    with mock.patch.object(sink_files, "tidy", side_effect=away):
        run_id = saved(db, place)
    assert f"run {run_id}: _manifest is not written (s3://x is away)" in caplog.text
    assert "_manifest" not in names(db, run_id)
    upkeep.prune(db, upkeep.Age(86_400.0))
    assert "_manifest" in names(db, run_id)


def test_cancelled_runs_list_what_was_saved(db: Database, place: str) -> None:
    run_id = created(db, place)
    save(db, run_id, 2)
    assert runs.cancel(db, run_id)
    assert names(db, run_id) == ["_manifest", "shard-000002-token-1.parquet"]
    listed = json.loads(sink_files.manifest_of(db, run_id) or b"")
    assert (listed["state"], listed["items"]) == ("cancelled", 3)


def test_where_every_item_failed_there_is_no_file(db: Database, tmp_path: Path) -> None:
    run_id = created(db, str(tmp_path / "{run}"))
    work(db, run_id, failing=frozenset(range(12)))
    assert names(db, run_id) == ["_manifest"]
    assert shards.redrive(db, run_id) == 0


@pytest.mark.exhaustive
def test_expired_credentials_lose_nothing(db: Database, s3: FaultyS3) -> None:
    run_id = created(db, f"s3://{BUCKET}/sinks/{{run}}")
    save(db, run_id, 0)
    s3.refusal = "ExpiredToken"
    claim = shards.claim(db, run_id, "w", 60, 1)
    with pytest.raises(ObjectStoreError, match=r"sinks/.*shard-000001-token-1.*have expired"):
        results.save(db, claim, RESULTS[1])
    assert [one.state for one in recorded_shards(db, run_id)] == ["done", "running", "queued"]
    with pytest.raises(ObjectStoreError, match="have expired"):
        list(readers.iter_attributions(db, run_id))
    with pytest.raises(ObjectStoreError, match="have expired"):
        shards.redrive(db, run_id)
    old(db, run_id)
    s3.refusal = ""
    results.save(db, claim, RESULTS[1])
    save(db, run_id, 2)
    assert runs.finalise(db, run_id)
    old(db, run_id)
    s3.refusal = "ExpiredToken"
    pruned = upkeep.prune(db, upkeep.Age(86_400.0))
    assert (pruned.runs, len(pruned.kept)) == ([], 1) and "have expired" in pruned.kept[0]
    s3.refusal = ""
    assert len(list(readers.iter_attributions(db, run_id))) == 18
    assert [one.id for one in upkeep.prune(db, upkeep.Age(86_400.0)).runs] == [run_id]


@pytest.mark.exhaustive
def test_faults_of_the_store_lose_and_double_nothing(db: Database, s3: FaultyS3) -> None:
    many = make_shards(rows=240)
    plan = make_plan(rows=240, sink=Sink(url=f"s3://{BUCKET}/sinks/{{run}}", keep="sink"))
    run_id = runs.create(db, plan, many)
    s3.rate = 0.05
    tries = 0
    while (claim := shards.claim(db, run_id, "w", 60)) is not None:
        tries += 1
        try:
            results.save(db, claim, make_result(claim.shard))
        except ObjectStoreError as error:
            shards.fail(db, claim, str(error))
    assert runs.progress(db, run_id).states["done"] == 60
    found = [one.item_id for one in readers.iter_items(db, run_id)]
    assert found == [f"id-{row}" for row in range(240)]
    s3.rate = 0.0
    runs.finalise(db, run_id)
    sink_files.close(db, run_id)
    assert len(s3.failed) >= 3 and tries >= 60
    assert names(db, run_id) == ["_manifest", *sorted(committed(db, run_id))]
    with db.read() as connection:
        tokens = connection.execute(select(shard.c.index, shard.c.token)).all()
    assert {(one.shard, one.token) for one in sink_files.files_of(db, run_id)} == set(tokens)
    folder = sink_files.run_folder(db, run_id)
    rows = [
        row
        for one in sink_files.files_of(db, run_id)
        for row in pq.read_table(f"{folder}/{one.name}", columns=["item_id"])["item_id"].to_pylist()
    ]
    assert sorted(rows) == sorted(found * 2), "two targets each"
