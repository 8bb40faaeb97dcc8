"""The lease keeper: renews a claim from its own thread while the work makes progress."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from transexplain.errors import DatabaseError
from transexplain.store import shards
from transexplain.store.database import Database
from transexplain.store.records import Claim


class LeaseKeeper:
    """Observer of one shard's work that holds its lease.

    The lease is renewed at a third of its length, as long as an item was finished within
    `item_deadline` seconds; a hang therefore loses its lease. When the lease is lost or the run
    cancelled, `should_stop` turns true and the work ends before its next batch.
    """

    def __init__(
        self,
        db: Database,
        claim: Claim,
        *,
        lease_seconds: float,
        item_deadline: float,
        on_item: Callable[[], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._db = db
        self._claim = claim
        self._lease_seconds = lease_seconds
        self._item_deadline = item_deadline
        self._on_item = on_item
        self._asked_to_stop = stop or threading.Event()
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """A batch begins: counts as progress."""
        self._moved = time.monotonic()

    def item_done(self, item_id: str) -> None:
        """An item ended: progress."""
        self._moved = time.monotonic()
        if self._on_item is not None:
            self._on_item()

    def should_stop(self) -> bool:
        """Whether the lease is lost, the run cancelled, or the process asked to end."""
        return self._lost.is_set() or self._asked_to_stop.is_set()

    @property
    def lost(self) -> bool:
        """Whether another worker may hold the shard now."""
        return self._lost.is_set()

    def _keep(self) -> None:
        while not self._ended.wait(self._lease_seconds / 3):
            if time.monotonic() - self._moved > self._item_deadline:
                self._lost.set()
                return
            try:
                renewed = shards.renew(self._db, self._claim, self._lease_seconds)
            except DatabaseError:
                continue  # the lease still stands; the next beat or the save will tell
            if not renewed:
                self._lost.set()
                return
