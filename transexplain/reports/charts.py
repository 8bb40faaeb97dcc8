"""Charts: inline SVG for print, and the specification that Vega draws in a browser."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from markupsafe import Markup

from transexplain.files.local_copies import cache_dir
from transexplain.files.paths import write_whole
from transexplain.reports.page import Script, runnable, script
from transexplain.reports.phrasing import encodable

if TYPE_CHECKING:
    import altair as alt


#: of the drawing; it is shown at this size or a little smaller, so that text stays readable
_WIDTH, _HEIGHT = 440, 290
#: of ticks: without digits of its own Vega rounds to what tells ticks apart, and 20 is 2e+1
NUMBER = ".6~g"
#: `--line-0` to `--line-6` in the style sheet: hues that differ for every kind of colour blindness
_COLOURS = 7
#: after the last colour they come again, dashed otherwise
_DASHES = ((1, 0), (7, 3), (8, 3, 2, 3))

#: a plain wheel scrolls the page; the rest belongs to the browser's own gestures
_WHEEL = "wheel![event.ctrlKey || event.metaKey]"
_REACH = 220  #: area around a point, in pixels, that answers to the pointer

SeriesKind = Literal["method", "random", "oracle"]
P = ParamSpec("P")
R = TypeVar("R")


def unchecked(draw: Callable[P, R]) -> Callable[P, R]:
    """`draw` without Altair's check of each part against its schema, which takes half the time.

    The charts are always the same; a test checks every one of them against the schema.
    """

    @wraps(draw)
    def without_checks(*args: P.args, **names: P.kwargs) -> R:
        from altair.utils.schemapi import debug_mode

        with debug_mode(False):
            return draw(*args, **names)

    return without_checks


@dataclass(frozen=True, kw_only=True, slots=True)
class Stroke:
    """The look of a line."""

    colour: str  #: a CSS value
    dash: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One line of a chart."""

    x: tuple[float, ...]
    y: tuple[float | None, ...]  #: None: a gap
    stroke: Stroke
    name: str = ""  #: shown only where a reader points


