"""Impact ratios by category of person: the examples that the rules of Local Law 144 publish, and
what holds whatever the data.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.answers import Answer, favourable_answers
from transexplain.errors import ConfigurationError, TargetError
from transexplain.extras.filings.impact_by_category import (
    Answered,
    ImpactAnswer,
    ImpactRow,
    ImpactTable,
    impact_answers,
)
from transexplain.types.plans import (
    AuditPlan,
    Classification,
    DatasetRef,
    ImpactPlan,
    ModelRef,
    PrivacyPlan,
)

CLASSES = ("no", "yes")
YES = Answer(name="yes", plus=(1,), minus=(0,))


def person(selected: bool, score: float | None = None, **meta: str) -> Answered:
    """Somebody; the score is the log-odds of `yes`."""
    logit = (1.0 if selected else -1.0) if score is None else score
    return CLASSES[selected], (0.0, logit), meta


def people(items: int, selected: int, **meta: str) -> Iterator[Answered]:
    yield from repeat(person(True, **meta), selected)
    yield from repeat(person(False, **meta), items - selected)


def impact(items: Any, *, classes: Sequence[str] = CLASSES, **plan: Any) -> ImpactAnswer:
    plan = {"favourable": ("yes",), "sex": "sex", "exclude_below": 0.0, **plan}
    (found,) = impact_answers(ImpactPlan(**plan), [YES], classes, items)
    return found


def rows(table: ImpactTable) -> dict[str, ImpactRow]:
    return {row.category: row for row in table.rows}


# ---- the example of a tool that selects, 6 RCNY 5-301(b): its tables are of different people ----

OF_BOTH = {
    "Male, Hispanic or Latino": (205, 90, 0.841),
    "Female, Hispanic or Latino": (190, 82, 0.827),
    "Male, White": (412, 215, 1.000),
    "Male, Black or African American": (226, 95, 0.806),
    "Male, Native Hawaiian or Pacific Islander": (87, 37, 0.815),
    "Male, Asian": (321, 167, 0.997),
    "Male, Native American or Alaska Native": (24, 11, 0.878),
    "Male, Two or More Races": (115, 52, 0.866),
    "Female, White": (385, 197, 0.981),
    "Female, Black or African American": (164, 75, 0.876),
    "Female, Native Hawaiian or Pacific Islander": (32, 15, 0.898),
    "Female, Asian": (295, 135, 0.877),
    "Female, Native American or Alaska Native": (17, 7, 0.789),
    "Female, Two or More Races": (98, 44, 0.860),
}


def test_the_published_example_of_selection() -> None:
    items = chain.from_iterable(
        people(n, k, **dict(zip(("sex", "ethnicity"), name.split(", "), strict=True)))
        for name, (n, k, _) in OF_BOTH.items()
    )
    table = impact(items, ethnicity="ethnicity").tables[-1]
    assert table.by == "sex and ethnicity" and table.unknown == 0
    for name, row in rows(table).items():
        n, k, published = OF_BOTH[name]
        assert (row.items, row.selected, row.rate) == (n, k, k / n)
        # the rules give some ratios of rounded rates, so the last digit may be off by one
        assert row.ratio == pytest.approx(published, abs=1.01e-3), name


# ---- the example of a tool that scores, 5-301(c): all three tables are of the same people -------

SCORED = {  # sex, ethnicity -> people, above the median
    ("Male", "Hispanic"): (16, 12),
    ("Female", "Hispanic"): (12, 6),
    ("Male", "White"): (20, 7),
    ("Male", "Black"): (20, 10),
    ("Male", "Islander"): (4, 3),
    ("Male", "Asian"): (12, 7),
    ("Male", "Native"): (8, 5),
    ("Male", "Two"): (12, 6),
    ("Female", "White"): (20, 8),
    ("Female", "Black"): (12, 6),
    ("Female", "Islander"): (4, 2),
    ("Female", "Asian"): (12, 3),
    ("Female", "Native"): (8, 5),
    ("Female", "Two"): (8, 4),
}
PUBLISHED = {
    "Male": (92, 0.543, 1.00),
    "Female": (76, 0.447, 0.82),
    "Hispanic": (28, 0.642, 1.00),
    "White": (40, 0.375, 0.58),
    "Black": (32, 0.500, 0.78),
    "Islander": (8, 0.625, 0.97),
    "Asian": (24, 0.417, 0.65),
    "Native": (16, 0.625, 0.97),
    "Two": (20, 0.500, 0.78),
}


def scored() -> Iterator[Answered]:
    for (sex, ethnicity), (n, above) in SCORED.items():
        for number in range(n):
            yield person(False, 2.0 if number < above else -2.0, sex=sex, ethnicity=ethnicity)
    for number in range(15):  # of unknown category, who count for the median
        yield person(False, 2.0 if number < 7 else -2.0, sex="unknown", ethnicity="")


def test_the_published_example_of_scores() -> None:
    found = impact(scored(), ethnicity="ethnicity", unknown=("Unknown",))
    assert found.median == -2.0, "the middle of 183, who are 91 above and 92 not"
    assert [table.by for table in found.tables] == ["sex", "ethnicity", "sex and ethnicity"]
    seen = {name: row for table in found.tables for name, row in rows(table).items()}
    assert seen.keys() > PUBLISHED.keys()
    for name, (items, rate, ratio) in PUBLISHED.items():
        row = seen[name]
        assert row.items == items
        assert row.scoring_rate == pytest.approx(rate, abs=1e-3), name
        assert row.scoring_ratio == pytest.approx(ratio, abs=6e-3), name
    assert [(table.items, table.unknown) for table in found.tables] == [(168, 15)] * 3


# ---- by hand -------------------------------------------------------------------------------------


def test_a_small_category_is_listed_with_its_rates_and_is_no_reference() -> None:
    items = [*people(60, 30, sex="f"), *people(39, 13, sex="m"), *people(1, 1, sex="x")]
    (table,) = impact(items, exclude_below=0.02).tables
    small = rows(table)["x"]
    assert small.excluded
    assert (small.items, small.selected, small.rate, small.share) == (1, 1, 1.0, 0.01)
    assert (small.ratio, small.ratio_interval, small.scoring_ratio) == (None, None, None)
    assert rows(table)["f"].ratio == 1.0
    assert rows(table)["m"].ratio == pytest.approx(2 / 3)
    (table,) = impact(items).tables
    assert rows(table)["f"].ratio == 0.5, "nothing is left out: the one person is the reference"


def test_without_all_logits_there_are_no_scores() -> None:
    found = impact([person(True, sex="f"), ("no", (), {"sex": "m"})])
    assert (found.median, found.median_probability) == (None, None)
    for row in found.tables[0].rows:
        assert (row.above, row.scoring_rate, row.scoring_ratio) == (None, None, None)
    assert [row.rate for row in found.tables[0].rows] == [1.0, 0.0]


def test_unknown_is_what_the_plan_says_in_either_case_and_what_is_not_there() -> None:
    values = ("Unknown", " N/A ", "", "   ", "f")
    items = [person(True, sex=one) for one in values]
    items.append(person(True))
    found = impact(items, unknown=("unknown", "n/a")).tables[0]
    assert (found.items, found.unknown) == (1, 5)


def test_each_answer_has_its_own_tables() -> None:
    classes = ("a", "b", "c")
    plan = ImpactPlan(favourable=("a", "b"), sex="sex", exclude_below=0.0)
    answers = [
        Answer(name="a", plus=(0,), minus=(1, 2)),
        Answer(name="b or c", plus=(1, 2), minus=(0,)),
    ]
    items: list[Answered] = [
        ("a", (3.0, 0.0, 0.0), {"sex": "f"}),
        ("c", (0.0, 0.0, 3.0), {"sex": "m"}),
    ]
    first, second = impact_answers(plan, answers, classes, items)
    assert [row.selected for row in first.tables[0].rows] == [1, 0]
    assert [row.selected for row in second.tables[0].rows] == [0, 1]
    assert first.median == pytest.approx(-(second.median or 0.0)), "the mirror image"


# ---- whatever the data ---------------------------------------------------------------------------

PERSON = st.builds(
    person,
    st.booleans(),
    st.integers(-3, 3).map(float),
    sex=st.sampled_from(["f", "m", "x", "unknown", ""]),
    ethnicity=st.sampled_from(["a", "b", ""]),
)


@given(st.lists(PERSON, max_size=60), st.sampled_from([0.0, 0.02, 0.3]))
def test_properties_of_ratios_hold_for_any_people(items: list[Answered], least: float) -> None:
    settings = {"ethnicity": "ethnicity", "unknown": ("unknown",), "exclude_below": least}
    found = impact(items, **settings)
    for table in found.tables:
        assert sum(row.items for row in table.rows) == table.items
        assert table.items + (table.unknown or 0) == len(items), "nobody is lost"
        ratios = [row.ratio for row in table.rows if row.ratio is not None]
        assert not ratios or max(ratios) == 1.0
        assert all(0.0 <= one <= 1.0 for one in ratios)
        for row in table.rows:
            assert row.excluded == (row.items / table.items < least)
            assert row.interval[0] - 1e-9 <= row.rate <= row.interval[1] + 1e-9
            if row.ratio is not None and row.ratio_interval is not None:
                assert row.ratio_interval[0] <= row.ratio + 1e-9
                assert row.ratio <= row.ratio_interval[1] + 1e-9
    assert impact(items[::-1], **settings) == found, "in any order"
    doubled = impact(items * 2, **settings)
    for one, two in zip(found.tables, doubled.tables, strict=True):
        assert [row.ratio for row in one.rows] == [row.ratio for row in two.rows]
        assert [row.scoring_ratio for row in one.rows] == [row.scoring_ratio for row in two.rows]


# ---- which answers are favourable ----------------------------------------------------------------


def plan_of(*favourable: str, **changes: Any) -> AuditPlan:
    values: dict[str, Any] = {
        "name": "x",
        "model": ModelRef(source="m", classes=("bad", "so-so", "good")),
        "dataset": DatasetRef(
            source="x", modality="text", snapshot="s", fingerprint="f" * 64, rows=1
        ),
        "impact": ImpactPlan(favourable=favourable, sex="sex"),
    }
    return AuditPlan(**(values | changes))


def test_answers_are_classes_by_name_or_number_and_classifications() -> None:
    own = (Classification(name="fine", classes=("so-so", "good")),)
    found = favourable_answers(plan_of("good", "0", "fine", classifications=own))
    assert [(one.name, one.plus, one.minus) for one in found] == [
        ("good", (2,), (0, 1)),
        ("bad", (0,), (1, 2)),
        ("fine", (1, 2), (0,)),
    ]
    assert favourable_answers(plan_of("good", impact=None)) == ()


def test_unknown_favourable_answers_are_refused() -> None:
    with pytest.raises(TargetError, match="unknown class 'great'"):
        favourable_answers(plan_of("great"))
    own = (Classification(name="any", classes=("bad", "so-so", "good")),)
    with pytest.raises(ConfigurationError, match="would be selected"):
        favourable_answers(plan_of("any", classifications=own))


@pytest.mark.parametrize("kept", ["hashed", "none"])
def test_values_that_are_not_stored_cannot_be_counted(kept: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"store_text: {kept}"):
        favourable_answers(plan_of("good", privacy=PrivacyPlan(store_text=kept)))
