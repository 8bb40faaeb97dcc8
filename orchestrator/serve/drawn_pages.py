"""Makes the bytes of a page: HTML by its template, or JSON of the same document."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from orchestrator.serve.item_drawing import PALETTES
from orchestrator.serve.links import link
from transexplain.reports.coloured_text import marks_css
from transexplain.reports.forest import Axis, whisker
from transexplain.reports.graph_drawing import nodes_css
from transexplain.reports.page import VOCABULARY, environment, storable
from transexplain.reports.phrasing import number, percent, power, short
from transexplain.store.shards import PASSING_KINDS
from transexplain.types.pairs import in_a_line

_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_STYLES = (
    *("style.css", "evaluation.css", "sections.css"),
    *("charts.css", "cloud.css", "strategies.css"),
)
#: state of a verdict or measure, or what relevance says -> style of its tag
_TONES = {
    **dict.fromkeys(("flagged", "changes", "differ", "outside", "difference"), "flagged"),
    **dict.fromkeys(("clear", "does not change", "do not differ", "inside"), "clear"),
    **dict.fromkeys(("open", "inconclusive"), "open"),
    "equivalent": "clear",
}


class Static(NamedTuple):
    """A file that pages name."""

    body: bytes
    kind: str

    @property
    def version(self) -> str:
        """Changes with the bytes."""
        return hashlib.sha256(self.body).hexdigest()[:16]


@cache
def static_files() -> Mapping[str, Static]:
    """Name -> the file: one style sheet, the report's script, and htmx with its licence."""
    here, reports = files("orchestrator.serve"), files("transexplain.reports") / "templates"
    styles = [(reports / name).read_text(encoding="utf-8") for name in _STYLES]
    own = (here / "templates" / "serve.css").read_text(encoding="utf-8")
    marks = [str(marks_css()), *(str(marks_css(one, f".{one} ")) for one in PALETTES)]
    css = "\n".join([*styles, *marks, str(nodes_css()), own])
    script = (here / "static" / "htmx.min.js").read_bytes()
    licence = (here / "static" / "htmx.LICENSE").read_bytes()
    return {
        "style.css": Static(css.encode(), "text/css; charset=utf-8"),
        "htmx.js": Static(script, "text/javascript; charset=utf-8"),
        "page.js": Static((reports / "page.js").read_bytes(), "text/javascript; charset=utf-8"),
        "htmx.LICENSE": Static(licence, "text/plain; charset=utf-8"),
    }


@cache
def _templates() -> Environment:
    """The report's environment, with this package's templates before the report's."""
    made = environment().overlay()
    made.loader = ChoiceLoader(
        [PackageLoader("orchestrator.serve"), PackageLoader("transexplain.reports")]
    )
    return made


def html(template: str, **names: Any) -> bytes:
    """A page of this package's templates; every value is escaped unless a report made it."""
    words = {**VOCABULARY, **_WORDS, **names}
    return storable(_templates().get_template(f"{template}.html.j2").render(words)).encode()


def json_bytes(document: Any) -> bytes:
    """Any document as ASCII, so that no character of a name is lost."""
    return json.dumps(document, default=_plain, allow_nan=False).encode("ascii")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _static(name: str) -> str:
    return f"/static/{name}?v={static_files()[name].version}"


def _interval(row: Mapping[str, Any], name: str, share: bool = False) -> Markup:
    """A number, or a share, of a row of results with its interval; a dash where there is none."""
    shown = percent if share else number
    value = row[name]
    if value is None:
        return Markup(_DASH)
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None and high is None:
        return Markup("{}").format(shown(value))
    ends = (f"{_MINUS}∞" if low is None else shown(low), "∞" if high is None else shown(high))
    # digits and signs alone: nothing needs escaping, which takes long for a table
    return Markup(f'{shown(value)} <span class="soft">[{ends[0]}, {ends[1]}]</span>')


def _count(value: int | None) -> str:
    return _DASH if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    return _DASH if value is None else percent(value)


def _metric(value: float | None, unit: str) -> str:
    """A metric of any size, shares by the hundred."""
    if value is None:
        return _DASH
    if unit == "share" and (value == 0 or abs(value) >= 0.0005):
        return percent(value)
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return power(value) if abs(value) < 0.001 else number(value)


def _whisker(row: Mapping[str, Any], name: str, axis: Axis) -> Markup:
    """A number with its interval on an axis that other rows share; empty without an interval."""
    ends = (row[name], row[f"{name}_low"], row[f"{name}_high"])
    if any(one is None for one in ends):
        return Markup("")
    return whisker(*ends, axis)


def _duration(seconds: float | None) -> str:
    """`42 s`, `3 min 20 s`, `2 h 5 min`, `7 d 3 h`."""
    if seconds is None:
        return _DASH
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


_WORDS = {
    "link": link,
    "static": _static,
    "interval": _interval,
    "whisker_of": _whisker,
    "duration": _duration,
    "plain": _count,
    "rate": _rate,
    "metric_value": _metric,
    "short": short,
    "in_a_line": in_a_line,
    "tones": _TONES,
    "passing_kinds": PASSING_KINDS,
    # what a server does besides its pages; a page is told otherwise
    "operate": False,
    "live": False,
    "reports": True,
}
