"""Which fields of a report's records have no redaction rule."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import get_type_hints

from transexplain.reports.redaction import RedactionRules, empty, keep, records_in, usual


def gaps(root: type, rules: Mapping[type, RedactionRules]) -> Iterator[str]:
    """A line for each field without a rule; empty where all have one.

    Every dataclass that `root` can hold needs rules, for no other fields than its own, and a field
    of records must not simply be kept. What `empty` replaces is never published and is not looked
    into.
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
        known = {**usual(record), **rules[record].fields}
        hints = get_type_hints(record)
        names = {field.name for field in fields(record)}
        yield from (f"{record.__name__} has no field {name}" for name in known if name not in names)
        for name in sorted(names):
            rule, inside = known.get(name), list(records_in(hints[name]))
            if rule is None:
                yield f"{record.__name__}.{name} has no redaction rule"
            elif rule is keep and inside:
                yield f"{record.__name__}.{name} holds records that are kept without their rules"
            elif rule is not None and rule.__qualname__ != empty(None).__qualname__:
                waiting.extend(inside)
