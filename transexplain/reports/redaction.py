"""Redacts reports: every field of every record has a rule, and a field without one is an error."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

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

    #: field -> what takes its place, from the value, the record and the redactor
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
        for field in fields(record):  # type: ignore[arg-type]
            rule = rules.fields.get(field.name)
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


def published(
    names: str = "",
    /,
    *,
    inside: str = "",
    least: str = "",
    stands: Callable[[Any, int], bool] | None = None,
    **others: Rule,
) -> RedactionRules:
    """The rules of a record whose fields are published.

    Args:
        names: fields that are published as they are, blanks between them.
        inside: fields of records, by the rules of these.
        least: the field that has to be at least the fewest items; "": none.
        stands: whether a record may be published, where one field does not say it.
        others: field -> its rule.
    """
    fields = {**kept(names), **dict.fromkeys(inside.split(), within), **others}
    if least:
        stands = at_least(least)
    return RedactionRules(fields=fields, stands=stands) if stands else RedactionRules(fields=fields)


def gaps(root: type, rules: Mapping[type, RedactionRules]) -> Iterator[str]:
    """The fields without a redaction rule, one line each; empty where all have one.

    Every dataclass that `root` can hold needs rules, for exactly its fields, and a field of records
    must not simply be kept. What `empty` replaces is never published and is not looked into.
    """
    seen: set[type] = set()
    waiting = [root]
    while waiting:
        record = waiting.pop()
        if record in seen:
            continue
        seen.add(record)
        if record not in rules:
            yield f"{record.__name__} has no redaction rules"
            continue
        known = rules[record].fields
        hints = get_type_hints(record)
        names = {field.name for field in fields(record)}
        yield from (f"{record.__name__} has no field {name}" for name in known if name not in names)
        for name in sorted(names):
            rule, inside = known.get(name), list(_records(hints[name]))
            if rule is None:
                yield f"{record.__name__}.{name} has no redaction rule"
            elif rule is keep and inside:
                yield f"{record.__name__}.{name} holds records that are kept without their rules"
            elif rule is not None and rule.__qualname__ != _EMPTY:
                waiting.extend(inside)


_EMPTY = empty(None).__qualname__


def _records(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _records(part)
