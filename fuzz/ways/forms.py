"""Forms that readers of `transexplain serve` send: an input is the content type, and the body."""

from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from fuzz.guard import promise
from orchestrator.serve.own_forms import Fields, fields_of
from orchestrator.serve.replies import RefusedError

_MOST = 1 << 10  #: bytes of a form
_STATUS = (400, 413, 415)


def target(data: bytes) -> None:
    """A form is refused in plain words, or gives no more than it holds, and the same again."""
    kind, _, body = data.partition(b"\n")
    try:
        found = _fields(kind, body)
    except RefusedError as error:
        promise(error.status in _STATUS and error.text.isprintable(), f"refused: {error.text!r}")
        promise(len(body) <= _MOST or error.status == 413, "what is too large was read")
        return
    promise(len(body) <= _MOST, "what is too large was read")
    promise(sum(map(len, found.files.values())) <= len(body), "files have more than the form")
    promise(len(found.words) <= len(body), "more fields than bytes")
    plain = {name: value for name, value in found.words.items() if name.isprintable()}
    again = urlencode(plain).encode()
    if plain and len(again) <= _MOST:
        promise(_fields(b"application/x-www-form-urlencoded", again).words == plain, "not the same")


def _fields(kind: bytes, body: bytes) -> Fields:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind)]}
    return _result(fields_of(Request(scope, receive), _MOST, "A form has at most 1 KiB."))


def _result(work: Coroutine[Any, Any, Fields]) -> Fields:
    """Without a loop of events, which opens sockets; nothing here waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: Fields = ended.value
        return found
    raise AssertionError("a form that is in memory waits")
