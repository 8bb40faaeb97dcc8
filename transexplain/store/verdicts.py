"""Verdicts of scheduled runs that are to be posted: claimed before, recorded after."""

from dataclasses import fields

from sqlalchemy import or_, select, update
from sqlalchemy.sql import Update

from transexplain.store.columns import DatabaseTime, is_due
from transexplain.store.database import Database
from transexplain.store.schedule_records import Delivery, Fire
from transexplain.store.schedule_tables import schedule, schedule_fire
from transexplain.store.schema import run

_LONGEST_BETWEEN_POSTS = 24 * 3600.0  # seconds; no attempt is put off further


def claim(db: Database, seconds: float) -> Delivery | None:
    """Take a verdict that nobody else posts, for `seconds`; counts as an attempt. None: no more.

    Only of runs that are over. A poster that dies leaves its verdict to the next after that time.
    """
    ready = (
        select(schedule_fire, schedule.c.webhook)
        .join(run, run.c.id == schedule_fire.c.run_id)
        .join(schedule, schedule.c.name == schedule_fire.c.schedule)
        .where(
            schedule_fire.c.post == "waiting",
            or_(
                schedule_fire.c.post_at.is_(None),
                is_due(schedule_fire.c.post_at, _LONGEST_BETWEEN_POSTS),
            ),
            run.c.state != "running",
        )
        .order_by(schedule_fire.c.created)
        .limit(1)
        .with_for_update(skip_locked=True, of=schedule_fire)
    )
    with db.begin() as connection:
        row = connection.execute(ready).mappings().first()
        if row is None:
            return None
        attempts = row["post_attempts"] + 1
        connection.execute(
            update(schedule_fire)
            .where(
                schedule_fire.c.schedule == row["schedule"],
                schedule_fire.c.at == row["at"],
            )
            .values(post_attempts=attempts, post_at=DatabaseTime() + seconds)
        )
    known = {field.name: row[field.name] for field in fields(Fire)}
    return Delivery(
        fire=Fire(**(known | {"post_attempts": attempts})),
        run_id=row["run_id"],
        webhook=row["webhook"],
    )


def posted(db: Database, delivery: Delivery) -> bool:
    """Record that the receiver took it; False: it took too long and another may post it, too."""
    with db.begin() as connection:
        done = connection.execute(
            _ours(delivery).values(
                post="posted", posted=DatabaseTime(), post_at=None, post_error=None
            )
        )
        return done.rowcount == 1


def not_posted(db: Database, delivery: Delivery, error: str, retry_seconds: float | None) -> None:
    """Record why not; tried again after `retry_seconds`, or never more where that is None."""
    values = (
        {"post": "failed", "post_at": None}
        if retry_seconds is None
        else {"post_at": DatabaseTime() + retry_seconds}
    )
    with db.begin() as connection:
        connection.execute(_ours(delivery).values(**values, post_error=error))


def _ours(delivery: Delivery) -> Update:
    """The fire, unless another attempt has begun since."""
    return update(schedule_fire).where(
        schedule_fire.c.schedule == delivery.fire.schedule,
        schedule_fire.c.at == delivery.fire.at,
        schedule_fire.c.post == "waiting",
        schedule_fire.c.post_attempts == delivery.fire.post_attempts,
    )
