"""Requests for pages, their answers, and the counts that are kept between requests."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from starlette.requests import Request

from orchestrator.monitoring.probes import BrokerQueues
from orchestrator.serve.gathered_totals import GatheredTotals
from orchestrator.serve.links import RefusedError, link, name_of
from orchestrator.serve.slow_desk import SlowDesk
from transexplain.store import browsing
from transexplain.store.browsing import ListedRun, PlanFacts
from transexplain.store.database import Database
from transexplain.store.ranked_items import ItemSearch, Ranking
from transexplain.types.items import ItemOutcome

T = TypeVar("T")
_PLANS = 256  #: whose facts are kept
_TOTALS = 8  #: runs whose counts are kept, some megabytes each where names were swapped
_RANKINGS = 16  #: of a thousand items at most, about half a megabyte each

_RankingKey = tuple[str, float | None, ItemSearch, str]


class RunningCounts:
    """Counts of runs: of finished runs kept within bounds, of others made each time."""

    def __init__(self) -> None:
        self._facts: dict[str, PlanFacts] = {}
        self._rankings: OrderedDict[_RankingKey, Ranking] = OrderedDict()
        self._totals: OrderedDict[tuple[str, float | None], GatheredTotals] = OrderedDict()
        self._lock = threading.Lock()

    def totals(self, db: Database, run: ListedRun, seconds: float) -> GatheredTotals:
        """The totals of a run's shards, after `seconds` more of reading."""
        totals = self._kept(
            self._totals, (run.id, run.finished), GatheredTotals(run.id), run, _TOTALS
        )
        totals.go_on(db, seconds)
        return totals

    def ranking(
        self,
        db: Database,
        run: ListedRun,
        filters: ItemSearch,
        order: str,
        keep: Callable[[ItemOutcome], Any],
        seconds: float,
    ) -> Ranking:
        """The ranking after `seconds` more of reading; of a run that works it begins anew."""
        key = (run.id, run.finished, filters, order)
        begun = Ranking(run.id, filters, order, keep)
        ranking = self._kept(self._rankings, key, begun, run, _RANKINGS)
        ranking.go_on(db, seconds)
        return ranking

    def _kept(self, held: OrderedDict[Any, T], key: Any, begun: T, run: ListedRun, most: int) -> T:
        """The kept value of a run, or `begun`; of a run that works nothing is kept."""
        if run.state == "running":
            return begun
        with self._lock:
            kept = held.setdefault(key, begun)
            held.move_to_end(key)
            while len(held) > most:
                held.popitem(last=False)
        return kept

    def facts(self, db: Database, run_id: str) -> PlanFacts:
        """The facts of an existing run; a plan may take long to read."""
        facts = self._facts.get(run_id)
        if facts is None:
            facts = browsing.plan_facts(db, run_id)
            with self._lock:
                if len(self._facts) >= _PLANS:
                    self._facts.clear()
                self._facts[run_id] = facts
        return facts


_BUDGET = 0.12  #: seconds from when a request came in which it looks for items
_LONGEST = 500  #: characters of a value in a query
_MOST = 2**31 - 1  #: the largest number in a query: a row of a dataset


class NotThereError(RefusedError):
    """No such page."""

    def __init__(self, text: str, back: tuple[str, str] = ("/", "all runs")) -> None:
        super().__init__(404, "Not found", text, back)


def names_of(request: Request) -> dict[str, str]:
    """The names in the path; raises NotThereError."""
    names = {name: name_of(str(value)) for name, value in request.path_params.items()}
    known = {name: value for name, value in names.items() if value is not None}
    if len(known) < len(names):
        raise NotThereError("This address holds a name that cannot be read.")
    return known


def run_called(db: Database, name: str) -> ListedRun:
    """A run by its id; raises NotThereError."""
    run = browsing.listed_run(db, name)
    if run is None:
        raise NotThereError(f"There is no run {name!r} in this store.")
    return run


class BadQueryError(RefusedError):
    """A value of the query cannot be read."""

    def __init__(self, text: str) -> None:
        super().__init__(422, "Invalid query", text)


@dataclass(frozen=True, slots=True)
class PageContent:
    """The answer of a page: its JSON, and more that only its template draws."""

    document: Mapping[str, Any]
    drawing: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PageRequest:
    """A request for a page."""

    db: Database
    names: Mapping[str, str]  #: of the path: run, group, ...
    query: Mapping[str, str]
    counts: RunningCounts  #: what earlier requests have counted
    slow: SlowDesk | None  #: makes what takes longer than a request has; None: switched off
    queue: str  #: first part of the queues' names
    broker: BrokerQueues | None  #: counts messages; None: there is no broker
    begun: float = field(default_factory=time.monotonic)  #: when the request came

    @cached_property
    def readable(self) -> bool:
        """Return whether the store's role may read texts."""
        return browsing.texts_readable(self.db)

    @cached_property
    def run(self) -> ListedRun:
        """The run of the path; raises NotThereError."""
        return run_called(self.db, self.names["run"])

    @cached_property
    def facts(self) -> PlanFacts:
        """The facts of the plan of the path's run, which exists."""
        return self.counts.facts(self.db, self.run.id)

    @cached_property
    def class_name(self) -> str:
        """The class of the path: of the plan, or of an item; raises NotThereError."""
        name = self.names["class"]
        known = name in self.facts.classes or bool(
            browsing.result_rows(self.db, "class_word", self.run.id, limit=1, class_name=name)
        )
        if not known and self.readable:
            totals = self.counts.totals(self.db, self.run, self.time_left)
            known = any(name in pair for pair in totals.predictions)
        if not known:
            raise NotThereError(f"Run {self.run.id} knows no class {name!r}.", self.run_page())
        return name

    @property
    def time_left(self) -> float:
        """Seconds that the request may still look for items; the wait for its turn counts."""
        return self.begun + _BUDGET - time.monotonic()

    def run_page(self) -> tuple[str, str]:
        """The link from a missing page below a run."""
        return link("runs", self.run.id), f"run {self.run.id}"

    def word(self, name: str) -> str:
        """A value of the query; "": it was not given. Raises BadQueryError where it is too long."""
        value = self.query.get(name, "").strip()
        if len(value) > _LONGEST:
            raise BadQueryError(f"{name} has more than {_LONGEST} characters.")
        return value

    def number(self, name: str) -> int:
        """A row of the query, 0 where none is given; raises BadQueryError."""
        value = self.word(name) or "0"
        if not (value.isascii() and value.isdigit()) or int(value) > _MOST:
            raise BadQueryError(f"{name} must be a row, a whole number from 0, not {value!r}.")
        return int(value)
