"""Text from the wild in files that other programs interpret: spreadsheets, Markdown, XML."""

import html
import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKS = re.compile(r"([\\`*_\[\]|#~])")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def spreadsheet_safe(cell: Any) -> Any:
    """A text that a spreadsheet would compute gets an apostrophe before it; numbers stay."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def markdown_text(text: str) -> str:
    """`text` as Markdown shows it literally, on one line: no HTML, no marks, nobody notified."""
    literal = _MARKS.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    return literal.replace("@", "@\N{WORD JOINER}")


def encodable(text: str) -> str:
    """`text` with a replacement character for each lone surrogate: UTF-8 has none; same length."""
    return _SURROGATES.sub(_REPLACEMENT, text)


def xml_text(text: str) -> str:
    """`text` with a replacement character for each one that XML 1.0 forbids, even escaped."""
    return _NOT_XML.sub(_REPLACEMENT, text)
