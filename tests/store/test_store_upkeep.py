"""Vacuum, and backups that were restored: the runs are there and go on."""

import os
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from store_samples import claimable, claimed, make_result, make_shards, same, start, work

from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.store import readers, results, revisions, runs, shards, upkeep
from transexplain.store.database import Database
from transexplain.store.revisions import open_database


def half_done(db: Database) -> str:
    """A run with one shard saved, one in hand and one queued."""
    run_id = start(db)
    first = claimed(db, run_id, worker="w1")
    results.save(db, first, make_result(first.shard))
    assert shards.claim(db, run_id, "w1", 600) is not None
    return run_id


def finish_restored(db: Database, run_id: str) -> None:
    """What `resume` does once the worker in hand is known to be gone, down to the last item."""
    assert runs.get(db, run_id).shards["running"] == 1
    assert [one.item_id for one in readers.iter_items(db, run_id)] == [f"id-{n}" for n in range(4)]
    assert claimable(db, run_id) == [2]
    assert shards.expire(db, run_id, "w1") == 1
    assert sorted(claimable(db, run_id)) == [1, 2]
    work(db, run_id)
    assert runs.get(db, run_id).state == "done"
    wanted = [one for shard in make_shards() for one in make_result(shard).attributions]
    assert all(map(same, readers.iter_attributions(db, run_id), wanted))


def test_vacuum_keeps_the_rows_and_gives_back_the_room(db: Database) -> None:
    run_id = half_done(db)
    change = text("UPDATE item SET source = :source")
    for source in (os.urandom(1_000_000).hex(), None):
        full = upkeep.size(db)
        with db.begin() as connection:
            connection.execute(change, {"source": source})
    upkeep.vacuum(db)
    assert upkeep.size(db) < full - 1_000_000
    assert [one.item_id for one in readers.iter_items(db, run_id)] == [f"id-{n}" for n in range(4)]
    revisions.check(db)


def test_vacuum_of_a_file_that_someone_writes_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("transexplain.store.database._BUSY_SECONDS", 0.1)
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        half_done(db)
        with db.begin(), pytest.raises(DatabaseError, match=r"locked.*when nobody writes"):
            upkeep.vacuum(db)
        upkeep.vacuum(db)


def test_a_copy_of_sqlite_made_while_workers_write_is_restored(tmp_path: Path) -> None:
    file, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with open_database(f"sqlite:///{file}", upgrade=True) as db:
        run_id = half_done(db)
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                claim = claimed(db, start(db))
                results.save(db, claim, make_result(claim.shard))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert upkeep.backup(db, copy) == copy.stat().st_size > 0
        finally:
            stop.set()
            writer.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "store.db"]
    file.unlink()  # the disaster
    copy.rename(file)
    with open_database(f"sqlite:///{file}") as db:
        for one in runs.list_runs(db):  # whole transactions only
            assert len(list(readers.iter_items(db, one.id))) in (0, 4)
        finish_restored(db, run_id)
        with db.read() as connection:
            assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"


def test_a_backup_overwrites_nothing_and_leaves_no_half(tmp_path: Path) -> None:
    file, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with open_database(f"sqlite:///{file}", upgrade=True) as db:
        copy.write_text("mine")
        with pytest.raises(ConfigurationError, match=r"copy.db exists already"):
            upkeep.backup(db, copy)
        assert copy.read_text() == "mine"
        with pytest.raises(DatabaseError, match=r"absent/copy.db"):
            upkeep.backup(db, tmp_path / "absent" / "copy.db")
    half_written = bytearray(file.read_bytes())
    half_written[4096 * 3 : 4096 * 9] = os.urandom(4096 * 6)
    file.write_bytes(half_written)
    with (
        Database(f"sqlite:///{file}") as db,
        pytest.raises(DatabaseError, match=r"damaged|malformed"),
    ):
        upkeep.backup(db, tmp_path / "other.db")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("other")]


def tool(name: str) -> str:
    """A program of PostgreSQL: of the newest version here, else on the PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4])
    )
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return found


def program(name: str, *arguments: str) -> str:
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True, check=False)
    if "server version mismatch" in done.stderr:
        pytest.skip(f"{name} is older than the server: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.postgres
@pytest.mark.exhaustive
def test_a_dump_of_postgresql_is_restored_with_its_partitions(postgres_url: str, tmp_path) -> None:
    plain = postgres_url.replace("+psycopg", "")
    dump = tmp_path / "store.dump"
    other = f"{plain}_restored"
    with open_database(postgres_url, upgrade=True) as db:
        upkeep.maintain(db, ahead=1)
        run_id = half_done(db)
        with pytest.raises(ConfigurationError, match="pg_dump"):
            upkeep.backup(db, tmp_path / "copy.db")
        with db.read() as connection:
            months = upkeep.months(connection)
        program("pg_dump", "--format=custom", f"--file={dump}", plain)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{other.rpartition("/")[2]}"'.encode())
    try:
        program("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={other}", str(dump))
        with open_database(other) as db:
            revisions.check(db)
            with db.read() as connection:
                assert upkeep.months(connection) == months
            finish_restored(db, run_id)
            assert upkeep.maintain(db, ahead=1) == []
            assert upkeep.maintain(db, ahead=2) == [months[-1].next]
            with db.begin() as connection:
                connection.execute(text("UPDATE run SET finished = 0"))
            assert [one.id for one in upkeep.prune(db, upkeep.Age(1.0)).runs] == [run_id]
    finally:
        with psycopg.connect(plain, autocommit=True) as connection:
            name = other.rpartition("/")[2]
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def test_the_size_of_a_file_counts_its_log(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with open_database(f"sqlite:///{file}", upgrade=True) as db:
        half_done(db)
        log = file.with_name("store.db-wal").stat().st_size
        assert log > 0
        assert upkeep.size(db) == file.stat().st_size + log
    with open_database(f"sqlite:///file:{file}?uri=true") as db:
        assert upkeep.size(db) == file.stat().st_size
        with sqlite3.connect(file) as check:
            assert check.execute("SELECT count(*) FROM run").fetchone() == (1,)
        check.close()
