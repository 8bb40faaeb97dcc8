"""The place of a run among others that want workers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePlace:
    """What decides whose shard a worker takes next, where several runs wait."""

    priority: int = 0  #: higher first
    share: float = 1.0  #: above 0: shards in hand are divided by it among runs of one priority
    most_workers: int | None = None  #: shards in hand at once; None: no cap


NO_PREFERENCE = QueuePlace()
