"""Spans that overlap another, against a look at each of them."""

from hypothesis import given
from hypothesis import strategies as st

from transexplain.auditing.text_redaction import covered, joined
from transexplain.types.overlaps import Overlaps

PLACES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair)))
SPANS = st.lists(PLACES.filter(lambda pair: pair[0] < pair[1]), max_size=12)


@given(SPANS, PLACES)
def test_spans_that_overlap_are_all_found(spans: list[tuple[int, int]], place: tuple) -> None:
    start, end = place
    expected = [at for at, (left, right) in enumerate(spans) if left < end and right > start]
    assert Overlaps(spans).of(start, end) == expected


@given(SPANS, PLACES)
def test_a_place_is_covered_where_a_span_has_a_character_of_it(
    spans: list[tuple[int, int]], place: tuple
) -> None:
    start, end = place
    together = joined(spans)
    inside = any(left < end and start < right for left, right in together)
    edge = start == end and any(left <= start <= right for left, right in together)
    assert covered(place, together) == (inside or edge)
