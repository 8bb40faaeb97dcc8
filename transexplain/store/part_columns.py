"""Columns of a part: arrays in as few bytes as hold them exactly, texts, lists, compressed bytes.

Whatever is written narrower is widened again when it is read, to the same bits.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_NARROW = (np.int8, np.int16, np.int32)
_LEVEL = 3  #: of zstd: higher ones take longer and gain about 1 %
_HEAD = 4  #: bytes of a checksum, and of a length


def ints(values: Any, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Whole numbers in the narrowest type that holds all of them; NULL where `missing`."""
    wide = np.asarray(values, dtype=np.int64)
    low, high = int(wide.min(initial=0)), int(wide.max(initial=0))
    for kind in _NARROW:
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return pa.array(wide.astype(kind), mask=missing)
    return pa.array(wide, mask=missing)


def floats(values: Any) -> pa.Array:
    """Float64, as float32 where that has the same bits."""
    wide = np.ascontiguousarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        short = wide.astype(np.float32)
    same = np.array_equal(short.astype(np.float64).view(np.int64), wide.view(np.int64))
    return pa.array(short if same else wide)


def residual(values: Any, expected: Floats) -> pa.Array:
    """By how many steps of their bits `values` lie beside what is `expected` of them: mostly 0."""
    wide = np.ascontiguousarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        return ints(wide.view(np.int64) - np.ascontiguousarray(expected).view(np.int64))


def restored(steps: pa.Array, expected: Floats) -> Floats:
    """The values that `residual` was given."""
    with np.errstate(over="ignore"):
        return (wide_ints(steps) + np.ascontiguousarray(expected).view(np.int64)).view(np.float64)


def wide_ints(column: pa.Array) -> Ints:
    """The numbers of `ints`; 0 where one is NULL."""
    filled = column.fill_null(0) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def wide_floats(column: pa.Array) -> Floats:
    """The numbers of `floats`."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def encoded(text: str | None) -> bytes | None:
    """Any Python text as bytes, lone surrogates among its characters too."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def decoded(data: bytes | None) -> str | None:
    """The text that `encoded` was given."""
    return None if data is None else data.decode("utf-8", "surrogatepass")


def texts(values: Sequence[str | None]) -> pa.Array:
    """Texts of which most differ."""
    return pa.array([encoded(one) for one in values], type=pa.large_binary())


def names(values: Sequence[str | None]) -> pa.Array:
    """Texts of which most are there many times."""
    different = dict.fromkeys(values)
    known = dict(zip(different, range(len(different)), strict=True))
    missing = known.get(None)
    held = pa.array([b"" if one is None else encoded(one) for one in known], type=pa.binary())
    at = np.fromiter(map(known.__getitem__, values), dtype=np.int64, count=len(values))
    return pa.DictionaryArray.from_arrays(
        ints(at, None if missing is None else at == missing), held
    )


def text_list(column: pa.Array) -> list[Any]:
    """The texts of `texts` or of `names`; None where one is NULL."""
    if not pa.types.is_dictionary(column.type):
        return [decoded(one) for one in column.to_pylist()]
    places, known = column.indices.to_pylist(), column.dictionary
    used: Sequence[int] = range(len(known))
    if len(places) < len(known):  # of few items, with the names of a whole part
        used = sorted({place for place in places if place is not None})
        known = known.take(pa.array(used, type=pa.int64()))
    held = dict(zip(used, map(decoded, known.to_pylist()), strict=True))
    return [None if place is None else held[place] for place in places]


def is_name(column: pa.Array, name: str) -> NDArray[np.bool_]:
    """(N,) which of the texts of `names` are this one."""
    known = column.dictionary
    same = pc.equal(known, pa.scalar(encoded(name), type=known.type))
    held = np.flatnonzero(same.to_numpy(zero_copy_only=False))
    if not len(held):
        return np.zeros(len(column), dtype=bool)
    places = column.indices.fill_null(-1) if column.null_count else column.indices
    return np.isin(places.to_numpy(zero_copy_only=False), held)


def lists(values: pa.Array, counts: Any) -> pa.Array:
    """`values` cut into lists of so many each."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def counts_of(column: pa.Array) -> Ints:
    """How many values each list has."""
    return np.diff(np.asarray(column.offsets)).astype(np.int64)


def struct(**columns: pa.Array) -> pa.Array:
    """The columns side by side."""
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def sums_of(values: Floats, counts: Ints) -> Floats:
    """The sum of each run of `counts` values, from its first to its last, as Python adds them.

    One after the other, so that every machine gets the same bits.
    """
    found = np.zeros(len(counts))
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    for place in range(int(counts.max(initial=0))):
        there = counts > place
        found[there] += values[begins[there] + place]
    return found


def picked(values: Floats, counts: Ints, of: Ints, places: Ints) -> Floats:
    """Of list `of[n]` of these values the one at `places[n]`; 0 where it has none there."""
    begins = np.cumsum(counts) - counts
    there = (places >= 0) & (places < counts[of])
    found = np.zeros(len(of))
    found[there] = values[begins[of[there]] + places[there]]
    return found


def squeezed(data: bytes) -> bytes:
    """`data` compressed, and sealed."""
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True)
    return sealed(len(data).to_bytes(_HEAD, "little") + packed)


def unsqueezed(given: bytes) -> bytes:
    """The bytes that `squeezed` was given; raises ValueError where one has changed since."""
    body = unsealed(given)
    length = int.from_bytes(body[:_HEAD], "little")
    try:
        found: bytes = pa.decompress(body[_HEAD:], length, codec="zstd", asbytes=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(str(error)) from None
    return found


def sealed(body: bytes) -> bytes:
    """The bytes behind a checksum of them."""
    return zlib.crc32(body).to_bytes(_HEAD, "little") + body


def unsealed(given: bytes) -> bytes:
    """The bytes that `sealed` was given; raises ValueError where one has changed since."""
    body = given[_HEAD:]
    if len(given) < _HEAD or zlib.crc32(body) != int.from_bytes(given[:_HEAD], "little"):
        raise ValueError("its bytes are not those that were written")
    return body


def hashes_of(item_ids: Sequence[str]) -> NDArray[np.uint32]:
    """A number of 32 bits for each id; different ids may share one."""
    found = [zlib.crc32(encoded(one) or b"") for one in item_ids]
    return np.array(found, dtype="<u4")
