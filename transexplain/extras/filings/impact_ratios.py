"""Selection rates, scoring rates and impact ratios by sex, by ethnicity, and by both.

As New York City's Local Law 144 defines them (6 RCNY 5-300): the rate of a category over that of
the category with the highest one. Unlike the rates of `outcomes`, which compare who is mentioned,
these are about the people that the items are of: the data says in columns who they are.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import nan
from typing import Literal

import numpy as np

from transexplain.analysis.groups.answers import Answer, probability
from transexplain.analysis.groups.intervals import Interval, Share, ratio
from transexplain.types.plans import ImpactPlan

By = Literal["sex", "ethnicity", "sex and ethnicity"]
#: predicted class, logits (C,) or none, metadata
Answered = tuple[str, Sequence[float], Mapping[str, str]]
_Key = tuple[str | None, str | None]  #: sex and ethnicity; None: unknown
_TOGETHER = 4096  #: items whose log-odds are computed at once


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactRow:
    """One category of people, for one favourable answer."""

    sex: str  #: "": the table is not by sex
    ethnicity: str  #: "": the table is not by ethnicity
    items: int
    share: float  #: of the items of the table
    excluded: bool  #: a smaller share than the plan asks for: no ratios
    selected: int | None  #: predicted to have the answer; None: too few to be published
    rate: float | None  #: selected / items
    interval: Interval | None  #: of the rate, 95 %, Wilson
    ratio: float | None  #: rate over the highest rate of a category that is not excluded
    ratio_interval: Interval | None  #: 95 %; its end may be infinite; None: it is the highest
    above: int | None  #: items with a score above the median; None: there are no scores
    scoring_rate: float | None  #: above / items
    scoring_ratio: float | None  #: as `ratio`, of scoring rates

    @property
    def category(self) -> str:
        """The name of the category in the report."""
        return ", ".join(part for part in (self.sex, self.ethnicity) if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactTable:
    """The categories of one kind."""

    by: By
    items: int  #: whose category is known
    unknown: int | None  #: whose category is not; in no row. None: too few to be published
    rows: tuple[ImpactRow, ...]  #: sorted by sex and ethnicity


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactAnswer:
    """The tables of one favourable answer."""

    answer: str
    median: float | None  #: log-odds of the answer, over all items; None: not all have logits
    median_probability: float | None  #: the same as a probability
    tables: tuple[ImpactTable, ...]


@dataclass(slots=True)
class _Cell:
    """The items of one sex and ethnicity."""

    answers: int
    items: int = 0
    selected: list[int] = field(init=False)  #: by answer
    scores: list["array[float]"] = field(init=False)  #: log-odds by answer

    def __post_init__(self) -> None:
        self.selected = [0] * self.answers
        self.scores = [array("d") for _ in range(self.answers)]


class _CountedItems:
    """All items by sex and ethnicity: 8 bytes an item and answer."""

    def __init__(self, plan: ImpactPlan, answers: Sequence[Answer], classes: Sequence[str]) -> None:
        self.cells: dict[_Key, _Cell] = {}
        self._plan, self._answers, self._classes = plan, answers, classes
        self._unknown = {value.strip().casefold() for value in plan.unknown} | {""}

    def add(self, some: Sequence[Answered]) -> None:
        """Count items; one without all logits has scores that are not a number."""
        width = len(self._classes)
        full = (logits if len(logits) == width else (nan,) * width for _, logits, _ in some)
        matrix = np.array(list(full), dtype=np.float64)
        scores = [answer.log_odds(matrix) for answer in self._answers]
        for row, (predicted, _, meta) in enumerate(some):
            key = self._category(meta, self._plan.sex), self._category(meta, self._plan.ethnicity)
            cell = self.cells.setdefault(key, _Cell(len(self._answers)))
            cell.items += 1
            for number, answer in enumerate(self._answers):
                cell.selected[number] += answer.selects(predicted, self._classes)
                cell.scores[number].append(scores[number][row])

    def _category(self, meta: Mapping[str, str], column: str | None) -> str | None:
        value = str(meta.get(column) or "").strip() if column is not None else ""
        return None if value.casefold() in self._unknown else value


def impact_answers(
    plan: ImpactPlan,
    answers: Sequence[Answer],
    classes: Sequence[str],
    items: Iterable[Answered],
) -> tuple[ImpactAnswer, ...]:
    """The tables of every favourable answer, in the order of `answers`.

    Memory grows by 8 bytes for each item and answer: the median is the exact one.
    """
    counted, rest = _CountedItems(plan, answers, classes), iter(items)
    while some := list(islice(rest, _TOGETHER)):
        counted.add(some)
    return tuple(
        _of_answer(plan, counted.cells, number, answer) for number, answer in enumerate(answers)
    )


def _of_answer(
    plan: ImpactPlan, cells: Mapping[_Key, _Cell], number: int, answer: Answer
) -> ImpactAnswer:
    scores = np.concatenate([np.zeros(0), *(cell.scores[number] for cell in cells.values())])
    median = float(np.median(scores)) if scores.size and not np.isnan(scores).any() else None
    return ImpactAnswer(
        answer=answer.name,
        median=median,
        median_probability=None if median is None else float(probability(median)),
        tables=tuple(_table(plan, cells, number, median, by) for by in _kinds(plan)),
    )


def _kinds(plan: ImpactPlan) -> Iterator[By]:
    if plan.sex is not None:
        yield "sex"
    if plan.ethnicity is not None:
        yield "ethnicity"
    if plan.sex is not None and plan.ethnicity is not None:
        yield "sex and ethnicity"


_PARTS: Mapping[By, Callable[[_Key], _Key]] = {
    "sex": lambda key: (key[0], ""),
    "ethnicity": lambda key: ("", key[1]),
    "sex and ethnicity": lambda key: key,
}


@dataclass(slots=True)
class _Sums:
    """The sums of one category."""

    items: int = 0
    selected: int = 0
    above: int = 0


def _table(
    plan: ImpactPlan, cells: Mapping[_Key, _Cell], number: int, median: float | None, by: By
) -> ImpactTable:
    sums: dict[tuple[str, str], _Sums] = {}
    unknown = 0
    for key, cell in cells.items():
        sex, ethnicity = _PARTS[by](key)
        if sex is None or ethnicity is None:
            unknown += cell.items
            continue
        total_of_key = sums.setdefault((sex, ethnicity), _Sums())
        total_of_key.items += cell.items
        total_of_key.selected += cell.selected[number]
        if median is not None:
            total_of_key.above += int(np.count_nonzero(np.asarray(cell.scores[number]) > median))
    items = sum(total.items for total in sums.values())
    return ImpactTable(
        by=by,
        items=items,
        unknown=unknown,
        rows=tuple(_rows(sums, items, plan.exclude_below, scored=median is not None)),
    )


def _rows(
    sums: Mapping[tuple[str, str], _Sums], items: int, least: float, *, scored: bool
) -> Iterator[ImpactRow]:
    ordered = sorted(sums.items())
    kept = [total for _, total in ordered if total.items / items >= least]
    # of several with the highest rate the largest is what intervals are against
    best = max(kept, key=lambda total: (total.selected / total.items, total.items), default=None)
    reference = _share(best) if best and best.selected else None
    scoring = max((total.above / total.items for total in kept), default=0.0) if scored else 0.0
    for (sex, ethnicity), cell in ordered:
        share, excluded = _share(cell), cell.items / items < least
        against = None if excluded else reference
        yield ImpactRow(
            sex=sex,
            ethnicity=ethnicity,
            items=cell.items,
            share=cell.items / items,
            excluded=excluded,
            selected=cell.selected,
            rate=share.value,
            interval=share.interval(),
            ratio=share.value / against.value if against else None,
            ratio_interval=ratio(share, against) if against and cell is not best else None,
            above=cell.above if scored else None,
            scoring_rate=cell.above / cell.items if scored else None,
            scoring_ratio=cell.above / cell.items / scoring if scoring and not excluded else None,
        )


def _share(sums: _Sums) -> Share:
    return Share(
        count=sums.selected, total=sums.items, effective=float(sums.items), freedom=float("inf")
    )
