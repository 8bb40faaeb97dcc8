"""Totals that do not depend on the order of adding: tables of integers, merged row by row.

Numbers are kept as integers in units of 2**-50. Integer addition is associative, that of floats is
not: only so do the shards of a run give the same bits however they are cut up and merged.

Totals are saved as JSON values, and what was saved is added to others: `add_json` is the one way in
which shards are read and merged. Equal totals give equal JSON.
"""

import itertools
import math
from base64 import b64encode
from binascii import a2b_base64
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from operator import add
from types import UnionType
from typing import Annotated, Any, Self, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.types.relevance_sums import bin_of, outer_edge

UNITS = 2**50  #: of 9e-16 in whatever is summed

Key = TypeVar("Key", bound=Hashable)


def exact(value: float) -> int:
    """`value` in units; raises ValueError where it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return round(value * UNITS)


_FITS = 2.0**12  #: numbers below it have units that fit 63 bits
_HALF = 2**32
_FITS_HIGH = 2.0**29  #: sums of upper halves below it make sums that fit 63 bits
_TOGETHER = 2**20  # numbers of 32 bits whose sum a float holds exactly


def exact_sums(values: NDArray[np.floating[Any]], of: NDArray[np.intp], count: int) -> list[int]:
    """The sums of `exact` over the values (N,) by `of` (N,), which of `count` sums each is in.

    Raises ValueError where a value is not finite.
    """
    wide = np.asarray(values, dtype=np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("a value is not finite")
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


_LARGEST = 2**1000  #: units of a saved sum; a float holds it


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _key(parts: Sequence[Any]) -> Any:
    return tuple(parts) if len(parts) > 1 else parts[0]


class ExactTable(dict[Key, list[int]]):
    """Rows of integers by key, all of one length; a row is never changed in place."""

    def add(self, key: Key, row: list[int]) -> None:
        """Add a row to that of `key`, number by number.

        Raises ConfigurationError where one is longer: what was stored is damaged.
        """
        known = self.get(key)
        if known is None:
            self[key] = row
            return
        if len(known) != len(row):
            raise ConfigurationError(
                f"a shard's aggregate has a row of {len(row)} numbers, where others have "
                f"{len(known)}: run the audit again"
            )
        self[key] = list(map(add, known, row))

    def merge(self, other: Mapping[Key, list[int]]) -> Self:
        """Add all rows of `other` to these, and return these."""
        if self.keys().isdisjoint(other):
            self.update(other)
            return self
        for key, row in other.items():
            self.add(key, row)
        return self

    def to_json(self) -> list[list[Any]]:
        """[*key, row] by key."""
        return [[*_parts(key), row] for key, row in sorted(self.items())]

    def add_json(self, content: Iterable[Sequence[Any]]) -> None:
        """Add what `to_json` wrote; raises ValueError for a sum that no float can hold."""
        for *key, row in content:
            if any(type(number) is not int or abs(number) > _LARGEST for number in row):
                raise ValueError(f"the row of {key} has a sum beyond 2**1000, or none")
            self.add(_key(key), list(row))


class Counts(dict[Key, int]):
    """Counts by key."""

    def add(self, key: Key, count: int = 1) -> None:
        """Count a key so many times more."""
        self[key] = self.get(key, 0) + count

    def merge(self, other: Mapping[Key, int]) -> Self:
        """Add all counts of `other` to these, and return these."""
        for key, count in other.items():
            self.add(key, count)
        return self

    def to_json(self) -> list[list[Any]]:
        """[*key, count] by key, of which a part may be None."""
        ordered = sorted(self.items(), key=lambda pair: [part or "" for part in _parts(pair[0])])
        return [[*_parts(key), count] for key, count in ordered]

    def add_json(self, content: Iterable[Sequence[Any]]) -> None:
        """Add what `to_json` wrote."""
        for *key, count in content:
            if type(count) is not int or count < 0:
                raise ValueError(f"{count!r} is no count")
            self.add(_key(key), count)


def signed_bin(value: float) -> int:
    """The bin of a finite number: that of its size, with its sign."""
    place = bin_of(abs(value))
    return place if value > 0.0 else -place


@dataclass(slots=True)
class ExactHistogram:
    """Counts of signed numbers of any range in bins of 1 % of the number's size.

    The bin of -x mirrors that of x; ascending bins hold ascending numbers, bin 0 holds zeros.
    """

    counts: Counts[int] = field(default_factory=Counts)  #: signed number of the bin -> numbers

    def add(self, value: float) -> None:
        """Count one finite number."""
        self.counts.add(signed_bin(value))

    def bin_of(self, share: float) -> int | None:
        """The lowest bin such that `share` of the numbers lie in it or below; None: no numbers."""
        left = max(1, math.ceil(share * sum(self.counts.values()) - 1e-9))
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                return place
        return None

    def quantile(self, share: float) -> float:
        """That of the numbers which `share` of them do not exceed, to 0.5 %; 0 without any."""
        place = self.bin_of(share) or 0
        return math.copysign(outer_edge(abs(place) - 0.5), place) if place else 0.0


_BITS = 32
_LOW = (1 << _BITS) - 1
_FIRST = 1024  #: places that are made at once; doubled from there
MOST_LIMBS = 31  #: of a saved number; a float holds their sums

Limbs = NDArray[np.int64]  #: (L, N), of N numbers


def limbs_of(numbers: Sequence[int]) -> Limbs:
    """The limbs (L, N) of integers of any size, as few as hold all of them."""
    try:
        narrow = np.array(numbers, dtype=np.int64)
    except OverflowError:
        count = max(number.bit_length() for number in numbers) // _BITS + 1
        raw = b"".join(number.to_bytes(4 * count, "little", signed=True) for number in numbers)
        return _signed(np.frombuffer(raw, dtype="<u4").reshape(-1, count).T)
    if not len(narrow) or (narrow.min() >= -(_LOW // 2) - 1 and narrow.max() <= _LOW // 2):
        return narrow[None, :]
    return np.stack([narrow & _LOW, narrow >> _BITS])


def integers(limbs: Limbs) -> list[int]:
    """The numbers (N,) of limbs (L, N), which may have grown by adding."""
    carried = limbs.copy()
    for place in range(len(carried) - 1):
        carried[place + 1] += carried[place] >> _BITS
        carried[place] &= _LOW
    *lower, top = carried
    if len(lower) == 1 and len(top) and np.abs(top).max() < 2 ** (_BITS - 2):
        lower, top = [], (top << _BITS) + lower[0]
    numbers: list[int] = top.tolist()
    for plane in reversed(lower):
        numbers = [(high << _BITS) + low for high, low in zip(numbers, plane.tolist(), strict=True)]
    return numbers


def packed(rows: Iterable[Sequence[int]]) -> dict[str, Any]:
    """One row of integers or more as JSON values: how many limbs each column has, and all limbs.

    `numbers` is the base64 of little-endian limbs: column by column, of each the lowest limb of all
    rows first.
    """
    columns = list(map(limbs_of, zip(*rows, strict=True)))
    raw = b"".join(column.astype("<u4").tobytes() for column in columns)
    return {"limbs": [len(column) for column in columns], "numbers": b64encode(raw).decode()}


def unpacked(content: Mapping[str, Any], rows: int) -> list[Limbs]:
    """The columns of `rows` rows that `packed` wrote; raises ValueError where they do not fit."""
    limbs = content["limbs"]
    if not all(0 < limb <= MOST_LIMBS for limb in limbs):
        raise ValueError(f"limbs {limbs}, each at most {MOST_LIMBS}")
    raw = np.frombuffer(a2b_base64(content["numbers"], strict_mode=True), dtype="<u4")
    if len(raw) != rows * sum(limbs):
        raise ValueError(f"{len(raw)} limbs in {rows} rows, not {sum(limbs)} in each")
    planes = raw.reshape(sum(limbs), rows)
    ends = np.cumsum(limbs).tolist()
    return [_signed(planes[end - count : end]) for count, end in zip(limbs, ends, strict=True)]


def _signed(planes: NDArray[np.uint32]) -> Limbs:
    """Limbs without signs, but for the last one."""
    limbs = planes.astype(np.int64)
    limbs[-1] = np.ascontiguousarray(planes[-1]).view("<i4")
    return limbs


class ExactColumn:
    """Sums by place, from 0; a place that nothing was added to holds 0."""

    def __init__(self) -> None:
        self._limbs: Limbs = np.zeros((1, _FIRST), dtype=np.int64)

    def add(self, places: NDArray[np.intp], limbs: Limbs, length: int) -> None:
        """Add numbers (L, n) at different `places` (n,), which are below `length`.

        Sums stay exact over the first 2**31 additions.
        """
        self._grow(len(limbs), length)
        for plane, more in zip(self._limbs, limbs, strict=False):
            plane[places] += more

    def sums(self, length: int) -> list[int]:
        """The first `length` sums."""
        self._grow(1, length)
        return integers(self._limbs[:, :length])

    def _grow(self, limbs: int, length: int) -> None:
        have, room = self._limbs.shape
        size = max(room, 1 << (length - 1).bit_length()) if length > room else room
        if limbs > have or size > room:
            grown = np.zeros((max(have, limbs), size), dtype=np.int64)
            grown[:have, :room] = self._limbs
            self._limbs = grown


class _Numbers(dict[Any, int]):
    """A number for every name, the next one for a new name."""

    def __init__(self, further: Iterator[int]) -> None:
        super().__init__()
        self._further = further

    def __missing__(self, name: Any) -> int:
        self[name] = number = next(self._further)
        return number


class _Columns:
    """The sums of saved rows of one width, without an object per row."""

    def __init__(self, width: int) -> None:
        self._columns = [ExactColumn() for _ in range(width)]
        self._length = 0  # rows
        self._last = np.zeros(0, dtype=np.intp)  # which row of the last shard came to a place
        further = itertools.count()
        #: by key of a table, and all but the last part of a row's key
        self._numbers: defaultdict[tuple[Any, Any], _Numbers] = defaultdict(
            lambda: _Numbers(further)
        )

    def add(self, names: Iterable[Any], columns: Sequence[Limbs]) -> None:
        """Add rows by their names; raises ValueError where a row has another's name."""
        numbers: list[int] = []
        for key, more, last in names:
            numbers += map(self._numbers[tuple(key), tuple(more)].__getitem__, last)
        if not numbers:
            return
        places, order = np.array(numbers, dtype=np.intp), np.arange(len(numbers))
        self._length = max(self._length, int(places.max()) + 1)
        if self._length > len(self._last):
            self._last = np.zeros(2 * self._length, dtype=np.intp)
        self._last[places] = order
        if (self._last[places] != order).any():
            raise ValueError("a table has a name twice")
        for column, limbs in zip(self._columns, columns, strict=True):
            column.add(places, limbs, self._length)

    def tables(self) -> Iterator[tuple[Any, dict[Any, list[int]]]]:
        """Rows by the keys of their tables, which may come several times."""
        columns = (column.sums(self._length) for column in self._columns)
        rows = [list(row) for row in zip(*columns, strict=True)]
        for (key, more), numbers in self._numbers.items():
            if more:
                yield key, {(*more, last): rows[number] for last, number in numbers.items()}
            else:
                yield key, {last: rows[number] for last, number in numbers.items()}


