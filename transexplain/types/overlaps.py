"""Spans of characters, and which of them overlap another one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

Span = tuple[int, int]


class Overlaps:
    """Spans (start, end), none of them empty, searched in logarithmic time."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted((start, end, place) for place, (start, end) in enumerate(spans))
        self._starts = [start for start, _, _ in ordered]
        self._ends = [end for _, end, _ in ordered]
        self._places = [place for _, _, place in ordered]
        self._reached = list(accumulate(self._ends, max))  # the last end up to each of them

    def of(self, start: int, end: int) -> list[int]:
        """The places, ascending, of the spans that share a character with this one."""
        first, stop = bisect_right(self._reached, start), bisect_left(self._starts, end)
        near = range(first, stop)
        return sorted(self._places[one] for one in near if self._ends[one] > start)
