"""Progress reports and stop requests of a shard's computation, and the caution after earlier
attempts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Caution:
    """What is known of a shard's items from attempts that died."""

    alone: frozenset[str] = frozenset()  #: ids of items that share a batch with no other
    accused: frozenset[str] = frozenset()  #: of these, in which an attempt ended already
    quarantined: Mapping[str, str] = field(default_factory=dict)  #: id -> why it is not run again
    tracebacks: Mapping[str, str] = field(default_factory=dict)  #: of these, where it is known


NO_CAUTION = Caution()


class Observer(Protocol):
    """Receives the progress of a shard, and decides whether it should stop."""

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """A batch is about to be computed: the breadcrumb if the process dies in it."""

    def check_started(self, item_ids: Sequence[str]) -> None:
        """As `batch_started`, of passes that finish no item: a control, a measure."""

    def item_done(self, *item_ids: str) -> None:
        """These items have their outcome or their failure: progress."""

    def should_stop(self) -> bool:
        """True when the work is to end before the next batch (cancel, lease lost, SIGTERM)."""
