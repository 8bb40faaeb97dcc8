"""Pages of the fleet and of the schedules."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from orchestrator.schedule.fire_times import overdue, upcoming
from orchestrator.serve.page_request import PageContent, PageRequest
from transexplain.errors import ConfigurationError
from transexplain.store import browsing_fleet, fleet_state
from transexplain.types.device_time import together
from workers.queue_names import queue_name

_RUNS = 50  #: that run, the newest
_FIRES = 5  #: of each schedule
_LATE = 900.0  #: seconds after which a fire without a run is missed, as in ops/alerts.yml


def fleet(request: PageRequest) -> PageContent:
    """Workers and their rates, what their devices waited for, and the shards that are left."""
    db, recent = request.db, fleet_state.RECENT
    if request.broker is not None:
        request.broker.begin()  # meanwhile the database is read
    status = fleet_state.status(db, items=request.readable)
    every = together(status.devices)
    rates = browsing_fleet.worker_rates(db, recent)
    known = [rate.rate for rate in rates if rate.rate is not None]
    running = browsing_fleet.running_runs(db, _RUNS)
    messages = None if request.broker is None else request.broker.waiting()
    return PageContent(
        {
            "recent_seconds": recent,
            "runs": status.runs,
            "shards": status.shards,
            "queued": status.shards["queued"],
            "expired": status.expired,
            "items_explained": status.explained,
            "failures": status.failed if request.readable else None,
            "refused": status.refused if request.readable else None,
            "claims": status.claims,
            "items_a_second": sum(known) if known else None,
            "workers": status.workers,
            "rates": [{**asdict(rate), "rate": rate.rate} for rate in rates],
            "devices": [{**device.document, "stages": device.stages} for device in status.devices],
            "waited": every.waited,
            "running": running,
            "queues": _queues(request, running, messages),
            "broker": None if request.broker is None else messages is not None,
        }
    )


def _queues(
    request: PageRequest, running: Sequence[Mapping[str, Any]], messages: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    """The queues with work: shards of these runs by SQL, and messages at the broker."""
    shards: dict[str, Counter[str]] = {
        name: Counter() for name, count in (messages or {}).items() if count
    }
    for run in running:
        facts = request.counts.facts(request.db, run["id"])
        counts = shards.setdefault(
            queue_name(request.queue, facts.modality, facts.device), Counter()
        )
        counts.update({"queued": run["queued"], "in_work": run["in_work"]})
    return [
        {
            "queue": name,
            "shards_queued": counts["queued"],
            "shards_in_work": counts["in_work"],
            "messages": None if messages is None else messages.get(name, 0),
        }
        for name, counts in sorted(shards.items())
    ]


def schedules(request: PageRequest) -> PageContent:
    """Every schedule: when it fires next, and what its last runs found."""
    db, now = request.db, time.time()
    return PageContent(
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
                for row in browsing_fleet.schedule_rows(db, errors=request.readable)
            ],
        }
    )


def _fires(row: Mapping[str, Any], now: float) -> dict[str, float | None]:
    """The next fire, and the seconds since a fire that has made no run."""
    times: dict[str, float | None] = {"next": None, "overdue": 0.0}
    if row["state"] != "paused":
        with suppress(ConfigurationError):  # this machine lacks the time zone; the tick says so
            times["next"] = next(upcoming(row["cron"], row["time_zone"], now), None)
            times["overdue"] = overdue(row["cron"], row["time_zone"], row["since"], now)
    return times
