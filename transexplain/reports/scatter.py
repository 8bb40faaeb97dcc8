"""Scatters of two numbers of each item, with the line on which both are equal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from transexplain.reports import charts
from transexplain.reports.charts import Drawing

if TYPE_CHECKING:
    import altair as alt

Points = Sequence[tuple[float, float]]


@charts.unchecked
def scatter_drawing(points: Points, *, titles: tuple[str, str], label: str) -> Drawing | None:
    """A point for each pair; None where there are fewer than two.

    Args:
        points: pairs (x, y).
        titles: of both axes.
        label: what it shows, in a sentence.
    """
    if len(points) < 2:
        return None
    return Drawing(
        label=label,
        still=charts.drawn(_scatter(points, titles, interactive=False)),
        specification=charts.specification(_scatter(points, titles, interactive=True)),
    )


def _scatter(points: Points, titles: tuple[str, str], *, interactive: bool) -> "alt.LayerChart":
    import altair as alt

    dots = _on_axes(points, titles).mark_point(
        filled=True, size=22, opacity=0.55, aria=False, clip=interactive
    )
    dots = dots.encode(color=alt.value("var(--line-0)"))
    if interactive:
        named = (("x:Q", titles[0]), ("y:Q", titles[1]))
        tips = [alt.Tooltip(field, title=title, format="+.4~g") for field, title in named]
        dots = dots.encode(tooltip=tips).add_params(charts.zoom())
    ends = [min(one for one, _ in points), max(one for one, _ in points)]
    equal = _on_axes([(end, end) for end in ends], titles).mark_line(
        strokeDash=[4, 4], strokeWidth=1.2, aria=False, clip=interactive
    )
    layers = alt.layer(equal.encode(color=alt.value("var(--faint)")), dots)
    return charts.sized(cast("alt.LayerChart", layers))


def _on_axes(points: Points, titles: tuple[str, str]) -> "alt.Chart":
    import altair as alt

    axis, scale = alt.Axis(format=charts.NUMBER, tickCount=6), alt.Scale(zero=False, padding=8)
    return alt.Chart({"values": [{"x": a, "y": b} for a, b in points]}).encode(
        x=alt.X("x:Q", title=titles[0], axis=axis, scale=scale),
        y=alt.Y("y:Q", title=titles[1], axis=axis, scale=scale),
    )
