"""What the store says about runs, shards and their totals."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from transexplain.types.observer import Caution
from transexplain.types.plans import RunState, Shard

SHARD_STATES = ("queued", "running", "done", "dead", "cancelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The right to save one shard's result, until another claim of it raises the token."""

    run_id: str
    shard: Shard
    token: int
    attempt: int  #: 1 for the first
    caution: Caution = field(default_factory=Caution)  #: what attempts that died have taught


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardStatus:
    """One shard as it stands."""

    shard: Shard
    state: str  #: queued | running | done | dead | cancelled
    attempt: int
    worker: str | None  #: the last that claimed it
    lease_left: float | None  #: seconds; negative: expired; None: nobody holds it
    error: str | None  #: of the last attempt that failed
    seconds: float | None  #: computing, of the attempt that was saved
    fruitless: int = 0  #: attempts that ended without progress, since the last that made any
    breadcrumb: tuple[str, ...] = ()  #: ids of the items in hand, or that a dead attempt had
    caution: Caution = field(default_factory=Caution)  #: for the next attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgress:
    """How far a run is."""

    run_id: str
    name: str
    state: RunState
    states: Mapping[str, int]  #: shard state -> count, every state named
    items_done: int  #: explained and saved; failed ones not among them
    items_failed: int  #: saved as failures
    items_total: int  #: rows of the dataset
    seconds: float  #: computing, summed over the saved shards
    elapsed: float  #: seconds since the run was created, until it finished
    workers: int  #: distinct holders of shards now


@dataclass(frozen=True, kw_only=True, slots=True)
class ConservationSummary:
    """How well the ledgers of a run close, over all attributions that have one."""

    n: int
    max_relative_gap: float  #: largest |gap| / magnitude
    mean_relative_gap: float
    above: int  #: ledgers whose relative gap is larger than the tolerance asked for; 0: none was
    worst_item: str  #: id of the item with the largest
    sums: Mapping[str, float]  #: ledger entry (inputs ... gap, magnitude) -> sum, in logits
    absolute: Mapping[str, float]  #: the same of absolute values
