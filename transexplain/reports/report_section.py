"""What a section of an audit's report is made of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.redaction import RedactionRules
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What a section is collected from."""

    db: Database
    run: AuditRun
    total: ShardAggregate  #: of all saved shards


def _nothing(_report: Any) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One section; its functions take the whole report, a `records.Summary`.

    They take it as Any, because a Summary is made of the records of sections. Other parts of the
    software read some records by name: those are fields of Summary, and `summarise` collects them.
    Every other section has `record` and `collect`, and stands in `Summary.sections` by its name.
    """

    template: str
    links: tuple[tuple[str, str], ...]  #: (anchor, title) in the page's navigation
    redaction: Mapping[type, RedactionRules]  #: of its records
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
        """Whether the navigation of this report names it."""
        return (self.linked or self.present)(report)
