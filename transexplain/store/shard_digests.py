"""A digest of everything a shard saved: taken at the commit, and taken again from the tables.

It is the sha256 over one line for every row of `item`, `attribution`, `mention` and `score`, each
table by its key, and one for the aggregate. A line is the row as a JSON object in the order of
its columns' names, without the run's id and without what is NULL, so that a column which a later
revision adds changes no digest; bytes are written in hexadecimal.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Select, Table, select

from transexplain.store.database import Database, plan_for_any_run
from transexplain.store.rows import ResultRows
from transexplain.store.schema import attribution, item, mention, score, shard_aggregate

_TABLES: tuple[tuple[Table, tuple[str, ...]], ...] = (
    (item, ("index",)),
    (attribution, ("item", "ordinal")),
    (mention, ("item", "ordinal")),
    (score, ("item", "ordinal")),
)


def digest_of(rows: ResultRows, aggregate: Mapping[str, Any]) -> str:
    """The digest of what is about to be written."""
    digest = _Digest()
    given = (rows.items, rows.attributions, rows.mentions, rows.scores)
    for (table, key), some in zip(_TABLES, given, strict=True):
        ordered = sorted(some, key=lambda row: tuple(row[name] for name in key))
        digest.add(table.name, ordered)
    digest.add(shard_aggregate.name, [{"payload": dict(aggregate)}])
    return digest.hexdigest()


def stored_digest(db: Database, run_id: str, index: int, start: int, stop: int) -> str:
    """The digest of what the tables hold of one shard, the rows `start` to `stop` of the data.

    Raises ValueError where a row cannot be read back.
    """
    digest = _Digest()
    with db.read() as connection:
        plan_for_any_run(connection)
        for table, key in _TABLES:
            row = table.c[key[0]]
            query = select(table).where(table.c.run_id == run_id, row >= start, row < stop)
            digest.add(table.name, _rows(connection, query.order_by(*(table.c[k] for k in key))))
        payload = select(shard_aggregate.c.payload).where(
            shard_aggregate.c.run_id == run_id, shard_aggregate.c.shard == index
        )
        digest.add(shard_aggregate.name, _rows(connection, payload))
    return digest.hexdigest()


def _rows(connection: Connection, query: Select[Any]) -> Iterable[Mapping[str, Any]]:
    return (dict(row) for row in connection.execute(query).mappings())


class _Digest:
    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            plain = {
                name: _plain(row[name])
                for name in sorted(row)
                if name != "run_id" and row[name] is not None
            }
            text = json.dumps([table, plain], separators=(",", ":"))
            self._sha256.update(f"{text}\n".encode())

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, float):
        return value + 0.0  # SQLite keeps no sign of a zero
    return value
