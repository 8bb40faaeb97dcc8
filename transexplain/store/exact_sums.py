"""Exact sums by key: the same bits however the items of a run are cut into shards and merged.

Numbers are integers in units of 2**-50: their addition is associative, that of floats is not. What
shards have saved is added up by a `group_by` over decimals of 76 digits. A single number is below
`LARGEST`, so that sums of products of two of them hold for 10**9 items of 1,000 mentions.
"""

import json
import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from json.encoder import encode_basestring_ascii
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc

UNITS = 2**50  #: of 9e-16 in whatever is summed
LARGEST = 1e15  #: numbers are smaller

Key = tuple[Any, ...]  #: of strings, integers and None
Table = dict[Key, list[int]]  #: rows of integers by key, all of one length


def exact(value: float) -> int:
    """`value` in units; raises ValueError where it is not finite, or `LARGEST` or beyond."""
    if not abs(value) < LARGEST:
        raise ValueError(f"{value} is not finite, or beyond {LARGEST:.0e}")
    return round(value * UNITS)


_FITS = 2.0**12  #: numbers below it have units that fit 63 bits
_HALF = 2**32
_FITS_HIGH = 2.0**29  #: sums of upper halves below it make sums that fit 63 bits
_TOGETHER = 2**20  # numbers of 32 bits whose sum a float holds exactly


def exact_sums(values: NDArray[np.floating[Any]], of: NDArray[np.intp], count: int) -> list[int]:
    """The sums of `exact` over the values (N,) by `of` (N,), which of `count` sums each is in.

    Raises ValueError as `exact`.
    """
    wide = np.asarray(values, dtype=np.float64)
    if not (np.abs(wide) < _FITS).all():
        sums = [0] * count
        for place, value in zip(of.tolist(), wide.tolist(), strict=True):
            sums[place] += exact(value)
        return sums
    if len(wide) > _TOGETHER:
        parts = [
            exact_sums(wide[at : at + _TOGETHER], of[at : at + _TOGETHER], count)
            for at in range(0, len(wide), _TOGETHER)
        ]
        return [sum(numbers) for numbers in zip(*parts, strict=True)]
    units = np.rint(wide * UNITS).astype(np.int64)
    low = np.bincount(of, weights=(units & (_HALF - 1)).astype(np.float64), minlength=count)
    high = np.bincount(of, weights=(units >> 32).astype(np.float64), minlength=count)
    if np.abs(high).max(initial=0.0) < _FITS_HIGH:
        whole: list[int] = ((high.astype(np.int64) << 32) + low.astype(np.int64)).tolist()
        return whole
    return [
        int(above) * _HALF + int(below)
        for above, below in zip(high.tolist(), low.tolist(), strict=True)
    ]


