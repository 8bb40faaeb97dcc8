"""The page template of all reports: templates escape every value; numbers, names and scripts have
filters.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from transexplain.analysis.groups.measures import gravest
from transexplain.reports import forest
from transexplain.reports.phrasing import (
    MEASURES,
    change,
    commas,
    level,
    limit,
    measured,
    named,
    number,
    percent,
    power,
    probability,
    signed,
    span,
    things,
    tone,
    value,
)
from transexplain.reports.tables import headings

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Script(NamedTuple):
    """A script of this package as a page holds it, and what allows it and no other to run."""

    text: Markup  #: between the tags
    source: str  #: of the Content Security Policy's script-src: 'sha256-...', of exactly `text`


@cache
def environment() -> Environment:
    """Templates of this package, escaping on for every one; a missing value is an error."""
    return Environment(
        loader=PackageLoader("transexplain.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def script(name: str) -> Script:
    """A script among the templates, to be written into a page (CSP Level 3, section 2.3.1).

    Raises ValueError where it holds what would end or change the element that it stands in.
    """
    text = files("transexplain.reports").joinpath("templates", name).read_text(encoding="utf-8")
    return runnable(text, name)


def runnable(text: str, name: str) -> Script:
    """JavaScript to be written into a page as it is.

    Raises ValueError where it holds what would end or change the element that it stands in.
    """
    if re.search(r"</script|<script|<!--", text, re.IGNORECASE):
        raise ValueError(f"{name} holds markup that an HTML script element cannot hold")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Script(Markup(text), f"'sha256-{digest}'")


def sort_value(value: float | None) -> Markup:
    """The attribute that a table cell is sorted by; without a value the row goes last."""
    return Markup(' data-value="{}"').format("" if value is None else repr(float(value)))


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates, which no HTML file can hold, as U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


_CODE = re.compile(r"`([^`]+)`")
_EMPHASIS = re.compile(r"(?<![\w*])\*([^*]+)\*(?![\w*])")


def prose(text: str) -> Markup:
    """A sentence of this package for a page: what Markdown marks as code or stressed is set so."""
    return Markup(_EMPHASIS.sub(r"<em>\1</em>", str(code(text))))


def code(text: str) -> Markup:
    """As `prose`, of a sentence that may quote the data: asterisks stay what they are."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


_BREAKS = re.compile(r"(?<=[/_.:-])(?=.)")


def page(template: str, **names: Any) -> str:
    """One self-contained HTML page; `names` come before the words that all reports share.

    Every value is escaped by the template unless a report made it itself; what no HTML file can
    hold becomes U+FFFD.
    """
    return storable(environment().get_template(template).render({**VOCABULARY, **names}))


def paragraphs(template: str, **names: Any) -> tuple[str, ...]:
    """The paragraphs of a text template, each on one line; nothing is escaped."""
    return tuple(cells[0] for cells in text_rows(template, **names))


def text_rows(template: str, **names: Any) -> Iterator[tuple[str, ...]]:
    """The paragraphs of a text template, each as the cells that broken bars part."""
    text = _texts().get_template(template).render({**VOCABULARY, "nbsp": "\u00a0", **names})
    for block in re.split(r"\n{2,}", text.strip("\n")):
        cells = re.split(" ?\u00a6 ?", block.replace("\n", " "))
        yield tuple(cell.translate(_SHOWN) for cell in cells)


#: what parts paragraphs and cells, and what stands for it in values until they are parted
_HIDDEN = str.maketrans("\n\u00a6", "\x1e\x1f")
_SHOWN = str.maketrans("\x1e\x1f", "\n\u00a6")


@cache
def _texts() -> Environment:
    def hidden(value: Any) -> Any:
        return value.translate(_HIDDEN) if isinstance(value, str) else value

    return environment().overlay(autoescape=False, finalize=hidden)


def breakable(name: str) -> Markup:
    """`name` with leave to break the line after the marks that part its words."""
    pieces = _BREAKS.split(name)
    return Markup("<wbr>").join(pieces)


def moment(seconds: float | None) -> str:
    """A time as a report writes it."""
    if seconds is None:
        return "not finished"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


_WORDS = (
    *(forest.strip, forest.whisker, forest.box, headings, sort_value, breakable, prose, code),
    *(moment, tone, measured, level, limit, gravest, signed, power, number, named),
    *(value, change, span, probability, percent, commas, things),
)
#: words that the templates of all pages share
VOCABULARY = {
    **{word.__name__: word for word in _WORDS},
    "axis_scale": forest.scale,
    "names_of_measures": MEASURES,
}
