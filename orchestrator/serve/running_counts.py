"""What requests leave for the next ones: counts and rankings that take longer than a request has,
and facts of plans, which never change.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from transexplain.store import browsing
from transexplain.store.browsing import ListedRun, PlanFacts
from transexplain.store.database import Database
from transexplain.store.gathered_totals import GatheredTotals
from transexplain.store.item_matching import ItemSearch
from transexplain.store.ranked_items import Ranking
from transexplain.types.items import ItemOutcome

T = TypeVar("T")
_PLANS = 256  #: whose facts are kept
_TOTALS = 8  #: runs whose counts are kept, some megabytes each where names were swapped
_RANKINGS = 16  #: of a thousand items at most, about half a megabyte each

_RankingKey = tuple[str, float | None, ItemSearch, str]


class RunningCounts:
    """Of finished runs kept while the process lives, within bounds; of others made each time."""

    def __init__(self) -> None:
        self._facts: dict[str, PlanFacts] = {}
        self._rankings: OrderedDict[_RankingKey, Ranking] = OrderedDict()
        self._totals: OrderedDict[tuple[str, float | None], GatheredTotals] = OrderedDict()
        self._lock = threading.Lock()

    def totals(self, db: Database, run: ListedRun, seconds: float) -> GatheredTotals:
        """What the shards of a run have counted, after `seconds` more of reading."""
        found = self._kept(
            self._totals, (run.id, run.finished), GatheredTotals(run.id), run, _TOTALS
        )
        found.go_on(db, seconds)
        return found

    def ranking(
        self,
        db: Database,
        run: ListedRun,
        wanted: ItemSearch,
        order: str,
        keep: Callable[[ItemOutcome], Any],
        seconds: float,
    ) -> Ranking:
        """What is known after `seconds` more of reading; of a run that works begun anew."""
        key = (run.id, run.finished, wanted, order)
        begun = Ranking(run.id, wanted, order, keep)
        found = self._kept(self._rankings, key, begun, run, _RANKINGS)
        found.go_on(db, seconds)
        return found

    def _kept(self, held: OrderedDict[Any, T], key: Any, begun: T, run: ListedRun, most: int) -> T:
        """What is held of a run, or `begun`; of a run that works nothing is kept."""
        if run.state == "running":
            return begun
        with self._lock:
            found = held.setdefault(key, begun)
            held.move_to_end(key)
            while len(held) > most:
                held.popitem(last=False)
        return found

    def facts(self, db: Database, run_id: str) -> PlanFacts:
        """Of the run with exactly this id, which must be there; a plan may take long to read."""
        found = self._facts.get(run_id)
        if found is None:
            found = browsing.plan_facts(db, run_id)
            with self._lock:
                if len(self._facts) >= _PLANS:
                    self._facts.clear()
                self._facts[run_id] = found
        return found
