"""Line charts as inline SVG: no script, no network, colours by the page's own variables.

Vega-Lite is drawn here, once, when a report is made. Names of things never enter a drawing, so
nothing a user wrote can: who is who is told by a legend beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import altair as alt

#: of the drawing; it is shown at this size or a little smaller, so that text stays readable
_WIDTH, _HEIGHT = 440, 290
#: `--line-0` to `--line-6` in the style sheet: hues that differ for every kind of colour blindness
_COLOURS = 7
#: after the last colour they come again, dashed otherwise
_DASHES = ((1, 0), (7, 3), (8, 3, 2, 3))

SeriesKind = Literal["method", "random", "oracle"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stroke:
    """How a line looks."""

    colour: str  #: a CSS value
    dash: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One line of a chart."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    stroke: Stroke


def stroke(place: int, kind: SeriesKind = "method") -> Stroke:
    """The look of the line of a method, by its place in the table."""
    if kind == "random":
        return Stroke(colour="var(--faint)", dash=(3, 4))
    if kind == "oracle":
        return Stroke(colour="var(--ink)", dash=(1, 3))
    dash = _DASHES[place // _COLOURS % len(_DASHES)]
    return Stroke(colour=f"var(--line-{place % _COLOURS})", dash=dash)


def lines(series: Sequence[Series], *, x_title: str, y_title: str) -> str:
    """A chart of `series` as an SVG element; an axis of shares is written in per cent."""
    import altair as alt
    import vl_convert

    values = [
        {"x": x, "y": y, "line": number}
        for number, one in enumerate(series)
        for x, y in zip(one.x, one.y, strict=True)
    ]
    numbers = list(range(len(series)))
    base = alt.Chart({"values": values}).encode(
        x=alt.X("x:Q", title=x_title, axis=alt.Axis(format=_format(x_title), tickCount=6)),
        y=alt.Y("y:Q", title=y_title, axis=alt.Axis(tickCount=6), scale=alt.Scale(zero=False)),
        color=alt.Color(
            "line:N",
            legend=None,
            scale=alt.Scale(domain=numbers, range=[one.stroke.colour for one in series]),
        ),
    )
    dashes = alt.Scale(domain=numbers, range=[list(one.stroke.dash) for one in series])
    drawn = base.mark_line(strokeWidth=2, aria=False).encode(
        strokeDash=alt.StrokeDash("line:N", legend=None, scale=dashes)
    )
    points = base.mark_point(filled=True, size=16, opacity=1, aria=False)
    chart = _styled((drawn + points).properties(width=_WIDTH, height=_HEIGHT))
    return vl_convert.vegalite_to_svg(chart.to_json(), allowed_base_urls=[])


def _format(title: str) -> str:
    return "%" if title.startswith("share") else "~g"


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
        font="system-ui, sans-serif", axis=axis, view={"stroke": None}
    )
    return styled
