"""The verdict of a finished scheduled run, and posting it: once, again where the receiver was
away.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.schedule import webhook
from transexplain.errors import DatabaseError, TransExplainError, WebhookError
from transexplain.reports.report_records import GroupChange, Previous, Summary
from transexplain.reports.sections.previous_run import gone, newly
from transexplain.reports.summary import summarise
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.store.schedules import Delivery
from transexplain.types.findings import GroupStatistic

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


#: seconds that a poster may take before another tries
HOLD = 300.0
#: seconds to the second attempt; doubled for each one after it
BACKOFF = 30.0
#: attempts in all, the last one 17 hours after the first
ATTEMPTS = 12

log = logging.getLogger(__name__)


def deliver(db: Database) -> list[Delivery]:
    """Post every verdict that waits; returns those that were taken.

    A verdict is claimed before it is posted, so that two processes do not post it both; one that
    dies between its post and the record of it lets it be posted again, under the same key.
    """
    taken = []
    while (delivery := schedules.claim(db, HOLD)) is not None:
        try:
            _post(db, delivery)
        except DatabaseError:
            raise
        except TransExplainError as error:
            _again(db, delivery, str(error))
        except Exception as error:
            # a run that cannot be summed up holds up no other; the text may quote what it holds
            log.exception("verdict of run %s", delivery.run_id)
            _again(db, delivery, f"the verdict could not be made: {type(error).__name__}")
        else:
            schedules.posted(db, delivery)
            taken.append(delivery)
    return taken


def _post(db: Database, delivery: Delivery) -> None:
    if delivery.fire.post_attempts > ATTEMPTS:
        raise WebhookError(f"given up: {ATTEMPTS} attempts were begun and not ended")
    webhook.post(
        delivery.webhook,
        verdict(db, delivery),
        key=webhook.secret(),
        delivery=f"{delivery.fire.schedule}/{delivery.fire.at:.3f}",
    )


def _again(db: Database, delivery: Delivery, error: str) -> None:
    attempts = delivery.fire.post_attempts
    wait = BACKOFF * 2 ** (attempts - 1) if attempts < ATTEMPTS else None
    log.warning(
        "schedule %s, run %s, attempt %d of %d: %s",
        delivery.fire.schedule,
        delivery.run_id,
        attempts,
        ATTEMPTS,
        error,
    )
    schedules.not_posted(db, delivery, error, wait)
