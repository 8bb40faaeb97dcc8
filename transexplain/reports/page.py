"""One page for every report: what templates call numbers, names and pictures by."""

import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from transexplain.reports import forest
from transexplain.reports.evaluation.wording import change, probability, span, value
from transexplain.reports.templating import environment, sort_value, storable
from transexplain.reports.wording import named, number, percent, power, signed, tone

_BREAKS = re.compile(r"(?<=[/_.:-])(?=.)")


def page(template: str, **names: Any) -> str:
    """One self-contained HTML page; `names` come before the words that all reports share.

    Every value is escaped by the template unless a report made it itself; what no HTML file can
    hold becomes U+FFFD.
    """
    return storable(environment().get_template(template).render({**_VOCABULARY, **names}))


def breakable(name: str) -> Markup:
    """`name` with leave to break the line after the marks that part its words."""
    pieces = _BREAKS.split(name)
    return Markup("<wbr>").join(pieces)


def moment(seconds: float | None) -> str:
    """A time as a report writes it."""
    if seconds is None:
        return "not finished"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


_VOCABULARY = {
    "strip": forest.strip,
    "whisker": forest.whisker,
    "box": forest.box,
    "axis_scale": forest.scale,
    "sort_value": sort_value,
    "breakable": breakable,
    "moment": moment,
    "tone": tone,
    "signed": signed,
    "power": power,
    "number": number,
    "named": named,
    "value": value,
    "change": change,
    "span": span,
    "probability": probability,
    "percent": percent,
}
