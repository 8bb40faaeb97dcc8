"""Tables for reports: columns from records, written as CSV, Markdown or HTML."""

import csv
import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, partial
from itertools import islice
from types import NoneType
from typing import Any, Generic, Literal, TextIO, TypeVar, get_args, get_origin, get_type_hints

from markupsafe import Markup

from transexplain.reports.phrasing import encodable, markdown_text, spreadsheet_safe

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table."""

    title: str
    cell: Callable[[Row], Any]  #: what it shows of a row; None: nothing
    right: bool = False  #: aligned to the right, where the format can


Columns = Sequence[Column[Row]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One table of an export; its rows are read once."""

    name: str  #: of the file, without its ending
    columns: Columns[Any]
    rows: Iterable[Any]


def write_csv(
    file: TextIO, columns: Columns[Row], rows: Iterable[Row], line_end: str = "\r\n"
) -> None:
    """A table as CSV (RFC 4180): one row per observation, numbers in full.

    A cell that a spreadsheet would compute has an apostrophe before it; NUL and lone surrogates
    become the replacement character.
    """
    writer = csv.writer(file, lineterminator=line_end)
    writer.writerow([_csv_cell(column.title) for column in columns])
    for row in rows:
        writer.writerow([_csv_cell(column.cell(row)) for column in columns])


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, str):
        return spreadsheet_safe(encodable(cell).replace("\0", "\N{REPLACEMENT CHARACTER}"))
    return cell


def markdown_table(
    columns: Columns[Row],
    rows: Iterable[Row],
    *,
    most: int | None = None,
    longest: int | None = None,
) -> Iterator[str]:
    """A table as lines of GitHub-flavoured Markdown; cells are texts and shown literally.

    Args:
        columns: of the table.
        rows: shown in this order.
        most: rows that are shown; None: all.
        longest: characters of a cell; None: any number.
    """
    yield f"| {' | '.join(column.title for column in columns)} |"
    yield f"|{''.join('---:|' if column.right else '---|' for column in columns)}"
    for row in islice(rows, most):
        yield f"| {' | '.join(markdown_cell(column.cell(row), longest) for column in columns)} |"


def markdown_cell(text: str, longest: int | None = None) -> str:
    """A name or message as one cell holds it."""
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return markdown_text(text)


Heading = Markup | str | tuple[Markup | str, str] | None


def headings(*titles: Heading) -> Markup:
    """The head of an HTML table, for templates.

    Args:
        titles: of the columns; with its CSS classes, such as `num`, as a pair. None: no such
            column; "": one whose cells speak for themselves.
    """
    cells = "".join(_heading(title) for title in titles if title is not None)
    return Markup(f"<thead><tr>{cells}</tr></thead>")


def _heading(heading: Markup | str | tuple[Markup | str, str]) -> str:
    title, classes = heading if isinstance(heading, tuple) else (heading, "")
    if not title and not classes:
        return "<td></td>"
    of_class = f' class="{html.escape(classes)}"' if classes else ""
    if not isinstance(title, Markup):  # a blank that does not break stays visible as such
        title = html.escape(title, quote=False).replace("\u00a0", "&nbsp;")
    return f'<th scope="col"{of_class}>{title}</th>'


Way = tuple[str | int, ...]  #: names and places that lead to a value


def record_columns(record: type, place: int | None = None) -> tuple[Column[Any], ...]:
    """The columns of a record (a dataclass); its cells are None where something is missing.

    A pair of numbers becomes two columns, `_low` and `_high`; a nested record becomes
    columns prefixed with its name; what is a collection is left out.

    Args:
        record: type of the rows.
        place: of the record in a row that is a tuple; None: the row itself.
    """
    start: Way = () if place is None else (place,)
    return tuple(
        Column(name, partial(_value, way=(*start, *way))) for name, way in _ways(record).items()
    )


def chosen(columns: Columns[Row], names: str) -> tuple[Column[Row], ...]:
    """The columns of these names, with blanks between, as `title` or `new_title=title`."""
    known = {column.title: column for column in columns}
    pairs = (name.partition("=") for name in names.split())
    return tuple(replace(known[of or title], title=title) for title, _, of in pairs)


@cache
def _ways(record: type) -> Mapping[str, Way]:
    ways: dict[str, Way] = {}
    hints = get_type_hints(record)
    for field in fields(record):
        name, hint = field.name, hints[field.name]
        kept = [argument for argument in get_args(hint) if argument is not NoneType]
        if NoneType in get_args(hint) and len(kept) == 1:  # what may be missing
            hint = kept[0]
        if isinstance(hint, type) and is_dataclass(hint):
            ways |= {f"{name}_{column}": (name, *way) for column, way in _ways(hint).items()}
        elif hint == tuple[float, float]:
            ways |= {f"{name}_low": (name, 0), f"{name}_high": (name, 1)}
        elif get_origin(hint) in (None, Literal):
            ways[name] = (name,)
    return ways


def _value(record: Any, way: Way) -> Any:
    for step in way:
        if record is None:
            return None
        record = record[step] if isinstance(step, int) else getattr(record, step)
    return record