def numbered(keys: Sequence[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """The different keys in order of appearance, and (N,) which of them each one is."""
    names = list(dict.fromkeys(keys))
    numbers = dict(zip(names, range(len(names)), strict=True))
    return names, np.fromiter(map(numbers.__getitem__, keys), dtype=np.intp, count=len(keys))


def add_row(table: Table, key: Key, row: list[int]) -> None:
    """Add a row to that of `key`, number by number; no row is changed in place."""
    known = table.get(key)
    table[key] = row if known is None else list(map(add, known, row))


def add_table(table: Table, other: Mapping[Key, list[int]]) -> None:
    """Add all rows of `other`."""
    if table.keys().isdisjoint(other):
        table.update(other)
        return
    for key, row in other.items():
        add_row(table, key, row)


class Sums:
    """Rows of exact sums: by the name of a total, the stratum that they are of, and a key.

    What was saved stays in Arrow until a row is read. Of these `only` some totals are kept, if
    they are named.
    """

    def __init__(self, only: Collection[str] = ()) -> None:
        heads = "|".join(re.escape(json.dumps(name)) for name in only)
        self._only = rf"^\[\[({heads})[,\]]" if only else ""
        self._totals: dict[str, dict[Key, Table]] = {}
        self._saved: dict[int, list[pa.Table]] = {}  # by the width of rows

    def names(self) -> list[str]:
        """The names of all totals."""
        self._read()
        return list(self._totals)

    def strata(self, total: str) -> Mapping[Key, Table]:
        """The tables of a total by stratum."""
        self._read()
        return self._totals.get(total, {})

    def table(self, total: str, stratum: Key = ()) -> Table:
        """The table of a stratum, to be added to."""
        self._read()
        return self._totals.setdefault(total, {}).setdefault(stratum, {})

    def over(self, total: str, strata: Iterable[Key]) -> Table:
        """The tables of these strata together."""
        tables, whole = self.strata(total), Table()
        for stratum in strata:
            add_table(whole, tables.get(stratum, {}))
        return whole

    def merge(self, other: "Sums", prefix: str = "", into: str = "") -> None:
        """Add all sums of `other`, or totals whose names begin with `prefix`, here with `into`."""
        other._read()
        for total, strata in other._totals.items():
            if total.startswith(prefix):
                for stratum, table in strata.items():
                    add_table(self.table(into + total.removeprefix(prefix), stratum), table)

    def rename(self, total: str, rename: Callable[[Key], Key | None]) -> None:
        """Give the rows of a total other keys; those renamed to None are left out."""
        for stratum, table in self.strata(total).items():
            self._totals[total][stratum] = renamed = Table()
            for key, row in table.items():
                if (other := rename(key)) is not None:
                    add_row(renamed, other, row)

    def remove(self, total: str) -> None:
        """Leave out a total."""
        self._read()
        self._totals.pop(total, None)

    def packed(self) -> dict[str, str]:
        """Width of rows -> the rows in order of their keys: Arrow's stream format, in base64."""
        self._read()
        widths: dict[int, tuple[list[str], list[list[int]]]] = {}
        for total, strata in self._totals.items():
            for stratum, table in strata.items():
                for row in islice(table.values(), 1):
                    keys, rows = widths.setdefault(len(row), ([], []))
                    head = f"[{_text((total, *stratum))},"
                    keys += [f"{head}{_text(key)}]" for key in table]
                    rows += table.values()
        return {str(width): _packed(*widths[width]) for width in sorted(widths)}

    def add_packed(self, content: Mapping[str, str]) -> None:
        """Add what `packed` wrote; raises ValueError where it is damaged."""
        for width, text in content.items():
            tables = self._saved.setdefault(int(width), [])
            table = _unpacked(text, int(width))
            if self._only:
                table = table.filter(pc.match_substring_regex(table["key"], self._only))
            tables.append(table)
            if len(tables) == _GROUPED:
                tables[:] = [_grouped(tables)]

    def _read(self) -> None:
        """Make rows of what was saved."""
        saved, self._saved = self._saved, {}
        parts: dict[Any, Any] = {}  # each is in memory once: keys repeat the names of groups
        while saved:
            grouped = _grouped(saved.popitem()[1])
            columns = map(_integers, grouped.columns[1:])
            keys = json.loads(f"[{','.join(grouped['key'].to_pylist())}]")
            for ((total, *stratum), key), *row in zip(keys, *columns, strict=True):
                table = self._totals.setdefault(total, {}).setdefault(tuple(stratum), {})
                add_row(table, tuple([parts.setdefault(part, part) for part in key]), row)
        if parts:
            pa.default_memory_pool().release_unused()


def _text(key: Key) -> str:
    """A key as JSON in ASCII."""
    try:
        return f"[{','.join(map(encode_basestring_ascii, key))}]"
    except TypeError:  # not only strings
        parts = (
            encode_basestring_ascii(part)
            if isinstance(part, str)
            else "null"
            if part is None
            else str(part)
            for part in key
        )
        return f"[{','.join(parts)}]"


_GROUPED = 8  #: tables of shards that are added up at once
_DECIMAL = pa.decimal256(76, 0)


def _names(width: int) -> list[str]:
    return [f"n{place}" for place in range(width)]


def _packed(keys: Sequence[str], rows: Sequence[list[int]]) -> str:
    columns = [pa.array(keys, pa.string()), *map(_column, zip(*rows, strict=True))]
    table = pa.table(columns, names=["key", *_names(len(columns) - 1)]).sort_by("key")
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    return b64encode(sink.getvalue()).decode()


_COMPRESSED = ipc.IpcWriteOptions(compression="zstd")


def _column(numbers: Sequence[int]) -> pa.Array:
    """Integers of 64 bits where all fit, which take less room, else decimals."""
    try:
        return pa.array(numbers, pa.int64())
    except OverflowError:
        return pa.array(list(map(Decimal, numbers)), _DECIMAL)


def _unpacked(text: str, width: int) -> pa.Table:
    try:
        table = ipc.open_stream(a2b_base64(text, strict_mode=True)).read_all()
        table.validate(full=True)
        types = [pa.string(), *[_DECIMAL] * width]
        return table.cast(pa.schema(zip(["key", *_names(width)], types, strict=True)))
    except (OSError, pa.ArrowException) as error:
        raise ValueError(str(error)) from None


def _grouped(tables: Sequence[pa.Table]) -> pa.Table:
    """The sums of tables of one width by key."""
    whole = pa.concat_tables(tables)
    names = whole.column_names[1:]
    sums = whole.group_by("key", use_threads=False).aggregate([(name, "sum") for name in names])
    return sums.select(["key", *(f"{name}_sum" for name in names)]).rename_columns(["key", *names])


def _integers(column: pa.ChunkedArray) -> list[int]:
    try:
        numbers: list[int] = column.cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        numbers = list(map(int, column.to_pylist()))
    return numbers


def counts(table: Mapping[Key, list[int]]) -> dict[Any, int]:
    """Key -> the only number of its row; a key of one part is that part."""
    return {key if len(key) > 1 else key[0]: row[0] for key, row in table.items()}
