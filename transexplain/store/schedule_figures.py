"""What the last finished run of each schedule found beside the run before it."""

from dataclasses import dataclass

from sqlalchemy import func, select

from transexplain.store.database import Database
from transexplain.store.result_tables import run_metric, run_result
from transexplain.store.schema import run, schedule_fire

#: names of `run_metric`: what of a run is compared with the run before
NEWLY, GONE = "groups_newly_flagged", "groups_no_longer_flagged"
CHANGED = "changed_predictions"


@dataclass(frozen=True, kw_only=True, slots=True)
class LastFound:
    """The newest run of a schedule that is over and has its rows for SQL."""

    schedule: str
    run_id: str
    finished: float  #: seconds since the epoch
    verdict: str  #: kind: flagged, clear, problem, unknown or fact
    #: groups whose mention newly changes the prediction or whose outcome newly differs; None: there
    #: is no run before
    newly: int | None
    gone: int | None  #: groups of which either was so before and is not now
    changed: float | None  #: share of common items that are predicted otherwise, 0 to 1


def last_found(db: Database) -> list[LastFound]:
    """By name of the schedule; raises DatabaseError as `Database.read`."""
    newest = (
        select(schedule_fire.c.schedule, func.max(schedule_fire.c.at).label("at"))
        .join(run, run.c.id == schedule_fire.c.run_id)
        .join(run_result, run_result.c.run_id == run.c.id)
        .where(run.c.state == "done")
        .group_by(schedule_fire.c.schedule)
        .subquery()
    )
    query = (
        select(schedule_fire.c.schedule, run.c.id, run.c.finished, run_result.c.verdict_kind)
        .join_from(
            schedule_fire,
            newest,
            (schedule_fire.c.schedule == newest.c.schedule) & (schedule_fire.c.at == newest.c.at),
        )
        .join(run, run.c.id == schedule_fire.c.run_id)
        .join(run_result, run_result.c.run_id == run.c.id)
        .order_by(schedule_fire.c.schedule)
    )
    with db.read() as connection:
        rows = connection.execute(query).all()
        wanted = select(run_metric.c.run_id, run_metric.c.name, run_metric.c.value).where(
            run_metric.c.run_id.in_([row.id for row in rows]),
            run_metric.c.name.in_((NEWLY, GONE, CHANGED)),
        )
        values = {(one.run_id, one.name): one.value for one in connection.execute(wanted)}
    return [
        LastFound(
            schedule=row.schedule,
            run_id=row.id,
            finished=float(row.finished or 0.0),
            verdict=row.verdict_kind,
            newly=_count(values.get((row.id, NEWLY))),
            gone=_count(values.get((row.id, GONE))),
            changed=values.get((row.id, CHANGED)),
        )
        for row in rows
    ]


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)
