"""Forms that readers of `transexplain serve` send: an input is the content type, and the body."""

from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import Headers

from fuzz.guard import promise
from orchestrator.serve.links import RefusedError
from orchestrator.serve.own_forms import Fields, parsed

_ENCODED = b"application/x-www-form-urlencoded"


def target(data: bytes) -> None:
    """A form is refused in plain words, or gives no more than it holds, and the same again."""
    kind, _, body = data.partition(b"\n")
    try:
        found = _result(parsed(_headers(kind), body))
    except RefusedError as error:
        promise(error.status in (400, 415) and error.text.isprintable(), f"says {error.text!r}")
        return
    promise(sum(map(len, found.files.values())) <= len(body), "files have more than the form")
    promise(len(found.words) <= len(body), "more fields than bytes")
    plain = {name: value for name, value in found.words.items() if name.isprintable()}
    if plain:
        again = _result(parsed(_headers(_ENCODED), urlencode(plain).encode()))
        promise(again.words == plain, "written and read again it is another")


def _headers(kind: bytes) -> Headers:
    return Headers(raw=[(b"content-type", kind)])


def _result(work: Coroutine[Any, Any, Fields]) -> Fields:
    """Without a loop of events, which opens sockets; nothing here waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: Fields = ended.value
        return found
    raise AssertionError("a form that is in memory waits")
