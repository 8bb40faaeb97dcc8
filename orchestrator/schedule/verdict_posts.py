"""Delivers verdicts of scheduled runs to every receiver, once each, and again where one is away."""

import json
import logging
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.schedule import notices, signed_post
from orchestrator.schedule.notices import (
    Notice,
    differences,
    notice_of,
    slack_body,
    teams_body,
    trial_notice,
)
from transexplain.errors import ConfigurationError, DatabaseError, TransExplainError, WebhookError
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.previous_run import Previous
from transexplain.reports.summary import summarise
from transexplain.reports.verdict_words import Difference, gone, newly
from transexplain.reports.verdict_words import shown as shown_differences
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.store.schedules import Delivery, Receiver, Schedule

#: raised when a key changes its meaning or goes
VERSION = 2


Document = Mapping[str, Any]  #: a verdict as programs read it


def _json(document: Document, _: Notice) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


#: formats of webhooks, the first one the default
FORMATS: Mapping[str, Callable[[Document, Notice], bytes]] = {
    "json": _json,
    "slack": lambda _, notice: slack_body(notice),
    "teams": lambda _, notice: teams_body(notice),
}


def check_receiver(receiver: Receiver) -> None:
    """Raise ConfigurationError for an address that nothing can be, or must not be, sent to."""
    if receiver.kind == "email":
        notices.check_address(receiver.address)
    else:
        signed_post.check_new(receiver.address)


def shown(receiver: Receiver) -> str:
    """The receiver for those who keep schedules: a webhook without its path, an e-mail address."""
    return receiver.address if receiver.kind == "email" else signed_post.shown(receiver.address)


def verdict_of(db: Database, run_id: str, *, schedule: str, at: float) -> tuple[Document, Notice]:
    """The verdict of a run, with that of the previous run where there is one."""
    summary = summarise(db, run_id, gallery=0)
    return _document(summary, schedule, at), notice_of(summary, schedule)


def _document(now: Summary, schedule: str, at: float) -> dict[str, Any]:
    return {
        "version": VERSION,
        "schedule": schedule,
        "fire": at,
        "run": now.audited.run_id,
        "name": now.audited.name,
        "state": now.audited.state,
        "model_digest": now.audited.model_digest,
        "data_fingerprint": now.audited.fingerprint,
        "counts": asdict(now.counts),
        "statements": [asdict(statement) for statement in now.headline],
        "flagged": _keys(differences(now)),
        "previous": _beside(now.previous) if now.previous else None,
    }


def _beside(previous: Previous) -> dict[str, Any]:
    """The numbers of the run before, and which differences are new and which are gone."""
    return {
        "run": previous.run_id,
        "state": previous.state,
        "model_changed": previous.model_changed,
        "data_changed": previous.data_changed,
        "counts": asdict(previous.counts),
        "common": previous.common,
        "other_prediction": previous.other_prediction,
        "flagged": _keys(shown_differences(previous.verdicts, now=False)),
        "newly_flagged": _keys(newly(previous.verdicts)),
        "no_longer_flagged": _keys(gone(previous.verdicts)),
    }


def _keys(rows: Sequence[Difference]) -> list[list[str]]:
    """(group, question) of every difference; the question is `mention` or `outcome`."""
    return sorted([row.group, row.question] for row in rows)


#: seconds that a process may take for a delivery before another tries
HOLD = 300.0
#: seconds to the second attempt; doubled for each one after it, and varied by a fifth
BACKOFF, JITTER = 30.0, 0.2
#: attempts in all, the last one about 17 hours after the first
ATTEMPTS = 12
#: seconds; a receiver that wants more time gets the next post nevertheless
LONGEST_ASKED = 6 * 3600.0

log = logging.getLogger(__name__)


