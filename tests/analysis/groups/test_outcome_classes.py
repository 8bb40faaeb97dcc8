"""Which classes, rates and errors are compared, and that it does not matter which one is named."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from entity_samples import verdict_of
from plain_records import new_outcome

from transexplain.analysis.groups.answers import Answer, answer_of
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import with_measures
from transexplain.analysis.groups.measures import Measure, MeasureName
from transexplain.analysis.groups.outcomes import Outcome, OutcomeTotals, outcome_table
from transexplain.types.findings import Practical

TWO = ("decline", "accept")
THREE = ("bad", "fair", "good")
LABELS = ("toxic", "insult")
ERRORS: tuple[MeasureName, MeasureName] = ("true positive rate", "false positive rate")

Counts = dict[str, int]  #: "label>predicted" -> items


def totals_of(
    groups: dict[str, Counts], totals: OutcomeTotals | None = None, **keys: Any
) -> OutcomeTotals:
    totals = totals or OutcomeTotals()
    for group, counts in groups.items():
        for classes, count in counts.items():
            label, _, predicted = classes.rpartition(">")
            outcome = new_outcome(label=label or None, predicted=predicted)
            for _ in range(count):
                totals.add(outcome, {group}, answers=(), **keys)
    return totals


def named(name: str, classes: Sequence[str], *, several: bool = False) -> Answer:
    return answer_of(name, (classes.index(name),), len(classes), several=several)


def compared(
    totals: OutcomeTotals,
    answers: Sequence[Answer],
    classes: Sequence[str],
    favourable: Collection[str] = (),
    limits: Practical | None = None,
) -> list[Outcome]:
    """The rows of A against B."""
    rows = outcome_table(
        totals, answers, classes, references_of("B", "AB"), limits or Practical(), favourable
    )
    return with_measures(rows)


def every_measure(rows: Sequence[Outcome]) -> dict[tuple[str, str], Measure]:
    return {
        (row.prediction, measure.name): measure
        for row in rows
        if not row.stratum
        for measure in row.measures
    }


CASES = {
    "proxy": {"A": {">accept": 318, ">decline": 82}, "B": {">accept": 369, ">decline": 31}},
    "errors": {
        "A": {"accept>accept": 90, "accept>decline": 60, "decline>decline": 250},
        "B": {"accept>accept": 90, "decline>decline": 310},
    },
    "alike": {"A": {">accept": 900, ">decline": 100}, "B": {">accept": 910, ">decline": 90}},
    "unsure": {"A": {">accept": 54, ">decline": 46}, "B": {">accept": 50, ">decline": 50}},
    "none": {"A": {">decline": 400}, "B": {">accept": 9, ">decline": 391}},
}
MIRRORED = {
    "rate": "rate",
    "true positive rate": "false positive rate",
    "false positive rate": "true positive rate",
}


@pytest.mark.parametrize("favourable", [(), ("accept",)])
@pytest.mark.parametrize("case", CASES)
def test_of_two_classes_either_may_be_named(case: str, favourable: tuple[str, ...]) -> None:
    totals = totals_of(CASES[case])
    accept = every_measure(compared(totals, [named("accept", TWO)], TWO, favourable))
    decline = every_measure(compared(totals, [named("decline", TWO)], TWO, favourable))
    assert len(accept) == len(decline), "no measure counts twice in the family"
    for (name, measure), known in accept.items():
        if measure == "impact ratio":
            assert decline[name, measure] == known
            continue
        mirror = decline["decline", MIRRORED[measure]]
        assert mirror.value == pytest.approx(-known.value)
        assert mirror.state == known.state
        assert mirror.level == pytest.approx(known.level)
        assert mirror.p == pytest.approx(known.p)
        if known.interval is not None:
            low, high = known.interval
            assert mirror.interval == pytest.approx((-high, -low))


def test_every_class_of_three_is_compared_whichever_is_named() -> None:
    """`good` is given alike; what differs is `bad` against `fair`."""
    totals = totals_of(
        {
            "A": {">bad": 120, ">fair": 80, ">good": 200},
            "B": {">bad": 40, ">fair": 160, ">good": 200},
        }
    )
    seen = set()
    for name in THREE:
        measures = every_measure(compared(totals, [named(name, THREE)], THREE))
        assert {key for key, _ in measures} == {*THREE}
        seen.add(tuple(sorted((key, m.state, m.p) for (key, _), m in measures.items())))
    [states] = seen
    assert {key: state for key, state, _ in states}.items() >= {
        ("bad", "outside"),
        ("fair", "outside"),
    }
    contrast = Answer(name="good", plus=(2,), minus=(0,))
    assert {key for key, _ in every_measure(compared(totals, [contrast], THREE))} == {*THREE}


def test_of_many_classes_only_those_that_are_named() -> None:
    many = tuple(f"class {number}" for number in range(21))
    totals = totals_of({group: {">class 3": 40, ">class 4": 40} for group in "AB"})
    [row] = compared(totals, [named("class 3", many)], many)
    assert row.prediction == "class 3"


def test_labels_of_an_item_are_all_compared_and_do_not_mirror() -> None:
    a = {"toxic>toxic": 100, "toxic>toxic + insult": 100, "(none)>(none)": 200}
    b = {"toxic>toxic": 200, "(none)>(none)": 200}
    measures = every_measure(
        compared(totals_of({"A": a, "B": b}), [named("toxic", LABELS, several=True)], LABELS)
    )
    assert {name for name, _ in measures} == {*LABELS}
    assert measures["toxic", "rate"].value == 0.0
    assert measures["insult", "rate"].state == "outside"
    assert measures["insult", "false positive rate"].state == "outside"
    assert ("insult", "true positive rate") not in measures, "nobody is labelled so"
    both = Answer(name="abuse", plus=(0, 1), minus=(), several=True)
    rows = compared(totals_of({"A": a, "B": b}), [both], LABELS)
    assert [row.prediction for row in rows] == ["abuse", *LABELS]


def test_errors_of_every_class_where_there_are_labels() -> None:
    """Rates are equal; all false rejections fall on one group."""
    own = {"accept>accept": 150, "accept>decline": 50}
    own |= {"decline>accept": 50, "decline>decline": 150}
    totals = totals_of({"A": own, "B": {"accept>accept": 200, "decline>decline": 200}})
    measures = every_measure(compared(totals, [named("accept", TWO)], TWO))
    assert measures["accept", "rate"].value == 0.0
    assert [measures["accept", name].value for name in ERRORS] == [-0.25, 0.25]
    assert {measures["accept", name].state for name in ERRORS} == {"outside"}


def test_errors_that_one_side_alone_can_make_are_open() -> None:
    """Nobody in B is labelled `accept`, so that the quarter missed in A compares with nothing."""
    a = {"accept>decline": 100, "decline>decline": 300}
    measures = every_measure(
        compared(totals_of({"A": a, "B": {"decline>decline": 400}}), [named("accept", TWO)], TWO)
    )
    known = measures["accept", "true positive rate"]
    assert known.state == "open" and known.interval is None
    unlabelled = totals_of({"A": a, "B": {">decline": 400}})
    names = {name for _, name in every_measure(compared(unlabelled, [named("accept", TWO)], TWO))}
    assert names == {"rate"}, "a side without labels has no errors"


@pytest.mark.parametrize(
    ("own", "other", "state"),
    [
        (40, 80, "outside"),  # ratio 0.5, 4 points
        (2, 8, "open"),  # ratio 0.25, 0.6 points: less than a point may be chance
        (480, 480, "inside"),
        (0, 60, "outside"),
        (60, 0, "outside"),  # an infinite ratio
        (0, 0, "inside"),
    ],
)
def test_a_ratio_counts_together_with_a_point(own: int, other: int, state: str) -> None:
    totals = totals_of(
        {
            "A": {">accept": own, ">decline": 1000 - own},
            "B": {">accept": other, ">decline": 1000 - other},
        }
    )
    for name in TWO:
        rows = compared(totals, [named(name, TWO)], TWO, ("accept",), Practical(rates=0.2))
        measures = every_measure(rows)
        assert measures["accept", "impact ratio"].state == state
        assert (name, "rate") in measures and measures[name, "rate"].state == "inside"
        assert ("decline", "impact ratio") not in measures
        assert {row.prediction for row in rows if row.favourable} == {"accept"}


def test_strata_have_the_same_measures() -> None:
    alike = {">accept": 100, ">decline": 100}
    totals = totals_of({"A": alike, "B": alike}, slice_="north")
    totals_of({"A": {">decline": 200}, "B": {">accept": 200}}, totals, slice_="south")
    totals_of({"A": {">decline": 9}, "B": {">accept": 200}}, totals, slice_="west")
    rows = {row.stratum: row for row in compared(totals, [named("accept", TWO)], TWO, ("accept",))}
    assert set(rows) == {"", "north", "south"}, "nine items are too few for a stratum"
    assert rows["south"].measures[0].state == "outside"
    assert rows["north"].measures[0].state == "open"
    assert all(len(row.measures) == 2 for row in rows.values())


def test_too_few_items_leave_every_measure_open() -> None:
    few = totals_of({"A": {"accept>decline": 9}, "B": {"accept>accept": 900}})
    measures = every_measure(compared(few, [named("accept", TWO)], TWO, ("accept",)))
    assert {name for _, name in measures} == {"rate", "true positive rate", "impact ratio"}
    assert {(m.state, m.interval, m.p) for m in measures.values()} == {("open", None, None)}


@pytest.mark.parametrize("name", TWO)
def test_a_ratio_says_of_either_class_that_it_is_as_the_labels(name: str) -> None:
    """Every prediction is right; 3 and 6 % are labelled `accept`, so that the ratio is 0.5."""
    totals = totals_of(
        {
            "A": {"accept>accept": 60, "decline>decline": 1940},
            "B": {"accept>accept": 120, "decline>decline": 1880},
        }
    )
    verdict = verdict_of(outcomes=compared(totals, [named(name, TWO)], TWO, ("accept",)))
    assert verdict.outcome == "differ" and verdict.rates is not None
    assert verdict.rates.prediction == "accept"
    assert "the labels differ as the predictions do (3.0 % and 6.0 %)" in verdict.notes
