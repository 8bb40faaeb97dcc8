"""Writes a strategies report as one HTML file that needs only a browser, and as JSON."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from transexplain.analysis.strategies.shortcuts import ClassStrategies, Cluster, Point
from transexplain.reports.charts import Series, lines, stroke
from transexplain.reports.coloured_text import spans_html
from transexplain.reports.heatmap import colour_bar, data_uri, tile
from transexplain.reports.page import page
from transexplain.reports.phrasing import class_phrase, things
from transexplain.reports.report_formats import plain
from transexplain.reports.sections.gallery_items import GalleryItem, Shown, show
from transexplain.reports.strategies_report import (
    EXEMPLARS,
    SCHEMA_VERSION,
    StrategyReport,
    percent,
    suspicion,
)

_SIDE = 400  #: of the drawing, with its edge
_EDGE = 16
_DOT, _SMALL_DOT, _MANY = 7, 4, 500  #: widths of a dot, and points from which dots are small


def embedding(points: Sequence[Point]) -> Markup:
    """The items as dots in the colours of their clusters, each cluster with its number.

    One path a cluster, so that thousands of points stay small; nothing a user wrote is in it.
    """
    width = _SMALL_DOT if len(points) >= _MANY else _DOT
    numbers = sorted({point.cluster for point in points})
    dots = Markup("").join(_dots([p for p in points if p.cluster == n], n, width) for n in numbers)
    labels = Markup("").join(_label([p for p in points if p.cluster == n], n) for n in numbers)
    return Markup(
        '<svg class="embedding" viewBox="0 0 {0} {0}" role="img" '
        'aria-label="items by the likeness of their explanations">{1}{2}</svg>'
    ).format(_SIDE, dots, labels if len(numbers) > 1 else "")


def _dots(points: Sequence[Point], number: int, width: int) -> Markup:
    path = "".join("M{:.0f} {:.0f}h0".format(*_place(point.x, point.y)) for point in points)
    # every second cluster has square dots, so that colour is not the only difference
    cap = "round" if number % 2 else "square"
    return Markup('<path d="{}" stroke="{}" stroke-width="{}" stroke-linecap="{}"/>').format(
        path, colour(number), width if number % 2 else width - 1, cap
    )


def _label(points: Sequence[Point], number: int) -> Markup:
    x, y = _place(*(float(np.median([getattr(p, axis) for p in points])) for axis in ("x", "y")))
    return Markup('<text x="{:.0f}" y="{:.0f}">{}</text>').format(x, y + 6, number)


def _place(x: float, y: float) -> tuple[float, float]:
    half = _SIDE / 2 - _EDGE
    return _SIDE / 2 + half * x, _SIDE / 2 - half * y


def colour(number: int) -> str:
    """The colour of a cluster, a CSS value that differs for every kind of colour blindness."""
    return stroke(number - 1).colour


def spectrum(one: ClassStrategies) -> Markup:
    """The smallest eigenvalues of the class's Laplacian, and those of one cluster."""
    x = tuple(float(place) for place in range(1, len(one.eigenvalues) + 1))
    found = Series(x=x, y=one.eigenvalues, stroke=stroke(0))
    chance = Series(x=x, y=one.chance, stroke=stroke(0, "random"))
    return Markup(lines([found, chance], x_title="number", y_title="eigenvalue"))


def render(report: StrategyReport) -> str:
    """One self-contained HTML page; pictures that can be read are embedded."""
    found = report.strategies
    clusters = [cluster for one in found.classes for cluster in one.clusters]
    return page("strategies.html.j2", **_names(report), r=report, clusters=clusters)


def class_piece(report: StrategyReport, class_name: str) -> dict[str, Any]:
    """One class of a report by itself: `name`, `html` (escaped) and `document` (JSON)."""
    one = next(one for one in report.strategies.classes if one.class_name == class_name)
    return {
        "name": class_name,
        "html": page("strategies_class.html.j2", **_names(report), one=one) if one.clusters else "",
        "document": {"notes": list(report.notes), **plain(one)},
    }


def _names(report: StrategyReport) -> dict[str, Any]:
    """What the templates know."""
    found, explored = report.strategies, report.explored
    return {
        "e": explored,
        "s": found,
        "exemplars": lambda one, cluster: _exemplars(report, one, cluster),
        "mean": _mean,
        "scale_of": _scale,
        "picture_of": lambda item: _picture(item, explored.root),
        "text_of": _text,
        "embedding": embedding,
        "spectrum": spectrum,
        "colour": colour,
        "why": lambda cluster: suspicion(cluster, found.modality),
        "bar": data_uri(colour_bar()),
        "class_phrase": lambda name: class_phrase(found.target, name, explored.classes),
        "noun": lambda count: things(found.modality, count),
        "percent": percent,
    }


def _exemplars(report: StrategyReport, one: ClassStrategies, cluster: Cluster) -> list[GalleryItem]:
    held = report.exemplars.get(one.class_name, {})
    count = EXEMPLARS.get(report.strategies.modality, EXEMPLARS["text"])
    return [held[name] for name in cluster.item_ids[:count] if name in held]


def _scale(one: ClassStrategies) -> float:
    """The largest |mean| of a cell in any cluster of the class."""
    grids = [np.asarray(cluster.heatmap) for cluster in one.clusters if cluster.heatmap]
    return max((float(np.abs(grid).max()) for grid in grids), default=0.0)


def _mean(cluster: Cluster, scale: float) -> str:
    return data_uri(tile(np.asarray(cluster.heatmap), width=208, scale=scale))


def _picture(item: GalleryItem, root: str) -> Shown:
    return show(item, root, item.explanations[0].largest)


def _text(item: GalleryItem) -> Markup:
    # spans_html escapes the text itself; on its own scale, since shapes are compared, not sizes
    words = item.explanations[0].words
    drawn = spans_html(
        item.text or "", words, unread_from=item.unread_from, second_at=item.second_at
    )
    return Markup(drawn)


def render_json(report: StrategyReport) -> str:
    """`report` as JSON text in ASCII; a number that is not finite is null.

    Exemplars are the first of each cluster's `item_ids`, which begin with the most typical.
    """
    document = {
        name: plain(getattr(report, name))
        for name in ("schema_version", "headline", "explored", "strategies", "notes")
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that every such document satisfies."""
    from transexplain.reports.report_formats import schema_of

    found = schema_of(StrategyReport, "strategies", SCHEMA_VERSION)
    del found["properties"]["exemplars"]
    found["required"].remove("exemplars")
    return found
