"""The tables of the store and the names of metrics, from their definitions."""

from typing import Any

from markdown_text import code, table
from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql

from transexplain.reports.run_metrics import METRICS
from transexplain.store import schema
from transexplain.store.views import VIEWS


def tables() -> str:
    """A section for each table: columns, types, keys and meanings."""
    return "\n\n".join(map(_section, schema.metadata.sorted_tables))


def results() -> str:
    """A section for each table of results, every column with its meaning and unit."""
    return "\n\n".join(
        f"### `{one.name}`\n\n{one.comment}\n\n"
        + table(
            ("column", "type", "meaning"),
            [
                (code(c.name), f"{_kind(c)}{' or NULL' if c.nullable else ''}", c.comment)
                for c in one.columns
            ],
        )
        for one in schema.RESULT_TABLES
    )


def views() -> str:
    """A section for each view, every column with its meaning."""
    return "\n\n".join(
        f"### `{name}`\n\n{view.about}\n\n"
        + table(("column", "meaning"), [(code(c), about) for c, about in view.columns.items()])
        for name, view in VIEWS.items()
    )


def metric_names() -> str:
    """The names that `run_metric` has, with their units."""
    rows = [(code(name), unit, about) for name, (unit, about) in METRICS.items()]
    return table(("name", "unit", "what it is"), rows)


def _kind(column: Column[Any]) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return code(column.type.compile(dialect=dialect).lower())


def _section(one: Table) -> str:
    rows = []
    for column in one.columns:
        to = ", ".join(f"→ `{key.target_fullname}`" for key in column.foreign_keys)
        key = "primary key" if column.primary_key else ""
        about = "; ".join(filter(None, (key, to, column.comment)))
        rows.append((code(column.name), _kind(column), about))
    columns = table(("column", "type in PostgreSQL", "remarks"), rows)
    return f"## `{one.name}`\n\n{one.comment}\n\n{columns}"
