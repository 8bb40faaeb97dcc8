"""Posts verdicts of scheduled runs to a webhook, once each."""

import hashlib
import hmac
import http.client
import json
import logging
import os
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from transexplain.addresses import HIDDEN, check_server, read_path_address, shown_url
from transexplain.errors import ConfigurationError, DatabaseError, TransExplainError, WebhookError
from transexplain.reports.report_records import Summary
from transexplain.reports.sections.previous_run import GroupChange, Previous, gone, newly
from transexplain.reports.summary import summarise
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.store.schedules import Delivery
from transexplain.types.findings import GroupStatistic

SECRET = "TRANSEXPLAIN_WEBHOOK_SECRET"
SIGNATURE = "X-TransExplain-Signature"
#: the same for every attempt at one verdict, so that a receiver can drop the second
KEY = "Idempotency-Key"
TIMEOUT = 10.0


def check(url: str) -> None:
    """Raise ConfigurationError for an address that is no http(s) URL, or holds a password."""
    address = read_path_address(url)
    what = f"webhook {shown(url)}"
    if address is None or address.scheme.lower() not in ("http", "https"):
        raise ConfigurationError(f"{what} is no http:// or https:// address")
    if address.user is not None:
        raise ConfigurationError(
            f"{what}: leave user and password out, they would be stored; posts are signed with "
            f"{SECRET}"
        )
    check_server(address, what, remedy="write https://HOST:PORT/PATH, names of hosts in ASCII")


def shown(url: str) -> str:
    """Scheme and host only: paths and queries of webhooks are often secret."""
    address = read_path_address(url)
    if address is None:
        return HIDDEN
    # an @ further on may end a password whose beginning is read as the port
    clear = address.user is None and "@" not in address.path
    return shown_url(f"{address.scheme}://{address.place if clear else HIDDEN}")


def secret() -> bytes:
    """The signing secret, from the environment or the file that it names.

    Raises ConfigurationError where there is none: an unsigned verdict could be anybody's.
    """
    named, file = os.environ.get(SECRET), os.environ.get(f"{SECRET}_FILE")
    if file and not named:
        try:
            named = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read {SECRET}_FILE: {error}") from None
    if not named:
        raise ConfigurationError(f"set {SECRET} (or {SECRET}_FILE) to sign what is posted")
    return named.encode()


def sign(body: bytes, key: bytes) -> str:
    """The value of the signature header: HMAC-SHA256 of the body, in hexadecimal."""
    return f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as a final answer: a verdict goes only to the given address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(url: str, document: Mapping[str, Any], *, key: bytes, delivery: str) -> None:
    """Post a document; raises WebhookError, which names the host only, unless the answer is 2xx."""
    check(url)  # one that an earlier version stored
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    request = urllib.request.Request(
        url,
        data=body,
        method="POST",
        headers={
            "Content-Type": "application/json",
            "User-Agent": "transexplain",
            SIGNATURE: sign(body, key),
            KEY: delivery,
        },
    )
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            status = answer.status
    except HTTPError as error:
        error.close()
        status = error.code
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise WebhookError(f"webhook {shown(url)} cannot be reached: {reason}") from None
    if not 200 <= status < 300:
        raise WebhookError(f"webhook {shown(url)} answered {status}")


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
    """The numbers of the run before, and which groups are newly flagged or no longer flagged."""
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
    """Post every waiting verdict; returns the accepted ones.

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
            # a run without a summary must not delay others; the text may quote its content
            log.exception("verdict of run %s", delivery.run_id)
            _again(db, delivery, f"the verdict could not be made: {type(error).__name__}")
        else:
            schedules.posted(db, delivery)
            taken.append(delivery)
    return taken


def _post(db: Database, delivery: Delivery) -> None:
    if delivery.fire.post_attempts > ATTEMPTS:
        raise WebhookError(f"given up: {ATTEMPTS} attempts were begun and not ended")
    post(
        delivery.webhook,
        verdict(db, delivery),
        key=secret(),
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
