"""The base of a report's section: its data, template, sentences and redaction."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from transexplain.analysis.groups.merged_aggregates import merged_aggregates
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.redaction import RedactionRules, Rule
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The run, store and totals that a section is collected from."""

    db: Database
    run: AuditRun
    total: ShardAggregate  #: of all saved shards


def merged(db: Database, run_id: str) -> ShardAggregate:
    """The aggregates of every saved shard together."""
    with uncollected():
        return merged_aggregates(results.aggregates(db, run_id))


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: totals have no cycles, and the search for them is slow."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _nothing(_report: Any) -> tuple[Any, ...]:
    return ()


StatementKind = Literal["fact", "good", "problem", "flagged", "clear", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One sentence of the headline."""

    kind: StatementKind
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One section; its functions take the whole report, a `report_records.Summary`.

    They take it as Any, because a Summary is made of the records of sections. Other parts of the
    software read some records by name: those are fields of Summary, and `summarise` collects them.
    Every other section has `record` and `collect`, and stands in `Summary.sections` by its name.
    """

    template: str
    links: tuple[tuple[str, str], ...]  #: (anchor, title) in the page's navigation
    redaction: Mapping[type, RedactionRules]  #: of its records
    #: redaction of the fields of Summary that are this section's
    of_summary: Mapping[str, Rule] = field(default_factory=dict)
    #: whether the page has it
    present: Callable[[Any], bool] = lambda _report: True
    #: whether the navigation has it; None: where the page has
    linked: Callable[[Any], bool] | None = None
    #: what its template needs besides the words of every page
    drawing: Callable[[Any], Mapping[str, Any]] = lambda _report: {}
    #: what it adds to the headline
    sentences: Callable[[Any], Iterable[Any]] = _nothing
    record: type | None = None
    collect: Callable[[Source], Any] | None = None  #: gives a record; None: nothing to show

    def is_linked(self, report: Any) -> bool:
        """Return whether the navigation of this report names it."""
        return (self.linked or self.present)(report)
