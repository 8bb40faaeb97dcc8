"""Charts that answer to the reader: a still picture for paper, its specification for a browser.

The still picture is what a page shows without scripts and in print. On a screen `charts.js` draws
the specification in its place with Vega, whose code is taken from vl-convert when a report is made.
Vega evaluates a specification by its interpreter, so that a page's policy can forbid `eval`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from transexplain.reports import charts
from transexplain.reports.charts import Series
from transexplain.reports.templating import Script, runnable, script

#: what would end a script element, begin a comment in it or break a line of JavaScript
_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """One chart of a page."""

    label: str  #: what it shows, in a sentence, for a reader who cannot see it
    still: str  #: an SVG element
    specification: dict[str, Any]  #: of Vega-Lite; names in it are data, never markup

    def __html__(self) -> str:
        """The element that `charts.js` looks for."""
        return Markup(
            '<div class="chart" role="img" aria-label="{}"><div class="still">{}</div>'
            '<script type="application/json">{}</script></div>'
        ).format(self.label, Markup(self.still), data(self.specification))


def lines(series: Sequence[Series], *, x_title: str, y_title: str, label: str) -> Drawing:
    """A line chart of `series`; an axis of shares is written in per cent."""
    return Drawing(
        label=label,
        still=charts.lines(series, x_title=x_title, y_title=y_title),
        specification=charts.live_lines(series, x_title=x_title, y_title=y_title),
    )


def data(content: dict[str, Any]) -> Markup:
    """JSON as the text of a script element of the type `application/json`."""
    text = json.dumps(content, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))


@cache
def scripts() -> tuple[Script, ...]:
    """Vega and what sets it to work, in the order in which a page holds them."""
    import vl_convert

    return runnable(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"), "Vega"), script(
        "charts.js"
    )
