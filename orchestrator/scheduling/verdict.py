"""What a finished scheduled run has to say to a webhook: plain values, and what changed."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transexplain.findings import GroupStatistic
from transexplain.reports.previous import gone, newly
from transexplain.reports.records import GroupChange, Previous, Summary
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
        "previous": _beside(now.previous) if now.previous else None,
    }


def _beside(previous: Previous) -> dict[str, Any]:
    """The numbers of the run before, and which groups are flagged anew or no more."""
    return {
        "run": previous.run_id,
        "state": previous.state,
        "model_changed": previous.model_changed,
        "data_changed": previous.data_changed,
        "counts": asdict(previous.counts),
        "common": previous.common,
        "other_prediction": previous.other_prediction,
        "flagged": _keys([one for one in previous.groups if one.flagged_before]),
        "newly_flagged": _keys(newly(previous)),
        "no_longer_flagged": _keys(gone(previous)),
    }


def _flagged(summary: Summary) -> list[list[str]]:
    rows = summary.groups.rows if summary.groups else ()
    return _keys([row for row in rows if row.flagged])


def _keys(rows: Sequence[GroupStatistic | GroupChange]) -> list[list[str]]:
    """(group, target, class) of every group that stands out."""
    return sorted([row.group, row.target, row.class_name] for row in rows)
