"""Forms that do something: only a page of this server can send them, and within limits.

A page elsewhere can make a browser send any form here, with its cookies. It cannot read a page of
this server, so it does not know the token that stands in the form; and what browsers say of where
a request began is heeded, too.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.serve.access import COOKIE as LOGIN_COOKIE
from orchestrator.serve.access import AccessRules, proof_is_good
from orchestrator.serve.links import RefusedError
from orchestrator.serve.replies import answered, set_cookie
from transexplain.store.browsing import signing_key
from transexplain.store.database import Database

COOKIE = "transexplain-form"
TOKEN = "form_token"  #: name of the field
_LASTS = 2 * 3600  #: seconds that a form may stay open
_MADE = re.compile(r"[A-Za-z0-9_-]{43}")  #: what `secrets.token_urlsafe` gives
_FIELDS = 20
_DRAINED = 8  #: times the limit are read and dropped, so that a browser hears why
_SHOWN = 200  #: characters of a user's name in a log


class Fields(NamedTuple):
    """The fields of a form."""

    words: Mapping[str, str]
    files: Mapping[str, bytes]
    is_utf8: bool  #: the whole body; a browser sends texts so


@dataclass(frozen=True)
class OwnForms:
    """Makes and checks the tokens of forms, each for one browser (or bearer) and one action.

    A form of one server is good at every other over the same store, and after a new start: the key
    is the readers' token, or the store's own.
    """

    rules: AccessRules
    db: Database

    @cached_property
    def _key(self) -> bytes:
        token = self.rules.token
        return token.encode() if token is not None else signing_key(self.db)

    def user_of(self, request: Request) -> str:
        """The user of a request: the name that a proxy vouches for, `token`, or `local`."""
        header = self.rules.user_header
        if header is not None:
            return request.headers.get(header, "").strip()[:_SHOWN]
        return "local" if self.rules.everybody else "token"

    def shown(
        self,
        request: Request,
        action: str,
        template: str,
        document: Mapping[str, Any],
        drawing: Mapping[str, Any],
    ) -> Response:
        """The response with a form, its token in the document, and the cookie of the browser."""
        known = self._browser(request)
        browser = secrets.token_urlsafe(32) if known is None else known
        until = int(time.time() + _LASTS)
        token = f"{until}.{self._proof(request, browser, action, until)}"
        response = answered(request, template, {**document, TOKEN: token}, drawing)
        if known is None:
            set_cookie(response, request, COOKIE, browser)
        # with no-referrer a browser would not say where a form was sent from
        response.headers["Referrer-Policy"] = "same-origin"
        return response

    async def fields(self, request: Request, action: str, most: int, what: str) -> Fields:
        """The fields as `fields_of`; RefusedError without this action's and browser's token."""
        fields = await fields_of(request, most, what)
        browser, token = self._browser(request), fields.words.get(TOKEN, "")
        if browser is None or not proof_is_good(
            token, partial(self._proof, request, browser, action)
        ):
            raise RefusedError(
                403,
                "This form is too old",
                "The form is not one of yours, or is older than two hours. Open its page again, "
                "and send it from there; programs send form_token of the page's JSON, and its "
                "cookie.",
            )
        return fields

    def check_origin(self, request: Request) -> None:
        """Raise RefusedError where a browser says that another site's page sends this."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        # without an origin: no browser, or one that keeps it to itself and names the site
        silent = origin is None or (origin == "null" and site is not None)
        own_site = site in (None, "same-origin", "none")
        if not own_site or not (silent or self._is_own(origin, request.headers.get("host", ""))):
            text = "Only a page of this server may ask for this. Nothing was done."
            raise RefusedError(403, "Not from here", text)

    def _is_own(self, origin: str | None, host: str) -> bool:
        try:
            parts = urlsplit(origin or "")
            name, place = parts.hostname, parts.netloc
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not name:
            return False
        # a proxy may call this server by another name than readers do
        return place.lower() == host.lower() or name.rstrip(".") in self.rules.hosts

    def _browser(self, request: Request) -> str | None:
        """Names the browser by its cookie; a program with the token in a header needs none."""
        if request.headers.get("authorization", "").partition(" ")[0].lower() == "bearer":
            return "bearer"
        cookie = request.cookies.get(COOKIE, "")
        return cookie if _MADE.fullmatch(cookie) else None

    def _proof(self, request: Request, browser: str, action: str, until: int) -> str:
        login = request.cookies.get(LOGIN_COOKIE, "") if self.rules.token is not None else ""
        parts = (self.user_of(request), login, browser, action, str(until))
        text = b"form" + b"".join(
            len(encoded).to_bytes(4, "big") + encoded
            for encoded in (part.encode("utf-8", "surrogatepass") for part in parts)
        )
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


async def fields_of(request: Request, most: int, what: str) -> Fields:
    """The fields of a form of at most `most` bytes, in memory alone.

    `what` names the limit in the message. Raises RefusedError.
    """
    return await parsed(request.headers, await _body(request, most, what))


async def parsed(headers: Headers, body: bytes) -> Fields:
    """The fields of a form that is here; raises RefusedError."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/x-www-form-urlencoded":
            text = body.decode("ascii")
            pairs = parse_qsl(text, True, errors="strict", max_num_fields=_FIELDS)
            return Fields(dict(pairs), {}, True)
        if kind == "multipart/form-data":
            return await _parts(headers, body)
    except (MultiPartException, ValueError, KeyError) as error:
        reason = error.message if isinstance(error, MultiPartException) else "it is damaged"
        raise RefusedError(400, "Not a form", f"The form cannot be read: {reason}.") from None
    raise RefusedError(
        415,
        "Not a form",
        "Send multipart/form-data, or application/x-www-form-urlencoded for texts.",
    )


async def _parts(headers: Headers, body: bytes) -> Fields:
    async def stream() -> AsyncIterator[bytes]:
        yield body

    parser = MultiPartParser(
        headers,
        stream(),  # type: ignore[arg-type]
        max_files=2,
        max_fields=_FIELDS,
        max_part_size=len(body) + 1,
    )
    parser.spool_max_size = len(body) + 1  # nothing goes to a file
    form: FormData = await parser.parse()
    words = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    files = {
        name: await upload.read()
        for name, upload in form.multi_items()
        if isinstance(upload, UploadFile)
    }
    await form.close()
    try:
        body.decode()
    except UnicodeDecodeError:
        return Fields(words, files, False)
    return Fields(words, files, True)


async def _body(request: Request, most: int, what: str) -> bytes:
    body, size = bytearray(), 0
    async for some in request.stream():
        size += len(some)
        if size <= most:
            body += some
        elif size > _DRAINED * most:
            break
    if size > most:
        raise RefusedError(413, "Too large", f"{what} This one is larger; nothing was read of it.")
    return bytes(body)