class Tables:
    """Exact tables by key, as those of every stratum.

    Saved ones are added up in columns, which become tables when these are first read.

    Args:
        width: numbers in a row; 0: any.
        depth: parts of the key of a table.
        inner: parts of the key of a row.
    """

    def __init__(self, width: int = 0, depth: int = 0, inner: int = 1) -> None:
        self._width, self._depth, self._inner = width, depth, inner
        self._tables: dict[Any, ExactTable[Any]] = {}
        self._saved: dict[int, _Columns] = {}  # by width

    @property
    def tables(self) -> dict[Any, ExactTable[Any]]:
        """The tables by key, a tuple."""
        if self._saved:
            saved, self._saved = self._saved, {}
            for _, columns in sorted(saved.items()):
                for key, rows in columns.tables():
                    self.of(key).merge(rows)
        return self._tables

    def of(self, key: tuple[Any, ...]) -> ExactTable[Any]:
        """The table of a key, to be added to."""
        return self.tables.setdefault(key, ExactTable())

    def over(self, keys: Iterable[tuple[Any, ...]]) -> ExactTable[Any]:
        """The tables of these keys together."""
        table: ExactTable[Any] = ExactTable()
        for key in keys:
            table.merge(self.tables.get(key, {}))
        return table

    def renamed(self, rename: Callable[[Any], Any]) -> "Tables":
        """The rows by other keys; those that are renamed to None are left out."""
        tables = Tables(self._width, self._depth, self._inner)
        for key, table in self.tables.items():
            for name, row in table.items():
                if (other := rename(name)) is not None:
                    tables.of(key).add(other, row)
        return tables

    def __eq__(self, other: object) -> bool:
        return self.tables == other.tables if isinstance(other, Tables) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def to_json(self) -> list[dict[str, Any]]:
        """A block for every width of rows: names as [key, inner key but its last part, last parts],
        and the columns, see `packed`.
        """
        blocks: dict[int, tuple[list[Any], list[list[int]]]] = {}
        for key, table in sorted(self.tables.items()):
            before: dict[int, Any] = {}
            for name, row in sorted(table.items()):
                names, rows = blocks.setdefault(len(row), ([], []))
                *more, last = _parts(name)
                if before.get(len(row)) != more:
                    before[len(row)] = more
                    names.append([list(key), more, []])
                names[-1][2].append(last)
                rows.append(row)
        return [{"names": names, **packed(rows)} for _, (names, rows) in sorted(blocks.items())]

    def add_json(self, content: Iterable[Mapping[str, Any]]) -> None:
        """Add what `to_json` wrote; raises ValueError where it does not fit these tables."""
        for block in content:
            names, width = block["names"], len(block["limbs"])
            if self._width not in (0, width):
                raise ValueError(f"{width} columns of limbs in a table of {self._width}")
            if any(len(key) != self._depth or len(m) != self._inner - 1 for key, m, _ in names):
                raise ValueError("names of another table")
            columns = unpacked(block, sum(len(last) for *_, last in names))
            self._saved.setdefault(width, _Columns(width)).add(names, columns)


