"""Posting JSON to a webhook: signed, with a timeout, to the named address and nowhere else."""

import hashlib
import hmac
import http.client
import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from transexplain.addresses import HIDDEN, check_server, read_path_address, shown_url
from transexplain.errors import ConfigurationError, WebhookError

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


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like another: the verdict goes to nobody who was not named."""

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
    opener = urllib.request.build_opener(_Stay)
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
