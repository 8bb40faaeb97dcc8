"""A shard in hand, and who watches it while it is computed."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transexplain.plans import AuditPlan
from transexplain.store.records import Claim
from workers.lease import LeaseKeeper
from workers.read_ahead import ReadAhead

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel

#: share of a shard's items after which the next is claimed: earlier would keep it from others
NEAR_END = 0.75


@dataclass(kw_only=True, slots=True)
class Held:
    """A claimed shard whose lease is kept, and its items as far as they are read."""

    claim: Claim
    plan: AuditPlan
    keeper: LeaseKeeper
    model: "LoadedModel | None"  #: None: its attributions were imported
    items: ReadAhead | None  #: None: read one by one when their turn comes, as caution asks

    def release(self) -> None:
        """Stop reading and renewing; what becomes of the claim is said elsewhere."""
        if self.items is not None:
            self.items.close()
        self.keeper.__exit__(None, None, None)


class Watch:
    """Observer of the shard being computed; near its end it asks for the next, once."""

    def __init__(self, held: Held, claim_next: Callable[[], "Future[Held | None]"]) -> None:
        self._keeper = held.keeper
        shard = held.claim.shard
        self._left = math.ceil((shard.stop - shard.start) * NEAR_END)
        self._claim_next = claim_next
        self.next: Future[Held | None] | None = None

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """Progress; the shard that waits does not hang either."""
        self._keeper.batch_started(item_ids)
        ahead = self.next
        known = ahead is not None and ahead.done() and not ahead.exception()
        if ahead is not None and known and (waiting := ahead.result()):
            waiting.keeper.touch()

    def item_done(self, item_id: str) -> None:
        """Progress, and after enough of it the next shard."""
        self._keeper.item_done(item_id)
        self._left -= 1
        if self._left <= 0 and self.next is None:
            self.next = self._claim_next()

    def should_stop(self) -> bool:
        """As the keeper says."""
        return self._keeper.should_stop()
