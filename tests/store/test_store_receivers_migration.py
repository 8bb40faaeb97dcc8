"""Webhooks of earlier versions become receivers, what waited waits once, and the way back."""

import pytest
from sqlalchemy import Connection, insert, text
from store_samples import make_plan

from transexplain.errors import ConfigurationError
from transexplain.store import deliveries, revisions, runs, schedules
from transexplain.store.database import Database
from transexplain.store.deliveries import Receiver
from transexplain.store.schedules import Planned
from transexplain.store.schema import schedule_receiver

OLD = (
    "INSERT INTO schedule_fire (schedule, at, created, run_id, previous, post, post_attempts, "
    "post_at, posted, post_error) VALUES (:schedule, :at, :at, :run_id, NULL, :post, :attempts, "
    ":post_at, :posted, :error)"
)
OLD_ROWS = "SELECT * FROM schedule_fire ORDER BY schedule, at"


def old_schedule(connection: Connection, name: str, webhook: str | None) -> None:
    connection.execute(
        text(
            "INSERT INTO schedule (name, cron, time_zone, spec, state, on_change, webhook, "
            "created, since) VALUES (:name, '0 3 * * *', 'UTC', '{}', 'active', false, :webhook, "
            "1.0, 1.0)"
        ),
        {"name": name, "webhook": webhook},
    )


def old_fire(
    connection: Connection, at: float, run_id: str, post: str | None, **more: object
) -> None:
    usual = {"attempts": 0, "post_at": None, "posted": None, "error": None, "schedule": "nightly"}
    row = {"at": at, "run_id": run_id, "post": post}
    connection.execute(text(OLD), usual | row | more)


def fill(db: Database) -> str:
    """A store of revision 0013: fires that were posted, failed, wait, and have no webhook."""
    run_id = runs.create(db, make_plan(rows=0), ())
    assert runs.finalise(db, run_id)
    revisions.downgrade(db, "0013")
    with db.begin() as connection:
        old_schedule(connection, "nightly", "https://x.example/hook")
        old_schedule(connection, "quiet", None)
        old_fire(connection, 1.0, run_id, "posted", attempts=2, posted=9.0)
        old_fire(connection, 2.0, run_id, "failed", attempts=12, error="answered 500")
        old_fire(connection, 3.0, run_id, "waiting", attempts=1, post_at=4.0, error="answered 503")
        old_fire(connection, 4.0, run_id, None)
        old_fire(connection, 5.0, run_id, None, schedule="quiet")
    return run_id


def test_what_waited_is_delivered_once(db: Database) -> None:
    run_id = fill(db)
    revisions.upgrade(db)
    revisions.check(db)
    hook = Receiver(kind="json", address="https://x.example/hook")
    assert schedules.get(db, "nightly").receivers == (hook,)
    assert schedules.get(db, "quiet").receivers == ()
    found = {one.at: one.deliveries for one in schedules.fires(db, "nightly")}
    assert [len(found[at]) for at in (1.0, 2.0, 3.0, 4.0)] == [1, 1, 1, 0]
    assert (found[1.0][0].state, found[1.0][0].attempts, found[1.0][0].delivered) == (
        "posted",
        2,
        9.0,
    )
    assert (found[2.0][0].state, found[2.0][0].error) == ("failed", "answered 500")
    taken = deliveries.claim(db, 60)
    assert taken is not None
    assert (taken.run_id, taken.at, taken.attempts, taken.receiver) == (run_id, 3.0, 2, hook)
    assert deliveries.posted(db, taken)
    assert deliveries.claim(db, 60) is None


def test_states_are_still_checked_on_both_sides(db: Database) -> None:
    fill(db)
    revisions.upgrade(db)
    for statement in (
        "UPDATE schedule SET state = 'x'",
        "UPDATE fire_delivery SET state = 'x'",
        "UPDATE schedule_receiver SET kind = 'x'",
    ):
        with pytest.raises(Exception, match=r"(?i)check"), db.begin() as connection:
            connection.execute(text(statement))
    revisions.downgrade(db, "0013")
    for statement in ("UPDATE schedule SET state = 'x'", "UPDATE schedule_fire SET post = 'x'"):
        with pytest.raises(Exception, match=r"(?i)check"), db.begin() as connection:
            connection.execute(text(statement))


def test_down_and_up_changes_no_row(db: Database) -> None:
    fill(db)
    with db.read() as connection:
        before = connection.execute(text(OLD_ROWS)).mappings().all()
    revisions.upgrade(db)
    revisions.downgrade(db, "0013")
    with db.read() as connection:
        after = connection.execute(text(OLD_ROWS)).mappings().all()
        hooks = connection.execute(text("SELECT webhook FROM schedule ORDER BY name")).scalars()
        assert list(hooks) == ["https://x.example/hook", None]
    assert [dict(row) for row in after] == [dict(row) for row in before]
    revisions.upgrade(db)
    revisions.check(db)


@pytest.mark.parametrize(
    "receivers",
    [
        [Receiver(kind="slack", address="https://x.example/")],
        [Receiver(kind="json", address="https://x.example/")] * 2,
    ],
)
def test_going_back_is_refused_where_receivers_would_be_lost(
    db: Database, receivers: list[Receiver]
) -> None:
    planned = Planned(
        name="n", cron="0 3 * * *", time_zone="UTC", spec={}, receivers=tuple(receivers)
    )
    schedules.add(db, planned)
    with pytest.raises(ConfigurationError, match="other receivers: n"):
        revisions.downgrade(db, "0013")
    assert schedules.get(db, "n").receivers == tuple(receivers)
    schedules.remove(db, "n")
    revisions.downgrade(db, "0013")
    revisions.upgrade(db)


def test_a_receiver_without_its_schedule_cannot_be(db: Database) -> None:
    row = {"schedule": "none", "number": 1, "kind": "json", "address": "https://x.example/"}
    with pytest.raises(Exception, match=r"(?i)foreign key"), db.begin() as connection:
        connection.execute(insert(schedule_receiver).values(**row))
