"""Items whose stored results are damaged: how many, where, and what mends them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.reports.redaction import RedactionRules, kept
from transexplain.reports.report_section import Section, Statement
from transexplain.store import parts
from transexplain.store.database import Database

_NAMED = 10  #: parts in the list


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableItems:
    """The explained items of a run that cannot be read any more."""

    items: int
    parts: tuple[str, ...]  #: where they are, the first ones
    more: int  #: parts beyond those
    run_id: str


def unreadable(db: Database, run_id: str) -> UnreadableItems | None:
    """The damaged parts of a run, of which every byte is read; None: there are none."""
    found = parts.damaged(db, run_id)
    if not found:
        return None
    return UnreadableItems(
        items=sum(one.items for one in found),
        parts=tuple(map(str, found[:_NAMED])),
        more=len(found[_NAMED:]),
        run_id=run_id,
    )


def unreadable_statement(found: UnreadableItems) -> Statement:
    """What a headline says about them."""
    many = f"{found.items:,} {'item' if found.items == 1 else 'items'}"
    return Statement(
        kind="problem",
        text=f"The stored results of {many} are damaged ({found.parts[0]}"
        f"{' and others' if found.more or len(found.parts) > 1 else ''}): no example is one of "
        f"them, and tables that need each item leave them out. `transexplain resume "
        f"{found.run_id}` computes them again.",
    )


def _sentences(report: Any) -> Iterator[Statement]:
    """How many items are damaged in the store, where, and what mends them."""
    found = report.sections.get("unreadable")
    if found is not None:
        yield unreadable_statement(found)


_RULES: Mapping[type, RedactionRules] = {
    UnreadableItems: RedactionRules(fields=kept("items parts more run_id")),
}


SECTION = Section(
    template="unreadable.html.j2",
    links=(),
    redaction=_RULES,
    present=lambda report: "unreadable" in report.sections,
    sentences=_sentences,
    record=UnreadableItems,
    collect=lambda source: unreadable(source.db, source.run.id),
)