def deliver(db: Database) -> list[Delivery]:
    """Deliver every verdict that waits for a receiver; returns what was accepted.

    A delivery is claimed before it is made, so that two processes do not make it both; one that
    dies between its post and the record of it lets it be made again, under the same key.
    """
    taken = []
    verdicts: dict[tuple[str, float], tuple[Document, Notice]] = {}
    while (delivery := schedules.claim(db, HOLD)) is not None:
        key = (delivery.schedule, delivery.at)
        try:
            if delivery.attempts > ATTEMPTS:
                begun = f"{ATTEMPTS} attempts were begun and not ended"
                raise WebhookError(f"given up: {begun}", final=True)
            if key not in verdicts:  # the receivers of a verdict come one after the other
                verdicts = {key: verdict_of(db, delivery.run_id, schedule=key[0], at=key[1])}
            send(delivery.receiver, *verdicts[key], _key_of(delivery))
        except DatabaseError:
            raise
        except TransExplainError as error:
            _again(db, delivery, error)
        except Exception as error:
            # a run without a summary must not delay others; the text may quote its content
            log.exception("verdict of run %s", delivery.run_id)
            reason = f"the verdict could not be made: {type(error).__name__}"
            _again(db, delivery, WebhookError(reason))
        else:
            schedules.posted(db, delivery)
            taken.append(delivery)
    return taken


def send(receiver: Receiver, document: Document, notice: Notice, key: str) -> str:
    """Send a verdict to a receiver under the key of the delivery; returns what it answered.

    Raises ConfigurationError for what the environment lacks or does not allow, else WebhookError.
    """
    if receiver.kind == "email":
        return notices.send(receiver.address, notice, signed_post.identity(key))
    body = FORMATS[receiver.kind](document, notice)
    return signed_post.post(receiver.address, body, delivery=key)


def send_trial(schedule: Schedule) -> list[tuple[Receiver, str, bool]]:
    """Send a test message to every receiver of a schedule now, once.

    Returns the receivers, what became of it, and whether each has taken it. Raises
    ConfigurationError where the schedule has none.
    """
    if not schedule.receivers:
        raise ConfigurationError(
            f"schedule {schedule.name!r} has no receivers; name them by --webhook and --email of "
            f"`transexplain schedule receivers {schedule.name}`"
        )
    audit = str(schedule.spec.get("name") or schedule.name)
    document = {"version": VERSION, "schedule": schedule.name, "name": audit, "test": True}
    notice = trial_notice(schedule.name, audit)
    key = f"{schedule.name}/test/{uuid.uuid4().hex}"
    trials = []
    for receiver in schedule.receivers:
        try:
            answer, taken = send(receiver, document, notice, f"{key}/{receiver.number}"), True
        except TransExplainError as error:
            answer, taken = f"failed: {error}", False
        trials.append((receiver, answer, taken))
    return trials


def _key_of(delivery: Delivery) -> str:
    """The same for every attempt; that of a first receiver is as when there was only one."""
    key = f"{delivery.schedule}/{delivery.at:.3f}"
    return key if delivery.number == 1 else f"{key}/{delivery.number}"


def _again(db: Database, delivery: Delivery, error: TransExplainError) -> None:
    wait = _wait(delivery.attempts, error)
    log.warning(
        "schedule %s, run %s, receiver %d (%s), attempt %d of %d: %s",
        *(delivery.schedule, delivery.run_id, delivery.number, delivery.receiver.kind),
        *(delivery.attempts, ATTEMPTS, error),
    )
    schedules.not_posted(db, delivery, str(error), wait)


def _wait(attempts: int, error: TransExplainError) -> float | None:
    """Seconds to the next attempt; None: there is none.

    What the environment lacks is put right some time, and so is tried again.
    """
    final, pause = getattr(error, "final", False), getattr(error, "wait", None)
    if final or attempts >= ATTEMPTS:
        return None
    varied = random.uniform(1 - JITTER, 1 + JITTER)
    return max(varied * BACKOFF * 2.0 ** (attempts - 1), min(pause or 0.0, LONGEST_ASKED))
