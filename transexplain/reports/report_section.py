"""The base of a report's section: its data, template, sentences and redaction."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, cast

from transexplain.analysis.groups.shard_aggregate import ShardAggregate, merged_aggregates
from transexplain.reports.page import text_rows
from transexplain.reports.redaction import RedactionRules, Rule
from transexplain.reports.tables import Table
from transexplain.store import run_totals
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun
from transexplain.version import __version__


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionSource:
    """The run, store and totals that a section is collected from."""

    db: Database
    run: AuditRun
    total: ShardAggregate  #: of all saved shards


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNamed:
    """The run that a record is about."""

    run_id: str
    name: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInputs(RunNamed):
    """The run that a report is about, and its model and data."""

    finished: float | None
    plan_digest: str  #: sha256 of the plan
    version: str  #: of TransExplain, when the report was made
    model: str
    model_digest: str  #: sha256 over weights, config and tokenizer
    dtype: str
    device: str
    modality: str
    classes: tuple[str, ...]
    dataset: str
    fingerprint: str  #: sha256 of the dataset's snapshot


Record = TypeVar("Record")


def of_run(record: type[Record], run: AuditRun, **more: Any) -> Record:
    """A record of a run: `more`, and what run and plan say of its other fields."""
    plan, model, data = run.plan, run.plan.model, run.plan.dataset
    known = {
        **{name: getattr(plan, name) for name in _OF_PLAN},
        **{name: getattr(model, name) for name in _OF_MODEL},
        "run_id": run.id,
        "state": run.state,
        "created": run.created,
        "finished": run.finished,
        "plan_digest": plan.digest,
        "version": __version__,
        "model": model.source,
        "model_digest": model.digest,
        "dataset": data.source,
        "fingerprint": data.fingerprint,
        "rows": data.rows,
        "root": data.root,
        "method": plan.method.name,
    }
    names = {field.name for field in fields(record)}  # type: ignore[arg-type]
    return record(**{name: value for name, value in known.items() if name in names} | more)


_OF_PLAN = (
    *("name", "targets", "long_text", "max_length", "window", "stride"),
    *("long_text_join", "task"),
)
_OF_MODEL = ("dtype", "device", "modality", "classes", "head")


def merged(db: Database, run_id: str) -> ShardAggregate:
    """The aggregates of every saved shard together."""
    with uncollected():
        return merged_aggregates(run_totals.aggregates(db, run_id))


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


StatementKind = Literal["fact", "good", "problem", "flagged", "clear", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One sentence of the headline."""

    kind: StatementKind
    text: str


def statements(template: str, **names: Any) -> Iterator[Statement]:
    """The statements of a text template, whose paragraphs are a kind, a broken bar and a text."""
    for row in text_rows(template, **names):
        if len(row) == 2:  # a template of which nothing is left has one row without a text
            yield Statement(kind=cast(StatementKind, row[0]), text=row[1])


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
    sentences: Callable[[Any], Iterable[Any]] = lambda _report: ()
    record: type | None = None
    collect: Callable[[SectionSource], Any] | None = None  #: gives a record; None: nothing to show
    #: tables of the record in an export as CSV
    tables: Callable[[Any], Iterable[Table]] = lambda _report: ()

    def is_linked(self, report: Any) -> bool:
        """Return whether the navigation of this report names it."""
        return (self.linked or self.present)(report)
