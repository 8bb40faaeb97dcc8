"""Charts: Vega-Lite that a browser draws, and the same as inline SVG for print."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Literal

from markupsafe import Markup

from transexplain.files.local_copies import cache_dir
from transexplain.files.paths import write_whole
from transexplain.reports.page import Script, runnable, script
from transexplain.reports.phrasing import encodable

#: a part of a specification of Vega-Lite; names of the data in it are data, never markup
Spec = Mapping[str, Any]

#: of the drawing; it is shown at this size or a little smaller, so that text stays readable
_WIDTH, _HEIGHT = 440, 290
#: of ticks: without digits of its own Vega rounds to what tells ticks apart, and 20 is 2e+1
NUMBER = ".6~g"
#: `--line-0` to `--line-6` in the style sheet: hues that differ for every kind of colour blindness
_COLOURS = 7
#: after the last colour they come again, dashed otherwise
_DASHES = ((1, 0), (7, 3), (8, 3, 2, 3))

#: the gestures of a chart, a parameter of one of its layers: Ctrl and the wheel (a plain wheel
#: scrolls the page, the rest belongs to the browser's own gestures), dragging, a double click
ZOOM: Spec = {
    "name": "zoom",
    "select": {"type": "interval", "zoom": "wheel![event.ctrlKey || event.metaKey]"},
    "bind": "scales",
}
_REACH = 220  #: area around a point, in pixels, that answers to the pointer
_LOOK: Spec = {
    "width": _WIDTH,
    "height": _HEIGHT,
    "background": "transparent",
    "autosize": {"type": "fit", "contains": "padding"},
    "config": {
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "aria": False,
        "axis": {
            "labelColor": "var(--soft)",
            "titleColor": "var(--soft)",
            "gridColor": "var(--hair)",
            "domainColor": "var(--line)",
            "tickColor": "var(--line)",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
    },
}

SeriesKind = Literal["method", "random", "oracle"]


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


#: what would end a script element, begin a comment in it or break a line of JavaScript
_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """One chart of a page."""

    label: str  #: what it shows, in a sentence, for a reader who cannot see it
    still: str  #: an SVG element
    specification: Spec

    def __html__(self) -> str:
        """The element that `charts.js` looks for."""
        return Markup(
            '<div class="chart" role="img" aria-label="{}"><div class="still">{}</div>'
            '<script type="application/json">{}</script></div>'
        ).format(self.label, Markup(self.still), script_data(self.specification))


def script_data(content: Spec) -> Markup:
    """JSON as the text of a script element of the type `application/json`."""
    text = json.dumps(content, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))


def drawing(label: str, *layers: Spec, unseen: Sequence[Spec] = (), **rest: Any) -> Drawing:
    """A chart of `layers`, each a mark and its encoding, and of `unseen` ones for the pointer."""
    still = _svg({**_LOOK, **rest, "layer": [*map(_layer, layers)]})
    # a picture needs no clipping, whose ids would be the same in every chart of a page
    live = [_layer(part, clip=True) for part in (*layers, *unseen)]
    return Drawing(label=label, still=still, specification={**_LOOK, **rest, "layer": live})


def _layer(part: Spec, *, clip: bool = False) -> Spec:
    return {**part, "mark": {**part["mark"], "aria": False, "clip": clip}}


def _svg(chart: Spec) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(dict(chart), allowed_base_urls=[])

    def lean(tag: re.Match[str]) -> str:
        """Without namespaces, which HTML knows, roles of parts and thousandths of a pixel."""
        bare = re.sub(r' (xmlns(:xlink)?|role|aria-[a-z]+)="[^"]*"', "", tag[0])
        return re.sub(r"(\.\d\d)\d+", r"\1", bare)

    return re.sub(r"<[^>]*>", lean, svg)


def axis(field: str, title: str, number: str | None = None, **scale: Any) -> Spec:
    """The encoding of a place by a number; `number` is the format of its ticks."""
    ticks = {"tickCount": 6} | ({"format": number} if number else {})
    return {**_of(field, "quantitative", title), "axis": ticks, "scale": scale}


def tips(*numbers: tuple[str, str, str], **names: str) -> list[Spec]:
    """What a reader sees at a mark: fields of names, then of numbers with title and format."""
    return [
        *(_of(field, "nominal", title) for field, title in names.items()),
        *({**_of(field, "quantitative", title), "format": how} for field, title, how in numbers),
    ]


def _of(field: str, kind: str, title: str) -> Spec:
    return {"field": field, "type": kind, "title": title}


def choices(field: str, values: Sequence[Any], looks: Sequence[Any]) -> Spec:
    """The encoding of a look by a value, without a legend."""
    scale = {"domain": [*values], "range": [*looks]}
    return {"field": field, "type": "nominal", "legend": None, "scale": scale}


def line_drawing(series: Sequence[Series], *, x_title: str, y_title: str, label: str) -> Drawing:
    """A line chart of `series`; an axis of shares is written in per cent.

    The parameter `chosen` of its specification is the number of the line that stands out; -1: all
    alike.
    """
    values = [
        {"x": x, "y": y, "line": number, "name": encodable(line.name)}
        for number, line in enumerate(series)
        for x, y in zip(line.x, line.y, strict=True)
    ]
    form, numbers = "%" if x_title.startswith("share") else NUMBER, range(len(series))
    places = {
        "x": axis("x", x_title, form, padding=6),  # room for clipped dots
        "y": axis("y", y_title, zero=False, nice=False, padding=4),  # an accuracy ends at 1
        "color": choices("line", numbers, [line.stroke.colour for line in series]),
    }
    apart = {"condition": {"test": "chosen < 0 || datum.line == chosen", "value": 1}, "value": 0.15}
    dashes = choices("line", numbers, [line.stroke.dash for line in series])
    shown = tips(("x", x_title, form.replace("%", ".1~%")), ("y", y_title, ".4~g"), name="line")
    return drawing(
        label,
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {**places, "strokeDash": dashes, "opacity": apart},
            "params": [ZOOM],
        },
        {
            "mark": {"type": "point", "filled": True, "size": 16, "opacity": 1},
            "encoding": {**places, "opacity": apart},
        },
        unseen=[
            {
                "mark": {"type": "point", "filled": True, "size": _REACH, "opacity": 0},
                "encoding": {**places, "tooltip": shown},
            }
        ],
        data={"values": values},
        params=[{"name": "chosen", "value": -1}],
    )


def scatter_drawing(
    points: Sequence[tuple[float, float]], *, titles: tuple[str, str], label: str
) -> Drawing | None:
    """A point for each pair (x, y); None where there are fewer than two. `titles` are of axes."""
    if len(points) < 2:
        return None
    places = {
        name: axis(name, title, NUMBER, zero=False, padding=8)
        for name, title in zip("xy", titles, strict=True)
    }
    ends = [min(x for x, _ in points), max(x for x, _ in points)]
    shown = tips(("x", titles[0], "+.4~g"), ("y", titles[1], "+.4~g"))
    return drawing(
        label,
        {
            "data": {"values": [{"x": end, "y": end} for end in ends]},
            "mark": {"type": "line", "strokeDash": [4, 4], "strokeWidth": 1.2},
            "encoding": {**places, "color": {"value": "var(--faint)"}},
        },
        {
            "data": {"values": [{"x": x, "y": y} for x, y in points]},
            "mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.55},
            "encoding": {**places, "color": {"value": "var(--line-0)"}, "tooltip": shown},
            "params": [ZOOM],
        },
    )


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
