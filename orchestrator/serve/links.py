"""Names in addresses: any id, label or entity as one segment of a path, and back; and errors."""

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote, urlencode

_HEX = "~"  #: before a name that is written by the hexadecimal digits of its bytes


@lru_cache(maxsize=4096)
def segment(name: str) -> str:
    """`name` as one segment of a path, percent-encoded.

    A browser would resolve `.` and `..`, `.json` asks for JSON, and no segment is empty or holds
    NUL or a lone surrogate: such a name, and one that begins with `~`, is `~` and its bytes in
    hexadecimal.
    """
    plain = name not in ("", ".", "..") and not name.startswith(_HEX) and "\0" not in name
    if plain and not name.endswith(".json"):
        try:
            return quote(name, safe="")
        except UnicodeEncodeError:
            pass
    return _HEX + name.encode("utf-8", "surrogatepass").hex()


def name_of(written: str) -> str | None:
    """The name that `segment` was given; None where it gave no such segment."""
    try:
        if written.startswith(_HEX):
            return bytes.fromhex(written[1:]).decode("utf-8", "surrogatepass")
        return unquote(written, errors="strict")
    except ValueError:
        return None


def link(*names: str, **query: object) -> str:
    """The address of a page: its segments, and what of the query is not empty."""
    values = {name: str(value) for name, value in query.items() if value not in (None, "")}
    path = "/" + "/".join(map(segment, names))
    encoded = urlencode(values, errors="surrogatepass")
    return f"{path}?{encoded}" if encoded else path


class RefusedError(Exception):
    """A request that is not carried out: the status and the page that says why and leads `back`.

    `back` is an address with its name; `headers` are those of the response.
    """

    def __init__(
        self,
        status: int,
        title: str,
        text: str,
        back: tuple[str, str] = ("/", "all runs"),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.title, self.text = status, title, text
        self.back, self.headers = back, dict(headers or {})
