"""One text for one JSON value, so that a hash of the text is a hash of the value."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_SURROGATES = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> bytes:
    """A JSON value as bytes that are the same whoever writes them, and in whatever order.

    UTF-8, keys sorted by code point, no white space, no escape but those that JSON asks for (and
    of lone surrogates, which UTF-8 has no bytes for), numbers as Python's `repr`: the shortest
    digits that read back as the same double. It is RFC 8785 but for two things: floats keep their
    point (`1.0`, where the RFC writes `1`) and Python's exponents (`1e-07` for `1e-7`), and keys
    beyond the basic plane are sorted by code point instead of UTF-16 unit.

    Raises ValueError for NaN and infinity, TypeError for keys that are not text and for what
    JSON has no form for.
    """
    _check_keys(value)
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def sha256_of(value: Any) -> str:
    """Sha256 of the canonical bytes, in hexadecimal; raises as `canonical`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _check_keys(value: Any) -> None:
    """Two keys that JSON writes alike (1 and "1") would make one text of two values."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
            _check_keys(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _check_keys(entry)
