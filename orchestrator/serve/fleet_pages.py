"""Pages of who works and when: the fleet, and the schedules."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from orchestrator.schedule.fire_times import overdue, upcoming
from orchestrator.serve.asked import Answer, Asked
from transexplain.errors import ConfigurationError
from transexplain.store import browsing_fleet, fleet_state
from transexplain.types.device_time import together
from workers.queue_names import queue_name

_RUNS = 50  #: that run, the newest
_FIRES = 5  #: of each schedule
_LATE = 900.0  #: seconds after which a fire without a run is missed, as in ops/alerts.yml


def fleet(asked: Asked) -> Answer:
    """Workers and their rates, what their devices waited for, and the shards that are left."""
    db, recent = asked.db, fleet_state.RECENT
    if asked.broker is not None:
        asked.broker.begin()  # meanwhile the database is read
    found = fleet_state.status(db, items=asked.readable)
    every = together(found.devices)
    rates = browsing_fleet.worker_rates(db, recent)
    known = [one.rate for one in rates if one.rate is not None]
    running = browsing_fleet.running_runs(db, _RUNS)
    messages = None if asked.broker is None else asked.broker.waiting()
    return Answer(
        {
            "recent_seconds": recent,
            "runs": found.runs,
            "shards": found.shards,
            "queued": found.shards["queued"],
            "expired": found.expired,
            "items_explained": found.explained,
            "failures": found.failed if asked.readable else None,
            "refused": found.refused if asked.readable else None,
            "claims": found.claims,
            "items_a_second": sum(known) if known else None,
            "workers": found.workers,
            "rates": [
                {
                    "worker": one.worker,
                    "shards": one.shards,
                    "items": one.items,
                    "seconds": one.seconds,
                    "rate": one.rate,
                }
                for one in rates
            ],
            "devices": [{**one.document, "stages": one.stages} for one in found.devices],
            "waited": every.waited,
            "running": running,
            "queues": _queues(asked, running, messages),
            "broker": None if asked.broker is None else messages is not None,
        }
    )


def _queues(
    asked: Asked, running: Sequence[Mapping[str, Any]], messages: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    """Of each queue with work: shards of these runs by SQL, and messages at the broker."""
    shards: dict[str, Counter[str]] = {
        name: Counter() for name, count in (messages or {}).items() if count
    }
    for one in running:
        facts = asked.counts.facts(asked.db, one["id"])
        found = shards.setdefault(queue_name(asked.queue, facts.modality, facts.device), Counter())
        found.update({"queued": one["queued"], "in_work": one["in_work"]})
    return [
        {
            "queue": name,
            "shards_queued": found["queued"],
            "shards_in_work": found["in_work"],
            "messages": None if messages is None else messages.get(name, 0),
        }
        for name, found in sorted(shards.items())
    ]


def schedules(asked: Asked) -> Answer:
    """Every schedule: when it fires next, and what its last runs found."""
    db, now = asked.db, time.time()
    return Answer(
        {
            "now": now,
            "late_after": _LATE,
            "schedules": [
                {
                    **row,
                    **_fires(row, now),
                    "receivers": browsing_fleet.receiver_rows(db, row["name"]),
                    "fires": browsing_fleet.fire_rows(db, row["name"], _FIRES),
                }
                for row in browsing_fleet.schedule_rows(db, errors=asked.readable)
            ],
        }
    )


def _fires(row: Mapping[str, Any], now: float) -> dict[str, float | None]:
    """When it fires next, and since how many seconds a fire has made no run."""
    found: dict[str, float | None] = {"next": None, "overdue": 0.0}
    if row["state"] != "paused":
        with suppress(ConfigurationError):  # this machine lacks the time zone; the tick says so
            found["next"] = next(upcoming(row["cron"], row["time_zone"], now), None)
            found["overdue"] = overdue(row["cron"], row["time_zone"], row["since"], now)
    return found
