"""Redacts reports: a text or a collection of any record without a rule is an error."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from transexplain.errors import ConfigurationError

FEWEST = 10  #: items that a row must rest on to be published

Record = TypeVar("Record")


def fewest_of(redact: bool, min_count: int | None) -> int | None:
    """The least items behind a row, from `--redact` and `--min-count`; None: no redaction.

    Raises ConfigurationError for a `min_count` without `redact` or below 2.
    """
    if not redact:
        if min_count is not None:
            raise ConfigurationError("--min-count is for --redact; give both")
        return None
    fewest = FEWEST if min_count is None else min_count
    check_fewest(fewest)
    return fewest


def check_fewest(fewest: int) -> None:
    """Raise ConfigurationError for a least number of items that hides nothing."""
    if fewest < 2:
        raise ConfigurationError(f"--min-count {fewest} hides nobody; give at least 2")


@dataclass(frozen=True, kw_only=True, slots=True)
class RedactionRules:
    """The published fields of one type of record."""

    #: field -> what takes its place, from the value, the record and the redactor; see `usual`
    fields: "Mapping[str, Rule]"
    #: whether a record may be published at all, by the items behind it
    stands: Callable[[Any, int], bool] = lambda _record, _fewest: True


@dataclass(frozen=True, kw_only=True, slots=True)
class Redactor:
    """Applies rules; a type or field without a rule raises LookupError, so nothing slips out."""

    rules: Mapping[type, RedactionRules]
    fewest: int  #: items that a row must rest on

    def record(self, record: Record) -> Record | None:
        """Return what is published of a record; None: nothing."""
        rules = self.rules.get(type(record))
        if rules is None:
            raise LookupError(
                f"{type(record).__name__} has no redaction rules, so it is not published"
            )
        if not rules.stands(record, self.fewest):
            return None
        values: dict[str, Any] = {}
        kind: Any = type(record)
        known = {**usual(kind), **rules.fields}
        for field in fields(record):  # type: ignore[arg-type]
            rule = known.get(field.name)
            if rule is None:
                place = f"{type(record).__name__}.{field.name}"
                raise LookupError(f"{place} has no redaction rule, so it is not published")
            if field.init:
                values[field.name] = rule(getattr(record, field.name), record, self)
        return type(record)(**values)

    def within(self, value: Any) -> Any:
        """Return what is published of a record, or of a tuple or mapping of records."""
        if isinstance(value, tuple):
            return tuple(part for part in map(self.within, value) if part is not None)
        if isinstance(value, Mapping):
            return {key: self.within(entry) for key, entry in value.items()}
        return None if value is None else self.record(value)


Rule = Callable[[Any, Any, Redactor], Any]


def keep(value: Any, _record: Any, _redactor: Redactor) -> Any:
    """Published as it is; not for records, which have rules of their own."""
    return value


def within(value: Any, _record: Any, redactor: Redactor) -> Any:
    """A record, or a collection of records: what their own rules leave of them."""
    return redactor.within(value)


def empty(instead: Any) -> Rule:
    """Never published: `instead` takes the place of the value."""

    def rule(_value: Any, _record: Any, _redactor: Redactor) -> Any:
        return instead

    return rule


def by(change: Callable[[Any], Any]) -> Rule:
    """Published after a change that only the value decides."""

    def rule(value: Any, _record: Any, _redactor: Redactor) -> Any:
        return change(value)

    return rule


def kept(names: str) -> dict[str, Rule]:
    """`keep` for each of the fields named, blanks between them."""
    return dict.fromkeys(names.split(), keep)


def inside(names: str) -> dict[str, Rule]:
    """`within` for each of the fields named, blanks between them."""
    return dict.fromkeys(names.split(), within)


def at_least(counted: str) -> Callable[[Any, int], bool]:
    """The record stands where its field `counted` is at least the fewest items."""

    def stands(record: Any, fewest: int) -> bool:
        count: int = getattr(record, counted)
        return count >= fewest

    return stands


def is_large(count: int, total: int, fewest: int) -> bool:
    """Return whether neither the counted items nor the others are few; none is not few."""
    return all(part == 0 or part >= fewest for part in (count, total - count))


def published(
    names: str = "",
    /,
    *,
    least: str = "",
    stands: Callable[[Any, int], bool] | None = None,
    **others: Rule,
) -> RedactionRules:
    """The rules of a record that is published.

    Args:
        names: fields of texts and of collections that are published as they are, blanks between
            them; numbers, choices and records need no mention.
        least: the field that has to be at least the fewest items; "": none.
        stands: whether a record may be published, where one field does not say it.
        others: field -> its rule.
    """
    fields = {**kept(names), **others}
    if least:
        stands = at_least(least)
    return RedactionRules(fields=fields, stands=stands) if stands else RedactionRules(fields=fields)


@cache
def usual(record: type) -> Mapping[str, Rule]:
    """The rules of the fields that need none of their own.

    A number, a choice or a pair of numbers is kept, which `least` decides with its row; records go
    by their own rules. Texts may quote the data and collections may list items: they need a rule.
    """
    hints = get_type_hints(record)
    rules: dict[str, Rule] = {name: within for name, hint in hints.items() if any(records_in(hint))}
    return rules | {name: keep for name, hint in hints.items() if _is_number(hint)}


def _is_number(hint: Any) -> bool:
    if get_origin(hint) is Literal or hint in (bool, int, float, NoneType):
        return True
    parts = get_args(hint)
    fixed = get_origin(hint) in (Union, UnionType, tuple) and parts and ... not in parts
    return bool(fixed) and all(map(_is_number, parts))


def records_in(hint: Any) -> Iterator[type]:
    """The records that a field of this type can hold."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from records_in(part)
