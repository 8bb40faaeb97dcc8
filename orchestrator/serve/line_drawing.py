"""Draws numbers in a row as a line with intervals, in SVG that needs no script and no library."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from transexplain.reports.phrasing import number

_HEIGHT, _PAD = 56, 7  #: pixels, and what stays free above and below


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePoint:
    """A value at one place from the left."""

    name: str  #: of the place
    value: float | None  #: None: a gap
    low: float | None = None  #: ends of its interval
    high: float | None = None


def line_drawing(points: Sequence[LinePoint], *, label: str, zero: bool = True) -> Markup:
    """The points from left to right, evenly apart, with their intervals; empty: nothing to draw.

    `label` says what is drawn to those who do not see it; `zero`: 0 is within the drawing. Places
    are percentages, so that it fills whatever width it has.
    """
    known = [one for point in points for one in _ends(point)]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    size = high - low or 1.0

    def place(order: int) -> str:
        return f"{3 + 94 * order / (len(points) - 1) if len(points) > 1 else 50:.2f}%"

    def level(value: float) -> float:
        return round(_PAD + (_HEIGHT - 2 * _PAD) * (high - value) / size, 1)

    parts = [Markup('<line class="ld-zero" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(level(0))]
    parts = parts if low <= 0.0 <= high else []
    before: tuple[str, float] | None = None
    for order, point in enumerate(points):
        if point.value is None:
            before = None
            continue
        x, y = place(order), level(point.value)
        if before is not None:
            parts.append(
                Markup('<line class="ld-line" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
                    *before, x, y
                )
            )
        before = (x, y)
    parts += [_dot(point, place(order), level) for order, point in enumerate(points)]
    return Markup(
        '<svg class="ld" role="img" aria-label="{}" width="100%" height="{}">{}</svg>'
    ).format(label, _HEIGHT, Markup("").join(parts))


def _ends(point: LinePoint) -> Iterator[float]:
    if point.value is not None:
        yield from (one for one in (point.value, point.low, point.high) if one is not None)


def _dot(point: LinePoint, x: str, level: Callable[[float], float]) -> Markup:
    """A point with its interval; its numbers are shown under the pointer."""
    if point.value is None:
        return Markup("")
    interval = Markup("")
    said = number(point.value)
    if point.low is not None and point.high is not None:
        said += f" [{number(point.low)}, {number(point.high)}]"
        interval = Markup('<line class="ld-interval" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
            x, level(point.low), level(point.high)
        )
    return Markup(
        '<g><title>{}: {}</title>{}<circle class="ld-dot" cx="{}" cy="{}" r="3.5"/></g>'
    ).format(point.name, said, interval, x, level(point.value))
