"""Pages of who works and when: the fleet, and the schedules."""

import time
from contextlib import suppress
from typing import Any

from orchestrator.schedule.fire_times import upcoming
from orchestrator.serve.asked import Answer, Asked
from transexplain.errors import ConfigurationError
from transexplain.store import browsing_fleet, fleet_state
from transexplain.types.device_time import together

_RUNS = 50
_FIRES = 5  #: of each schedule


def fleet(asked: Asked) -> Answer:
    """Workers and their rates, what their devices waited for, and the shards that are left."""
    db, recent = asked.db, fleet_state.RECENT
    found = fleet_state.status(db, items=asked.readable)
    every = together(found.devices)
    rates = browsing_fleet.worker_rates(db, recent)
    known = [one.rate for one in rates if one.rate is not None]
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
            "running": browsing_fleet.running_runs(db, _RUNS),
        }
    )


def schedules(asked: Asked) -> Answer:
    """Every schedule: when it fires next, and what its last runs found."""
    db, now = asked.db, time.time()
    return Answer(
        {
            "now": now,
            "schedules": [
                {
                    **row,
                    "next": _next(row, now),
                    "receivers": browsing_fleet.receiver_rows(db, row["name"]),
                    "fires": browsing_fleet.fire_rows(db, row["name"], _FIRES),
                }
                for row in browsing_fleet.schedule_rows(db, errors=asked.readable)
            ],
        }
    )


def _next(row: dict[str, Any], now: float) -> float | None:
    if row["state"] == "paused":
        return None
    with suppress(ConfigurationError):  # an earlier version took it; the tick says what is wrong
        return next(upcoming(row["cron"], row["time_zone"], now), None)
    return None
