"""Shards whose stored results are not those that were saved: which, and what mends them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.errors import ObjectStoreError
from transexplain.reports.phrasing import counted
from transexplain.reports.redaction import RedactionRules, kept
from transexplain.reports.report_section import Section, Statement
from transexplain.store import shard_digests, sink_files
from transexplain.store.database import Database

_NAMED = 10  #: shards and files in the lists


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableItems:
    """Shards that were lost, doubled, swapped or changed, and lost files of a sink."""

    items: int  #: of these shards
    parts: tuple[str, ...]  #: which they are and what is wrong, the first ones
    more: int  #: shards beyond those
    files: tuple[str, ...]  #: of the sink that are not there, though the store has their results
    more_files: int  #: files beyond those
    run_id: str


def unreadable(db: Database, run_id: str) -> UnreadableItems | None:
    """The damaged shards of a run, of which every byte is read; None: all is as it was saved."""
    found = shard_digests.damaged(db, run_id)
    files = [] if sink_files.alone(db, run_id) else _lost_files(db, run_id)
    if not found and not files:
        return None
    return UnreadableItems(
        items=sum(one.stop - one.start for one in found),
        parts=tuple(map(str, found[:_NAMED])),
        more=len(found[_NAMED:]),
        files=tuple(files[:_NAMED]),
        more_files=len(files[_NAMED:]),
        run_id=run_id,
    )


def _lost_files(db: Database, run_id: str) -> list[str]:
    try:
        return [one.name for one in sink_files.missing(db, run_id)]
    except ObjectStoreError as error:
        return [f"none of them can be seen ({error})"]


def damage(found: UnreadableItems | None) -> str:
    """What a reader has to know before anything else; "": nothing."""
    if found is None or not found.parts:
        return ""
    many = len(found.parts) + found.more
    return (
        f"Do not rely on this report: the stored results of {counted(many, 'shard')} "
        f"({counted(found.items, 'item')}) are not those that were saved. "
        f"`transexplain resume {found.run_id}` computes them again."
    )


def unreadable_statements(found: UnreadableItems | None) -> Iterator[Statement]:
    """What a headline says first."""
    if text := damage(found):
        assert found is not None
        more = " and others" if found.more or len(found.parts) > 1 else ""
        yield Statement(kind="problem", text=f"{text} Damaged: {found.parts[0]}{more}.")
    if found is not None and found.files:
        more = f" and {found.more_files} more" if found.more_files else ""
        yield Statement(
            kind="problem",
            text=f"Files of the sink are missing: {', '.join(found.files)}{more}. The results are "
            f"in the database; `transexplain resume {found.run_id}` writes the files again.",
        )


def _sentences(report: Any) -> Iterator[Statement]:
    return unreadable_statements(report.sections.get("unreadable"))


_RULES: Mapping[type, RedactionRules] = {
    UnreadableItems: RedactionRules(fields=kept("items parts more files more_files run_id")),
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
