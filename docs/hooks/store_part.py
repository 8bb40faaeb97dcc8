"""The tables of the store, from their definition."""

import inspect
import re
from collections.abc import Iterator

from markdown_text import code, table
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

from transexplain.store import schema

_COLUMN = re.compile(r'^\s*Column\("(\w+)".*?\),?\s*#\s*(.+)$')
_TABLE = re.compile(r"^(\w+) = Table\($")


def tables() -> str:
    """A section for each table: columns, types, keys, and the remarks of the definition."""
    remarks = dict(_remarks())
    return "\n\n".join(_section(one, remarks) for one in schema.metadata.sorted_tables)


def _remarks() -> Iterator[tuple[tuple[str, str], str]]:
    """(table, column) -> the comment behind a column in the source."""
    current = ""
    for line in inspect.getsource(schema).splitlines():
        if found := _TABLE.match(line):
            current = found[1]
        elif found := _COLUMN.match(line):
            yield (current, found[1]), found[2]


def _section(one: Table, remarks: dict[tuple[str, str], str]) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    attribute = next(name for name, value in vars(schema).items() if value is one)
    rows = []
    for column in one.columns:
        to = ", ".join(f"→ `{key.target_fullname}`" for key in column.foreign_keys)
        key = "primary key" if column.primary_key else ""
        null = "" if column.nullable else "not null"
        remark = remarks.get((attribute, column.name), "")
        kind = column.type.compile(dialect=dialect)
        about = "; ".join(filter(None, (key, to, null if not key else "", remark)))
        rows.append((code(column.name), code(kind), about))
    return f"## `{one.name}`\n\n{table(('column', 'type in PostgreSQL', 'remarks'), rows)}"
