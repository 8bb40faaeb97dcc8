"""A record of plain values as the columns of a table."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

Way = tuple[str | int, ...]  #: names and places that lead to a value


_KNOWN: dict[type, Mapping[str, Way]] = {}


def columns_of(record: type) -> Mapping[str, Way]:
    """Column -> the way to it from a record (a dataclass).

    A pair of numbers becomes two columns, `_low` and `_high`; a record within is opened, its
    columns behind its name; what is a collection is left out.
    """
    if record not in _KNOWN:
        _KNOWN[record] = _columns(record)
    return _KNOWN[record]


def _columns(record: type) -> Mapping[str, Way]:
    found: dict[str, Way] = {}
    hints = get_type_hints(record)
    for field in fields(record):
        name, hint = field.name, _given(hints[field.name])
        if isinstance(hint, type) and is_dataclass(hint):
            inner = columns_of(hint)
            found |= {f"{name}_{column}": (name, *way) for column, way in inner.items()}
        elif hint == tuple[float, float]:
            found |= {f"{name}_low": (name, 0), f"{name}_high": (name, 1)}
        elif get_origin(hint) in (None, Literal):
            found[name] = (name,)
    return found


def cells_of(record: Any) -> dict[str, Any]:
    """Column -> value; None where something on the way is missing."""
    return {column: _value(record, way) for column, way in columns_of(type(record)).items()}


def _given(hint: Any) -> Any:
    """The type of what may be missing."""
    kept = [one for one in get_args(hint) if one is not NoneType]
    return kept[0] if NoneType in get_args(hint) and len(kept) == 1 else hint


def _value(record: Any, way: Way) -> Any:
    for step in way:
        if record is None:
            return None
        record = record[step] if isinstance(step, int) else getattr(record, step)
    return record
