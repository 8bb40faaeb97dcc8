"""Rows of JSON-lines files: one object per line."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from transexplain.data.lines import open_lines, without_trailing
from transexplain.data.records import Problem, RawRow, Table, printable
from transexplain.errors import DataSourceError
from transexplain.parsing import refuse_depth
from transexplain.plans import DatasetSpec

_PEEK = 100  #: lines read ahead to learn which columns there are


@contextmanager
def open_jsonl(path: Path, spec: DatasetSpec) -> Iterator[Table]:
    """A file with a JSON object per line; its columns are the keys of the first 100 objects.

    Raises DataSourceError where none of those lines is an object.
    """
    del spec  # the format has no options
    with open_lines(path) as lines:
        rows = map(_parse, without_trailing(lines, _is_blank))
        first = list(islice(rows, _PEEK))
        columns = dict.fromkeys(key for row in first if not isinstance(row, Problem) for key in row)
        if not columns:
            seen = next((row.message for row in first if isinstance(row, Problem)), "none is there")
            raise DataSourceError(
                f"{path}: every line must be a JSON object with fields; the first: {seen}"
            )
        yield Table(
            columns=tuple(map(printable, columns)),
            rows=lambda wanted: _pick(chain(first, rows), wanted),
            sparse=True,
        )


def _pick(rows: Iterator[RawRow], wanted: Sequence[str]) -> Iterator[RawRow]:
    for row in rows:
        yield row if isinstance(row, Problem) else {name: row.get(name) for name in wanted}


def _is_blank(line: bytes | Problem) -> bool:
    return isinstance(line, bytes) and not line.strip()


def _parse(line: bytes | Problem) -> RawRow:
    if isinstance(line, Problem):
        return line
    if not line.strip():
        return Problem(kind="malformed-row", message="the line is blank")
    try:
        text = line.decode("utf-8")
        refuse_depth(text)
        value = json.loads(text)
    except UnicodeDecodeError as error:
        return Problem(kind="invalid-utf8", message=f"byte {error.start} is not UTF-8")
    except (ValueError, RecursionError) as error:
        return Problem(kind="malformed-row", message=f"not JSON: {printable(str(error))}")
    if not isinstance(value, dict):
        return Problem(
            kind="malformed-row", message=f"a JSON {type(value).__name__}, not an object"
        )
    return value
