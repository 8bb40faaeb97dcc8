"""Posting the verdicts of scheduled runs that are over: once, again where the receiver was away."""

import logging

from orchestrator.scheduling import webhook
from orchestrator.scheduling.verdict import verdict
from transexplain.errors import DatabaseError, TransExplainError, WebhookError
from transexplain.store import verdicts
from transexplain.store.database import Database
from transexplain.store.schedule_records import Delivery

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
    while (delivery := verdicts.claim(db, HOLD)) is not None:
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
            verdicts.posted(db, delivery)
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
    verdicts.not_posted(db, delivery, error, wait)