#: in rows that are read from JSON; NaN is in no interval
Finite = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
Count = Annotated[int, msgspec.Meta(ge=0)]
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Totals:
    """A dataclass of totals, read, written and merged field by field.

    Fields are numbers, sets, lists of rows (dataclasses) in any order, or totals themselves, which
    have `to_json` and `add_json`; one of type `X | None` is None until there is something to add.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values."""
        names = (entry.name for entry in fields(self))  # type: ignore[arg-type]
        return {name.lstrip("_"): _json(getattr(self, name)) for name in names}

    def add_json(self, content: Mapping[str, Any]) -> None:
        """Add what `to_json` wrote; raises ValueError, naming the place, where it is damaged."""
        kind: Any = type(self)
        for name, hint in _hints(kind).items():
            place = name.lstrip("_")
            try:
                setattr(self, name, _added(getattr(self, name), content[place], hint))
            except _DAMAGE as error:
                raise ValueError(f"{place}: {error}") from None

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """Read what `to_json` wrote; raises as `add_json`."""
        totals = cls()
        totals.add_json(content)
        return totals

    def merge(self, other: Self) -> Self:
        """Add what `other` holds to this, and return this."""
        self.add_json(other.to_json())
        return self


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, list) and value and isinstance(value[0], Totals):
        return [totals.to_json() for totals in value]
    if isinstance(value, list | set):  # they come in any order
        return sorted(msgspec.to_builtins(list(value)), key=str)
    return value


def _added(total: Any, content: Any, hint: Any) -> Any:
    if isinstance(hint, UnionType):
        if content is None:
            return total
        hint = get_args(hint)[0]
        total = hint() if total is None else total
    if hasattr(total, "add_json"):
        total.add_json(content)
        return total
    kind = next(iter(get_args(hint)), None)
    if isinstance(total, list) and isinstance(kind, type) and issubclass(kind, Totals):
        total += [kind() for _ in content[len(total) :]]
        for mine, saved in zip(total, content, strict=False):
            mine.add_json(saved)
        return total
    more = msgspec.convert(content, hint)
    if isinstance(total, set):
        total |= more
    else:
        total += more
    return total
