"""What the store says about schedules, their fires and the verdicts to post."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ScheduleState = Literal["active", "paused"]
PostState = Literal["waiting", "posted", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A schedule as a person asks for it."""

    name: str
    cron: str  #: minute hour day month weekday
    time_zone: str  #: of the cron expression, e.g. Europe/Berlin
    spec: Mapping[str, Any]  #: the resolved audit specification, paths absolute
    on_change: bool = False  #: no run where model and data are those of the run before
    webhook: str | None = None  #: where the verdict of a finished run is posted


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule(Planned):
    """A schedule as it stands; times are seconds since the epoch, database time."""

    state: ScheduleState
    created: float
    since: float  #: fires until then are settled
    error: str | None  #: why the audit could not be prepared the last time
    retry_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    """One fire of a schedule."""

    schedule: str
    at: float  #: what the cron expression named, or the moment of `run-now`
    created: float
    run_id: str | None  #: None: nothing had changed, or the run was deleted
    previous: str | None  #: the run to compare with
    post: PostState | None  #: of the verdict; None: nobody asked for it
    post_attempts: int
    posted: float | None
    post_error: str | None  #: of the last attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """The right to post one verdict, until its time is up."""

    fire: Fire
    run_id: str
    webhook: str
