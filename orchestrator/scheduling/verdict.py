"""What a finished scheduled run has to say to a webhook: plain values, and what changed."""

from dataclasses import asdict
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.reports.records import Summary
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.store.schedule_records import Delivery

#: raised when a key changes its meaning or goes
VERSION = 1


def verdict(db: Database, delivery: Delivery) -> dict[str, Any]:
    """The JSON-able verdict of a run, beside that of the run before where there is one."""
    fire = delivery.fire
    now = summarise(db, delivery.run_id, gallery=0)
    return {
        "version": VERSION,
        "schedule": fire.schedule,
        "fire": fire.at,
        "run": now.audited.run_id,
        "name": now.audited.name,
        "state": now.audited.state,
        "model_digest": now.audited.model_digest,
        "data_fingerprint": now.audited.fingerprint,
        "counts": asdict(now.counts),
        "statements": [asdict(statement) for statement in now.headline],
        "flagged": _flagged(now),
        "previous": _beside(db, fire.previous, now) if fire.previous else None,
    }


def _beside(db: Database, run_id: str, now: Summary) -> dict[str, Any] | None:
    """The numbers of the run before, and which groups are flagged anew or no more."""
    try:
        before = summarise(db, run_id, gallery=0)
    except ConfigurationError:  # deleted since
        return None
    flagged, was = _flagged(now), _flagged(before)
    return {
        "run": before.audited.run_id,
        "state": before.audited.state,
        "model_changed": before.audited.model_digest != now.audited.model_digest,
        "data_changed": before.audited.fingerprint != now.audited.fingerprint,
        "counts": asdict(before.counts),
        "flagged": was,
        "newly_flagged": [one for one in flagged if one not in was],
        "no_longer_flagged": [one for one in was if one not in flagged],
    }


def _flagged(summary: Summary) -> list[list[str]]:
    """(group, target, class) of every group that stands out."""
    rows = summary.groups.rows if summary.groups else ()
    return sorted([row.group, row.target, row.class_name] for row in rows if row.flagged)
