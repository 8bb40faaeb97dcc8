"""Metrics of schedules: what is overdue, what cannot be prepared, what the last run found."""

from contextlib import suppress
from typing import Any

from orchestrator.monitoring.exported_metrics import MOST_SCHEDULES
from orchestrator.monitoring.metric_samples import MetricSamples
from orchestrator.schedule.fire_times import overdue, upcoming
from transexplain.errors import ConfigurationError
from transexplain.store import browsing_fleet, schedules
from transexplain.store.database import Database
from transexplain.store.schedule_figures import LastFound, last_found


def put_schedules(samples: MetricSamples, db: Database) -> None:
    """The first schedules by name; raises DatabaseError as `Database.read`."""
    now = schedules.now(db)
    for row in browsing_fleet.schedule_rows(db, errors=False)[:MOST_SCHEDULES]:
        _put_schedule(samples, row, now)
    for found in last_found(db)[:MOST_SCHEDULES]:
        _put_last(samples, found)


def _put_schedule(samples: MetricSamples, row: dict[str, Any], now: float) -> None:
    name, active = row["name"], row["state"] == "active"
    samples.put("schedule_active", float(active), name)
    samples.put("schedule_failing", float(row["retry_at"] is not None), name)
    if not active:
        return
    with suppress(ConfigurationError):  # this machine lacks the time zone; the tick says so
        late = overdue(row["cron"], row["time_zone"], row["since"], now)
        samples.put("schedule_overdue_seconds", late, name)
        following = next(upcoming(row["cron"], row["time_zone"], now), None)
        if following is not None:
            samples.put("schedule_next_timestamp_seconds", following, name)


def _put_last(samples: MetricSamples, found: LastFound) -> None:
    name = found.schedule
    samples.put("schedule_last_run_info", 1, name, found.run_id, found.verdict)
    samples.put("schedule_last_run_timestamp_seconds", found.finished, name)
    compared = {
        "schedule_groups_newly_flagged": found.newly,
        "schedule_groups_no_longer_flagged": found.gone,
        "schedule_changed_predictions_ratio": found.changed,
    }
    for metric, value in compared.items():
        if value is not None:
            samples.put(metric, value, name)
