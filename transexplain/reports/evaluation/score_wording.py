"""Numbers of an evaluation as its tables and sentences write them."""

import math

from transexplain.reports.evaluation.evaluation_records import Difference, Interval, Table
from transexplain.reports.phrasing import power, signed

_MINUS = "\N{MINUS SIGN}"
_DIGITS = 3  #: significant ones


def decimals(scale: float) -> int:
    """Decimals that show `scale` with three significant digits, at most six."""
    if scale == 0.0 or not math.isfinite(scale):
        return 2
    return min(6, max(0, _DIGITS - 1 - math.floor(math.log10(scale))))


def value(number: float, scale: float | None = None) -> str:
    """A number of the size of `scale` (default: its own); tiny ones as a power of ten."""
    size = abs(number) if scale is None else scale
    if number == 0.0:
        return "0"
    if size < 1e-3 or size >= 1e6:
        return power(number).replace("-", _MINUS)
    return f"{number:,.{decimals(size)}f}".replace("-", _MINUS)


def change(number: float, scale: float) -> str:
    """A difference with its sign, in the decimals of the table it belongs to."""
    if number and (scale < 1e-3 or scale >= 1e6):
        return ("+" if number > 0 else "") + value(number, scale)
    return signed(number, decimals(scale))


def span(interval: Interval | None, scale: float | None = None) -> str:
    """`0.81 to 0.86`, or nothing; by default in the decimals of the larger end."""
    if interval is None:
        return ""
    size = max(abs(end) for end in interval) if scale is None else scale
    return f"{value(interval[0], size)} to {value(interval[1], size)}"


def p_value(difference: Difference | None) -> str:
    """The adjusted p of a difference, as `p = 0.012`; nothing where there is no test."""
    return probability(None if difference is None else difference.p_adjusted)


def probability(p: float | None) -> str:
    """A p-value as `p = 0.012`; nothing where there is none."""
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def scale(table: Table) -> float:
    """The largest size of a mean in a table: all its numbers get the decimals of that one."""
    return max((abs(row.mean) for row in table.rows if row.mean is not None), default=0.0)
