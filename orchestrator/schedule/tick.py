"""Starts the runs that are due on the schedules, once each, and repeats this in a loop."""

import logging
import re
from collections.abc import Sequence

from orchestrator.dispatch import queue
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.schedule import verdict_posts
from orchestrator.schedule.fire_times import check, latest
from orchestrator.schedule.verdict_posts import deliver
from orchestrator.spec import AuditSpec, load_spec
from transexplain.errors import ConfigurationError, DatabaseError, TransExplainError
from transexplain.files.paths import AnyPath
from transexplain.reports.sql_results import close_forgotten
from transexplain.settings import Settings
from transexplain.store import runs, schedules
from transexplain.store.database import Database
from transexplain.store.schedules import Planned, Receiver, Schedule
from transexplain.types.plans import AuditPlan
from workers.beat import PeriodicTasks

#: seconds after which an audit that could not be prepared is tried again
RETRY = 300.0

log = logging.getLogger(__name__)


#: a due schedule, its run and its error; neither: nothing had changed
FireResult = tuple[str, str | None, str | None]


def tick(db: Database, settings: Settings) -> list[FireResult]:
    """Make the runs that are due; of several missed fires of a schedule only the latest.

    A schedule whose audit cannot be prepared keeps its error and is tried again later; the others
    go on. Sends no messages: the sweep does.
    """
    now = schedules.now(db)
    fired = []
    for schedule in schedules.ready(db):
        try:
            at = latest(schedule.cron, schedule.time_zone, now)
            if at is None or at <= schedule.since:
                continue
            if outcome := _fire(db, settings, schedule, at):
                fired.append(outcome)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001 - written to the schedule's row, seen in `list`
            ours = isinstance(error, TransExplainError)
            message = str(error) if ours else f"{type(error).__name__}: {error}"
            log.error("schedule %s: %s", schedule.name, message)
            schedules.fail(db, schedule.name, message, RETRY)
            fired.append((schedule.name, None, message))
    return fired


def run_now(db: Database, settings: Settings, name: str) -> str:
    """Make a run of the schedule outside its cadence, changed or not; returns its id."""
    due = schedules.get(db, name)
    prepared = _prepare(due, settings)
    previous = schedules.last_run(db, name)
    return schedules.fire_now(db, due, (prepared.plan, prepared.shards), previous, prepared.place)


def _fire(db: Database, settings: Settings, due: Schedule, at: float) -> FireResult | None:
    """The result of the fire in this process; None: another one was faster."""
    prepared = _prepare(due, settings)
    previous = schedules.last_run(db, due.name)
    if due.on_change and previous and _same(runs.get(db, previous).plan, prepared.plan):
        skipped = schedules.skip(db, due, at, previous)
        return (due.name, None, None) if skipped else None
    audit = (prepared.plan, prepared.shards)
    run_id = schedules.fire(db, due, at, audit, previous, prepared.place)
    return (due.name, run_id, None) if run_id else None


def _prepare(due: Schedule, settings: Settings) -> PreparedAudit:
    return _prepared(due.name, AuditSpec.from_document(due.spec), settings)


def _prepared(name: str, audit: AuditSpec, settings: Settings) -> PreparedAudit:
    """The audit of a schedule, prepared; its warnings are logged."""
    prepared = prepare_audit(audit, settings)
    for warning in prepared.warnings:
        log.warning("schedule %s: %s", name, warning)
    return prepared


def _same(before: AuditPlan, after: AuditPlan) -> bool:
    """Return whether the weights and the rows are those of the run before."""
    same_model = before.model.digest == after.model.digest
    return same_model and before.dataset.fingerprint == after.dataset.fingerprint


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_schedule(  # noqa: PLR0913 - what a schedule is made of
    db: Database,
    settings: Settings,
    *,
    name: str,
    spec: AnyPath,
    overrides: Sequence[str] = (),
    cron: str,
    time_zone: str = "UTC",
    on_change: bool = False,
    receivers: Sequence[Receiver] = (),
) -> Schedule:
    """Check and write a schedule; its audit is prepared once, as `validate` does.

    `overrides` are `a.b=c` texts. Raises ConfigurationError: the name, the cron expression, the
    time zone, a receiver or the audit is wrong, or the name is taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"schedule name {name!r}: write up to 64 letters, digits, dots, hyphens, underscores"
        )
    check(cron, time_zone)
    for receiver in receivers:
        verdict_posts.check_receiver(receiver)
    audit = load_spec(spec, settings=overrides).absolute()
    _prepared(name, audit, settings.planning_only())
    planned = Planned(
        name=name,
        cron=cron,
        time_zone=time_zone,
        spec=audit.model_dump(mode="json"),
        on_change=on_change,
        receivers=tuple(receivers),
    )
    schedules.add(db, planned)
    return schedules.get(db, name)


def periodic_tasks(db: Database, settings: Settings, every: float) -> PeriodicTasks:
    """The tick, every `every` seconds, and the sweep, as often as allowed.

    With the tick goes what takes its time: verdicts, and rows for SQL that nobody wrote.
    """

    def tick_and_log() -> None:
        fired_any = any(run_id for _, run_id, _ in tick(db, settings))
        deliver(db)
        if fired_any:  # last: an absent broker must not delay verdicts; the sweep sends later
            queue.top_up(db, settings)
        close_forgotten(db)

    return {
        "transexplain.tick": (tick_and_log, every),
        "transexplain.sweep": (lambda: queue.sweep(db, settings), queue.EVERY),
    }
