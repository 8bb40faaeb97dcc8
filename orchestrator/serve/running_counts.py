"""What requests leave for the next ones: counts that take longer than a request has, and facts of
plans, which never change.
"""

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from transexplain.store import browsing, browsing_items
from transexplain.store.browsing import ListedRun, PlanFacts
from transexplain.store.database import Database

_HELD = 64  #: runs whose counts are kept
_PLANS = 256  #: whose facts are kept


@dataclass
class Confusions:
    """Explained items by label and prediction, of the rows that were looked at."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  #: "" : no label
    next_row: int | None = 0  #: None: all of them
    lock: threading.Lock = field(default_factory=threading.Lock)


class RunningCounts:
    """Confusions of finished runs, kept while the process lives; of others counted each time."""

    def __init__(self) -> None:
        self._facts: dict[str, PlanFacts] = {}
        self._held: OrderedDict[tuple[str, float | None], Confusions] = OrderedDict()
        self._lock = threading.Lock()

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

    def confusions(self, db: Database, run: ListedRun, seconds: float) -> Confusions:
        """What is known after `seconds` more of counting."""
        key = (run.id, run.finished)
        with self._lock:
            found = self._held.setdefault(key, Confusions())
            self._held.move_to_end(key)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            if run.state == "running":  # more is saved meanwhile, among rows that were seen
                del self._held[key]
        if found.next_row is not None and found.lock.acquire(timeout=max(0.0, seconds)):
            try:
                if found.next_row is not None:
                    more, following = browsing_items.predictions(
                        db, run.id, start=found.next_row, seconds=seconds
                    )
                    found.counts.update(more)
                    found.next_row = following
            finally:
                found.lock.release()
        return found
