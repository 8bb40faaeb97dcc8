"""The forest plot of the group table: one strip of inline SVG per row, all on one axis.

Positions are percentages, so that a strip fills whatever width its table cell has.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from transexplain.reports.phrasing import number
from transexplain.types.findings import Quantiles

Interval = tuple[float, float]

_STRIP_HEIGHT = 36
_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class ForestAxis:
    """A symmetric axis around 0, shared by all rows that are compared."""

    limit: float  #: value at both ends
    step: float  #: between ticks
    practical: float  #: differences inside are too small to be flagged

    def place(self, value: float) -> float:
        """Percent from the left; values beyond an end are put at the end."""
        share = max(-1.0, min(1.0, value / self.limit))
        return round(50.0 + 46.0 * share, 2)  # room at both ends for arrows

    def ticks(self) -> list[float]:
        """From left to right, 0 among them."""
        count = math.floor(self.limit / self.step + 1e-9)
        return [step * self.step for step in range(-count, count + 1)]


def axis_of(rows: Sequence[tuple[float | None, Interval | None]], practical: float) -> ForestAxis:
    """An axis on which differences are distinguishable; wider intervals get an arrow."""
    reach = max([practical, *(abs(number) for number, _ in rows if number is not None)])
    widest = max((abs(end) for _, ends in rows for end in ends or ()), default=0.0)
    limit = max(1.5 * practical, min(widest, 2.5 * reach), 1e-9)
    return ForestAxis(limit=limit, step=_step(limit), practical=practical)


def axis_around(ends: Iterable[float]) -> ForestAxis:
    """An axis that holds all these values, without a band."""
    limit = max(1e-9, *map(abs, ends))
    return ForestAxis(limit=limit, step=_step(limit), practical=0.0)


def strip(difference: float | None, ends: Interval | None, shown: str, axis: ForestAxis) -> Markup:
    """A difference and its interval, in the style of its verdict (see `phrasing.tone`)."""
    if difference is None or ends is None:
        return _svg(_ground(axis), "no interval")
    low, high = ends
    label = f"difference {number(difference)}, interval {number(low)} to {number(high)}"
    return _dot(difference, low, high, axis, label, shown)


def scale(axis: ForestAxis) -> Markup:
    """The axis with its numbers, to stand above the strips."""
    parts = []
    for tick in axis.ticks():
        place, digits = axis.place(tick), max(0, -math.floor(math.log10(axis.step) + 1e-9))
        text = f"{abs(tick):.{digits}f}"
        sign = "" if tick == 0 else ("+" if tick > 0 else "\N{MINUS SIGN}")
        parts.append(
            f'<text x="{place}%" y="12" text-anchor="middle">{sign}{text}</text>'
            f'<line class="fp-tick" x1="{place}%" x2="{place}%" y1="17" y2="22"/>'
        )
    return _svg("".join(parts), "axis of the differences", "fp-axis", 22)


def whisker(value: float, low: float, high: float, axis: ForestAxis) -> Markup:
    """A value with its interval, coloured by sign where the interval excludes 0."""
    label = f"{number(value)}, interval {number(low)} to {number(high)}"
    return _dot(value, low, high, axis, label, "flagged" if low > 0.0 or high < 0.0 else "open")


def _dot(value: float, low: float, high: float, axis: ForestAxis, label: str, shown: str) -> Markup:
    middle = _STRIP_HEIGHT / 2
    parts = [
        _ground(axis),
        _line(axis.place(low), axis.place(high), middle, "fp-interval"),
        *(_arrow(axis, end, middle) for end in (low, high) if abs(end) > axis.limit),
        f'<circle class="fp-dot" cx="{axis.place(value)}%" cy="{middle}" r="4.5"/>',
    ]
    return _row("".join(parts), label, f"fp-{shown} fp-{'pos' if value > 0 else 'neg'}")


def box(spread: Quantiles, axis: ForestAxis) -> Markup:
    """Quantiles of single mentions: a line from 5 to 95 %, a box of the middle half, the median."""
    middle, left, right = _STRIP_HEIGHT / 2, axis.place(spread.lower), axis.place(spread.upper)
    median = axis.place(spread.median)
    parts = [
        _ground(axis),
        _line(axis.place(spread.low), axis.place(spread.high), middle, "fp-interval"),
        f'<rect class="fp-box" x="{left}%" width="{round(max(0.4, right - left), 2)}%" '
        f'y="{middle - 6}" height="12"/>',
        f'<line class="fp-median" x1="{median}%" x2="{median}%" y1="{middle - 8}" '
        f'y2="{middle + 8}"/>',
    ]
    label = f"median {number(spread.median)}, half of the mentions within "
    return _row("".join(parts), f"{label}{number(spread.lower)} to {number(spread.upper)}")


def _ground(axis: ForestAxis) -> str:
    left, right, zero = axis.place(-axis.practical), axis.place(axis.practical), axis.place(0.0)
    return (
        f'<rect class="fp-band" x="{left}%" width="{round(right - left, 2)}%" y="0" '
        f'height="{_STRIP_HEIGHT}"/>'
        f'<line class="fp-zero" x1="{zero}%" x2="{zero}%" y1="0" y2="{_STRIP_HEIGHT}"/>'
    )


def _line(left: float, right: float, y: float, name: str) -> str:
    return f'<line class="{name}" x1="{left}%" x2="{right}%" y1="{y}" y2="{y}"/>'


def _arrow(axis: ForestAxis, end: float, y: float) -> str:
    """The interval goes on beyond the plot."""
    tip = 6 if end > 0 else -6
    return (
        f'<svg x="{axis.place(end)}%" y="{y}" overflow="visible">'
        f'<path class="fp-arrow" d="M0 -4 L{tip} 0 L0 4 Z"/></svg>'
    )


def _row(content: str, label: str, name: str = "") -> Markup:
    """A strip that shows its numbers under the pointer."""
    return _svg(f"<title>{label}</title>{content}", label, name)


def _svg(content: str, label: str, name: str = "", height: int = _STRIP_HEIGHT) -> Markup:
    """Only numbers and words of this module get here: nothing needs escaping."""
    return Markup(
        f'<svg class="fp {name}" role="img" aria-label="{label}" width="100%" height="{height}">'
        f"{content}</svg>"
    )


def _step(limit: float) -> float:
    """1, 2 or 5 times a power of ten, at most `limit`."""
    power = 10.0 ** math.floor(math.log10(limit))
    return power * max(step for step in _STEPS if step * power <= limit * (1 + 1e-9))
