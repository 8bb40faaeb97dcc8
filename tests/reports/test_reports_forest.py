"""The forest plot puts numbers where they belong."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.reports.forest import axis_around, axis_of, box, scale, strip
from transexplain.types.findings import GroupStatistic, Quantiles


def row(
    difference: float | None, interval: tuple[float, float] | None, **changes: Any
) -> GroupStatistic:
    values: dict[str, Any] = {
        "group": "g",
        "target": "t",
        "class_name": "c",
        "mentions": 9,
        "documents": 9,
        "entities": 9,
        "mean": 0.0,
        "entity_mean": 0.0,
        "interval": None,
        "difference": difference,
        "difference_interval": interval,
        "reference": "all other groups",
        "positive": 0.5,
    }
    return GroupStatistic(**(values | changes))


def percent(svg: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, svg)]


def test_dot_and_interval_stand_at_their_values() -> None:
    one = row(0.5, (0.25, 0.75))
    axis = axis_of([one], 0.1)
    drawn = str(strip(one, axis))
    (dot,) = percent(drawn, r'cx="([\d.]+)%"')
    (left,) = percent(drawn, r'fp-interval" x1="([\d.]+)%"')
    (right,) = percent(drawn, r'fp-interval" x1="[\d.]+%" x2="([\d.]+)%"')
    assert 50 < left < dot < right <= 96
    assert dot - left == pytest.approx(right - dot, abs=0.02)
    assert axis.place(0.0) == 50.0 and "difference 0.50" in drawn


def test_an_interval_wider_than_the_plot_gets_an_arrow() -> None:
    wide, narrow = row(0.1, (-90.0, 90.2)), row(-0.3, (-0.4, -0.2))
    axis = axis_of([wide, narrow], 0.1)
    assert axis.limit < 2.0  # one lost row does not squeeze the others
    assert str(strip(wide, axis)).count("fp-arrow") == 2
    assert "fp-arrow" not in str(strip(narrow, axis))


def test_a_row_without_interval_shows_the_ground_alone() -> None:
    one = row(None, None)
    drawn = str(strip(one, axis_of([one], 0.1)))
    assert "fp-band" in drawn and "circle" not in drawn


def test_flagged_rows_take_the_colour_of_their_sign() -> None:
    down = row(-0.5, (-0.6, -0.4), verdict="difference")
    assert "fp-flagged fp-neg" in str(strip(down, axis_of([down], 0.1)))


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)), max_size=5),
    st.floats(0.0, 1e3),
)
def test_any_numbers_give_an_axis_with_few_ticks(
    pairs: list[tuple[float, float]], practical: float
) -> None:
    rows = [row(middle, (middle - half, middle + half)) for middle, half in pairs]
    axis = axis_of(rows, practical)
    assert 3 <= len(axis.ticks()) <= 5 and 0.0 in axis.ticks()
    for place in percent(
        str(scale(axis)) + "".join(str(strip(r, axis)) for r in rows), r'="([\d.]+)%"'
    ):
        assert 0.0 <= place <= 100.0


def test_a_box_shows_the_five_quantiles() -> None:
    spread = Quantiles(low=-1.0, lower=-0.25, median=0.0, upper=0.5, high=0.75)
    axis = axis_around([-1.0, 0.75])
    drawn = str(box(spread, axis))
    left = percent(drawn, r'fp-box" x="([\d.]+)%')[0]
    width = percent(drawn, r'fp-box" x="[\d.]+%" width="([\d.]+)%')[0]
    assert (left, left + width) == pytest.approx((axis.place(-0.25), axis.place(0.5)))
    assert percent(drawn, r'fp-interval" x1="([\d.]+)%') == [axis.place(-1.0)]
    assert percent(drawn, r'fp-interval" x1="[\d.]+%" x2="([\d.]+)%') == [axis.place(0.75)]
    assert percent(drawn, r'fp-median" x1="([\d.]+)%') == [50.0]
    assert "median 0.00, half of the mentions within \N{MINUS SIGN}0.25 to 0.50" in drawn
    flat = Quantiles(low=0.5, lower=0.5, median=0.5, upper=0.5, high=0.5)
    assert percent(str(box(flat, axis)), r'fp-box" x="[\d.]+%" width="([\d.]+)%') == [0.4], "seen"