def stroke(place: int, kind: SeriesKind = "method") -> Stroke:
    """The look of the line of a method, by its place in the table."""
    if kind == "random":
        return Stroke(colour="var(--faint)", dash=(3, 4))
    if kind == "oracle":
        return Stroke(colour="var(--ink)", dash=(1, 3))
    dash = _DASHES[place // _COLOURS % len(_DASHES)]
    return Stroke(colour=f"var(--line-{place % _COLOURS})", dash=dash)


@unchecked
def lines(series: Sequence[Series], *, x_title: str, y_title: str) -> str:
    """A chart of `series` as an SVG element; an axis of shares is written in per cent."""
    return drawn(_lines(series, x_title, y_title))


def drawn(chart: "alt.LayerChart") -> str:
    """A chart as an SVG element for the inside of a page."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(
        _styled(chart).to_json(validate=False), allowed_base_urls=[]
    )

    def lean(tag: re.Match[str]) -> str:
        """Without namespaces, which HTML knows, roles of parts and thousandths of a pixel."""
        bare = re.sub(r' (xmlns(:xlink)?|role|aria-[a-z]+)="[^"]*"', "", tag[0])
        return re.sub(r"(\.\d\d)\d+", r"\1", bare)

    return re.sub(r"<[^>]*>", lean, svg)


def specification(chart: "alt.LayerChart") -> dict[str, Any]:
    """A chart as a Vega-Lite specification without an address in it."""
    document: dict[str, Any] = _styled(chart).to_dict(validate=False)
    return {key: value for key, value in document.items() if key != "$schema"}


def zoom() -> "alt.Parameter":
    """The gestures of an interactive chart: Ctrl and the wheel, dragging, a double click."""
    import altair as alt

    return alt.selection_interval(bind="scales", zoom=_WHEEL)


def sized(chart: "alt.LayerChart") -> "alt.LayerChart":
    """A chart at the size at which its type stays readable."""
    layers: alt.LayerChart = chart.properties(width=_WIDTH, height=_HEIGHT)
    return layers


def _lines(
    series: Sequence[Series], x_title: str, y_title: str, *, interactive: bool = False
) -> "alt.LayerChart":
    import altair as alt

    numbers = list(range(len(series)))
    values = [
        {"x": x, "y": y, "line": number} | ({"name": encodable(line.name)} if interactive else {})
        for number, line in enumerate(series)
        for x, y in zip(line.x, line.y, strict=True)
    ]
    base = alt.Chart({"values": values}).encode(
        x=alt.X(
            "x:Q",
            title=x_title,
            axis=alt.Axis(format=_format(x_title), tickCount=6),
            scale=alt.Scale(padding=6) if interactive else alt.Undefined,  # room for clipped dots
        ),
        y=alt.Y(
            "y:Q",
            title=y_title,
            axis=alt.Axis(tickCount=6),
            scale=alt.Scale(zero=False, nice=False, padding=4),  # an accuracy ends at 1
        ),
        color=alt.Color(
            "line:N",
            legend=None,
            scale=alt.Scale(domain=numbers, range=[line.stroke.colour for line in series]),
        ),
    )
    dashes = alt.Scale(domain=numbers, range=[list(line.stroke.dash) for line in series])
    dashed = alt.StrokeDash("line:N", legend=None, scale=dashes)
    strokes = base.mark_line(strokeWidth=2, aria=False, clip=interactive).encode(strokeDash=dashed)
    points = base.mark_point(filled=True, size=16, opacity=1, aria=False, clip=interactive)
    if not interactive:
        return sized(strokes + points)
    apart = alt.condition("chosen < 0 || datum.line == chosen", alt.value(1), alt.value(0.15))
    reach = base.mark_point(filled=True, size=_REACH, opacity=0, aria=False, clip=True).encode(
        tooltip=[
            alt.Tooltip("name:N", title="line"),
            alt.Tooltip("x:Q", title=x_title, format=_format(x_title).replace("%", ".1~%")),
            alt.Tooltip("y:Q", title=y_title, format=".4~g"),
        ]
    )
    return sized(strokes.encode(opacity=apart) + points.encode(opacity=apart) + reach)


def _format(title: str) -> str:
    return "%" if title.startswith("share") else NUMBER


def _styled(chart: "alt.LayerChart") -> "alt.LayerChart":
    axis: dict[str, Any] = {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--hair)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    }
    chart = chart.properties(
        background="transparent", autosize={"type": "fit", "contains": "padding"}
    )
    styled: alt.LayerChart = chart.configure(
        font="system-ui, sans-serif", axis=axis, view={"stroke": None}, aria=False
    )
    return styled


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
        ).format(self.label, Markup(self.still), script_data(self.specification))


@unchecked
def line_drawing(series: Sequence[Series], *, x_title: str, y_title: str, label: str) -> Drawing:
    """A line chart of `series`; an axis of shares is written in per cent.

    The parameter `chosen` of its specification is the number of the line that stands out; -1: all
    alike.
    """
    import altair as alt

    chart = _lines(series, x_title, y_title, interactive=True)
    return Drawing(
        label=label,
        still=lines(series, x_title=x_title, y_title=y_title),
        specification=specification(chart.add_params(alt.param(name="chosen", value=-1), zoom())),
    )


def script_data(content: dict[str, Any]) -> Markup:
    """JSON as the text of a script element of the type `application/json`."""
    text = json.dumps(content, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))


@cache
def scripts() -> tuple[Script, ...]:
    """Vega and what sets it to work, in the order in which a page holds them.

    Putting Vega together takes more than a second, so it is kept in `TRANSEXPLAIN_CACHE_DIR` for
    the next process, behind its digest; a file that is not what was written is made again.
    """
    import vl_convert

    path = cache_dir() / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        digest, _, kept = path.read_text("utf-8").partition("\n")
        if digest == f"// {sha256(kept.encode()).hexdigest()}":
            return runnable(kept, "Vega"), script("charts.js")
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError):  # a folder that cannot be written costs that second again
        write_whole(path, f"// {sha256(bundle.encode()).hexdigest()}\n{bundle}".encode())
    return runnable(bundle, "Vega"), script("charts.js")


Points = Sequence[tuple[float, float]]


@unchecked
def scatter_drawing(points: Points, *, titles: tuple[str, str], label: str) -> Drawing | None:
    """A point for each pair (x, y); None where there are fewer than two. `titles` are of axes."""
    if len(points) < 2:
        return None
    still, live = (_scatter(points, titles, interactive=way) for way in (False, True))
    return Drawing(label=label, still=drawn(still), specification=specification(live))


def _scatter(points: Points, titles: tuple[str, str], *, interactive: bool) -> "alt.LayerChart":
    import altair as alt

    dots = _on_axes(points, titles).mark_point(
        filled=True, size=22, opacity=0.55, aria=False, clip=interactive
    )
    dots = dots.encode(color=alt.value("var(--line-0)"))
    if interactive:
        named = (("x:Q", titles[0]), ("y:Q", titles[1]))
        tips = [alt.Tooltip(field, title=title, format="+.4~g") for field, title in named]
        dots = dots.encode(tooltip=tips).add_params(zoom())
    ends = [min(x for x, _ in points), max(x for x, _ in points)]
    equal = _on_axes([(end, end) for end in ends], titles).mark_line(
        strokeDash=[4, 4], strokeWidth=1.2, aria=False, clip=interactive
    )
    layers = alt.layer(equal.encode(color=alt.value("var(--faint)")), dots)
    return sized(cast("alt.LayerChart", layers))


def _on_axes(points: Points, titles: tuple[str, str]) -> "alt.Chart":
    import altair as alt

    axis, scale = alt.Axis(format=NUMBER, tickCount=6), alt.Scale(zero=False, padding=8)
    return alt.Chart({"values": [{"x": a, "y": b} for a, b in points]}).encode(
        x=alt.X("x:Q", title=titles[0], axis=axis, scale=scale),
        y=alt.Y("y:Q", title=titles[1], axis=axis, scale=scale),
    )
