"""The gate's rule on impact ratios by category of person: kept, broken, and not measured."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import explained_text, stored_run

from orchestrator.gate import Check, judge, load_policy
from orchestrator.gate.policy import Policy
from transexplain.errors import ConfigurationError
from transexplain.reports.run_metrics import run_metrics
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.items import ItemFailure
from transexplain.types.plans import ImpactPlan, ModelRef

BY_SEX = ImpactPlan(favourable=("positive",), sex="who", unknown=("?",), exclude_below=0.05)
BY_BOTH = replace(BY_SEX, ethnicity="from")
People = Sequence[tuple[str, str, int, int]]  #: sex, ethnicity, items, of them selected


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path / 'gate.db'}", upgrade=True) as database:
        yield database


def category_check(db: Database, limit: float, people: People, **settings: Any) -> Check:
    """What the rule says of a run over these people."""
    texts = [
        ("good" if number < selected else "bad", {"who": sex, "from": origin})
        for sex, origin, items, selected in people
        for number in range(items)
    ]
    explained = [
        explained_text(index, text, None, meta=meta) for index, (text, meta) in enumerate(texts)
    ]
    run_id = stored_run(db, explained, **{"impact": BY_SEX, **settings})
    return gated(db, run_id, limit)


def gated(db: Database, run_id: str, limit: float) -> Check:
    found = judge(db, run_id, Policy.model_validate({"min_category_ratio": limit}))
    (one,) = (one for one in found.checks if one.rule == "min_category_ratio")
    assert found.passed == one.passed
    metrics = {one.name: one.value for one in run_metrics(summarise(db, run_id, gallery=0))}
    assert one.measured in (None, metrics.get("category_ratio_lowest"))
    return one


@pytest.mark.exhaustive
def test_the_lowest_ratio_of_any_category_is_what_counts(db: Database) -> None:
    """20 of 40 against 30 of 40 by sex; women of b: 5 of 20 against 15 of 20."""
    people = [("f", "a", 20, 15), ("f", "b", 20, 5), ("m", "a", 20, 15), ("m", "b", 20, 15)]
    found = category_check(db, 0.8, people)
    assert (found.passed, found.measured) == (False, pytest.approx(2 / 3))
    assert found.text == (
        "0.6667 the lowest impact ratio of a category: f for positive, 20 of 40 are selected, "
        "at least 0.8 wanted"
    )
    assert category_check(db, 2 / 3, people).passed
    both = category_check(db, 2 / 3, people, impact=BY_BOTH)
    assert (both.passed, both.measured) == (False, pytest.approx(1 / 3))
    assert "f, b for positive, 5 of 20 are selected" in both.text


def test_every_favourable_class_is_asked(db: Database) -> None:
    plan = replace(BY_SEX, favourable=("positive", "negative"))
    people = [("f", "", 20, 16), ("m", "", 20, 18)]
    assert category_check(db, 0.8, people).measured == pytest.approx(16 / 18)
    found = category_check(db, 0.8, people, impact=plan)
    assert not found.passed and "m for negative, 2 of 20 are selected" in found.text


def test_small_and_unknown_categories_are_not_asked(db: Database) -> None:
    people = [("f", "", 20, 10), ("m", "", 20, 10), ("x", "", 2, 0), ("?", "", 5, 0)]
    assert category_check(db, 1.0, people).passed, "2 of 42 are fewer than 5 %"
    whole = category_check(db, 1.0, people, impact=replace(BY_SEX, exclude_below=0.0))
    assert not whole.passed and "x for positive, 0 of 2" in whole.text


def test_a_model_of_one_class_is_asked_by_its_scores(db: Database) -> None:
    """Everybody is of the only class; 5 of 20 women and 15 of 20 men score above the median."""
    model = ModelRef(source="m", classes=("positive",))
    explained = [
        explained_text(
            number,
            "good",
            None,
            meta={"who": sex},
            logits=(1.0 if number % 20 < high else -1.0,),
        )
        for number, (sex, high) in enumerate([("f", 5)] * 20 + [("m", 14)] * 20)
    ]
    found = gated(db, stored_run(db, explained, model=model, impact=BY_SEX), 0.8)
    assert (found.passed, found.measured) == (False, pytest.approx(5 / 14))
    assert "f for positive, 5 of 20 score above the median" in found.text


@pytest.mark.parametrize(
    ("people", "settings", "reason"),
    [
        ([("f", "", 9, 4)], {"impact": None}, "name columns of them in groups.impact"),
        (
            [("f", "", 9, 0), ("m", "", 9, 0)],
            {},
            "no impact ratios by sex for positive: nobody was selected",
        ),
        (
            [("f", "", 50, 9), ("m", "", 1, 1)],
            {},
            "2 in the data, 1 of them large enough, at least 2 are needed",
        ),
        ([("?", "", 9, 4)], {}, "0 in the data, 0 of them large enough"),
        (
            [("f", "a", 9, 4), ("m", "a", 9, 4)],
            {"impact": BY_BOTH},
            "no impact ratios by ethnicity for positive: 1 in the data",
        ),
    ],
)
def test_what_compares_nobody_was_not_measured(
    db: Database, people: People, settings: dict[str, Any], reason: str
) -> None:
    found = category_check(db, 0.0, people, **settings)
    assert (found.passed, found.measured) == (False, None)
    assert found.text.startswith("not measured: ") and reason in found.text


def test_a_low_ratio_is_told_before_what_was_not_measured(db: Database) -> None:
    people = [("f", "a", 20, 5), ("m", "a", 20, 10)]
    found = category_check(db, 0.8, people, impact=BY_BOTH)
    assert (found.passed, found.measured) == (False, 0.5)


def test_a_run_in_which_nothing_was_explained(db: Database) -> None:
    failures = [ItemFailure(item_id="x", index=0, kind="null", message="nothing")]
    found = gated(db, stored_run(db, [], failures, impact=BY_SEX), 0.0)
    assert not found.passed and found.text == "not measured: no item was explained"


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("1.2", "min_category_ratio: Input should be less than or equal to 1"),
        ("-0.1", "min_category_ratio: Input should be greater than or equal to 0"),
        ("most", "min_category_ratio: Input should be a valid number"),
        (".nan", "min_category_ratio: nan is no finite number"),
    ],
)
def test_a_limit_that_is_no_share_is_refused(tmp_path: Path, value: str, printed: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"min_category_ratio: {value}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        load_policy(path)
    assert printed in str(refused.value)
