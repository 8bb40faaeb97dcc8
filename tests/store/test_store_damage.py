"""Rows that do not hold what this program writes there are a DatabaseError, whatever they hold."""

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from old_rows import save_as_rows
from sqlalchemy.dialects import sqlite
from store_samples import make_plan, make_result, make_shards

from transexplain.errors import DamagedRowError, DatabaseError
from transexplain.store import results, runs
from transexplain.store.codec import EncodedRelevance, decode, unpack
from transexplain.store.columns import Doubles
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import attribution
from transexplain.store.shards import claim

GRID = [2, 3, 8, 12, 1, 0, 0, 1, 1]
TOKENS = {"text": ["a"], "gap": [0], "length": [1], "word": [0], "special": []}


def packed(document: object) -> bytes:
    return zlib.compress(json.dumps(document).encode())


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no json"),
        packed(None),
        packed([]),
        packed(GRID[:8]),
        packed([*GRID, 1]),
        packed([0, *GRID[1:]]),
        packed([2.5, *GRID[1:]]),
        packed({}),
        packed({**TOKENS, "text": [None]}),
        packed({**TOKENS, "text": ["a", "b"]}),
        packed({**TOKENS, "gap": ["x"]}),
        packed({**TOKENS, "word": [1.5]}),
        zlib.compress(b"[" * 100_000),
    ],
    ids=range(15),
)
def test_positions(row: bytes) -> None:
    with pytest.raises(DatabaseError, match="positions of an item that cannot be read"):
        unpack(row)


@pytest.mark.parametrize(
    ("blob", "scale", "dtype"),
    [
        (b"x", 1.0, "float16"),
        (b"xx", 1.0, "float32"),
        (b"xxxx", 1.0, "float64"),
        (b"\x00\x7e", 1.0, "float16"),
        (b"\x00\x3c", float("inf"), "float16"),
        (b"\x00\x3c", 1e300, "float16"),
        (np.float32(np.nan).tobytes(), 1.0, "float32"),
        (b"\x00\x00", float("inf"), "float16"),
    ],
    ids=range(8),
)
def test_relevance(blob: bytes, scale: float, dtype: str) -> None:
    with pytest.raises(DatabaseError, match="relevance that cannot be read"):
        decode(EncodedRelevance(blob=blob, scale=scale, dtype=dtype))


def test_numbers() -> None:
    with pytest.raises(DatabaseError, match="a list of numbers that cannot be read"):
        Doubles().process_result_value(b"seven..", sqlite.dialect())


def test_relevance_of_another_length_than_the_positions(db: Database) -> None:
    run_id = runs.create(db, make_plan(4), make_shards(4))
    held = claim(db, run_id, "w", 60.0)
    assert held is not None
    save_as_rows(db, held, make_result(held.shard))
    with db.begin() as connection:
        connection.execute(attribution.update().values(relevance=b"\x00" * 4, dtype="float32"))
    with pytest.raises(DatabaseError, match=r"relevance that cannot be read: 1 values for \d+"):
        list(results.iter_attributions(db, run_id))


def test_attributions_of_no_item(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_database(f"sqlite:///{path}", upgrade=True) as db:
        run_id = runs.create(db, make_plan(rows=4), make_shards(4))
        held = claim(db, run_id, "w", 60.0)
        assert held is not None
        save_as_rows(db, held, make_result(held.shard))
        with closing(sqlite3.connect(path)) as by_hand:  # which knows no foreign keys
            by_hand.execute("DELETE FROM item")
            by_hand.commit()
        with pytest.raises(DamagedRowError, match="belong to no item; rows of the table item"):
            results.conservation(db, run_id)
