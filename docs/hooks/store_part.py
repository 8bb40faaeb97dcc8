"""The tables of the store and the names of metrics, from their definitions."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from markdown_text import code, table
from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql

from transexplain.reports.run_metrics import METRICS
from transexplain.store import schema

_COLUMN = re.compile(r'^\s*Column\("(\w+)".*?\),?\s*#\s*(.+)$')
_TABLE = re.compile(r"^(\w+) = Table\($")


def tables() -> str:
    """A section for each table: columns, types, keys, and the remarks of the definition."""
    remarks = dict(_remarks())
    return "\n\n".join(_section(one, remarks) for one in schema.metadata.sorted_tables)


def results() -> str:
    """A section for each table of results, every column with its meaning and unit."""
    return "\n\n".join(
        f"### `{one.name}`\n\n{one.info['about']}\n\n"
        + table(
            ("column", "type", "meaning"),
            [
                (code(c.name), f"{_kind(c)}{' or NULL' if c.nullable else ''}", c.info["about"])
                for c in one.columns
            ],
        )
        for one in schema.RESULT_TABLES
    )


def metric_names() -> str:
    """The names that `run_metric` has, with their units."""
    rows = [(code(name), unit, about) for name, (unit, about) in METRICS.items()]
    return table(("name", "unit", "what it is"), rows)


def _kind(column: Column[Any]) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return code(column.type.compile(dialect=dialect).lower())


def _remarks() -> Iterator[tuple[tuple[str, str], str]]:
    """(table, column) -> the comment behind a column in the source."""
    current = ""
    for line in inspect.getsource(schema).splitlines():
        if found := _TABLE.match(line):
            current = found[1]
        elif found := _COLUMN.match(line):
            yield (current, found[1]), found[2]


def _section(one: Table, remarks: dict[tuple[str, str], str]) -> str:
    attribute = next((name for name, value in vars(schema).items() if value is one), "")
    rows = []
    for column in one.columns:
        to = ", ".join(f"→ `{key.target_fullname}`" for key in column.foreign_keys)
        key = "primary key" if column.primary_key else ""
        null = "" if column.nullable else "not null"
        remark = column.info.get("about") or remarks.get((attribute, column.name), "")
        about = "; ".join(filter(None, (key, to, null if not key else "", remark)))
        rows.append((code(column.name), _kind(column), about))
    return f"## `{one.name}`\n\n{table(('column', 'type in PostgreSQL', 'remarks'), rows)}"
