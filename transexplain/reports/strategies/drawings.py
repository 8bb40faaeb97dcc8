"""The pictures of a class: where its items lie, and its eigenvalues."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from transexplain.reports.charts import Series, lines, stroke
from transexplain.strategies.records import ClassStrategies, Point

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
    # every second cluster has square dots: colour is not all that tells them apart
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
