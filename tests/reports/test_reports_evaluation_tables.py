"""Tables of scores: order, best, counts, curves; and the sentences made of them."""

from dataclasses import replace

import pytest
from evaluation_samples import plan_of, scores, stored

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import metric_facts
from transexplain.evaluating.metrics.metric_table import Scored
from transexplain.reports.evaluation import evaluation_tables, tabulate
from transexplain.reports.evaluation.evaluation_tables import table
from transexplain.reports.evaluation.score_statistics import Table, gather
from transexplain.store.database import Database
from transexplain.types.scores import EvaluationPlan, MetricScore, MetricSpec

HIGHER, LOWER = MetricSpec(name="comprehensiveness"), MetricSpec(name="sufficiency")


def made(spec: MetricSpec, plan: EvaluationPlan, found: list[MetricScore]) -> Table:
    one = table(gather(found, ()), plan, "predicted", spec)
    assert one is not None
    return one


def test_best_first_random_and_oracle_last_with_means_by_hand() -> None:
    plan = plan_of(["random", "poor", "fair", "good"], HIGHER)
    values = {
        "random": [0.9, 0.9],
        "oracle": [0.8, 1.0],
        "poor": [0.0, 0.1],
        "fair": [0.3, 0.5],
        "good": [0.5, 0.6],
    }
    one = made(HIGHER, plan, scores("comprehensiveness", values))
    assert [row.method for row in one.rows] == ["good", "fair", "poor", "random", "oracle"]
    assert [row.rank for row in one.rows] == [1, 2, 3, None, None]
    assert [row.kind for row in one.rows] == ["method"] * 3 + ["random", "oracle"]
    assert [row.mean for row in one.rows] == pytest.approx([0.55, 0.4, 0.05, 0.9, 0.9])
    assert one.best == "good"  # random lies higher and is no method
    differences = [row.difference.mean for row in one.rows if row.difference]
    assert differences == pytest.approx([-0.15, -0.5, 0.35, 0.35])
    assert one.rows[0].difference is None


def test_lower_is_better_turns_the_order_and_ties_share_a_rank() -> None:
    plan = plan_of(["a", "b", "c"], LOWER)
    one = made(LOWER, plan, scores("sufficiency", {"a": [3.0], "b": [1.0], "c": [1.0]}))
    assert [(row.method, row.rank) for row in one.rows] == [("b", 1), ("c", 1), ("a", 3)]
    assert one.best == "b"


def test_where_nothing_is_better_the_plan_orders_and_nothing_is_compared() -> None:
    spec = MetricSpec(name="sparsity")
    one = made(spec, plan_of(["b", "a"], spec), scores("sparsity", {"a": [0.9], "b": [0.1]}))
    assert [row.method for row in one.rows] == ["b", "a"]
    assert one.best is None
    assert all(row.rank is None and row.difference is None for row in one.rows)


def test_what_could_not_be_measured_is_counted_by_reason() -> None:
    plan = plan_of(["a", "b"], HIGHER)
    values = {"a": [0.5, "one position", "one position", "it broke"], "b": ["no ledger"] * 4}
    one = made(HIGHER, plan, scores("comprehensiveness", values))
    first, last = one.rows
    assert (first.items, first.missing) == (1, {"one position": 2, "it broke": 1})
    assert (last.method, last.items, last.mean, last.rank) == ("b", 0, None, None)
    assert last.missing == {"no ledger": 4}
    odd = scores("comprehensiveness", {"a": [float("nan")]})
    assert made(HIGHER, plan, odd).rows[0].missing == {"no finite value": 1}


def test_a_lead_on_few_items_makes_no_best_and_differences_are_on_common_items() -> None:
    plan = plan_of(["all", "few"], HIGHER)
    values = {"all": [0.0, 0.4, 0.4, 0.4], "few": [1.0, None, None, None]}
    one = made(HIGHER, plan, scores("comprehensiveness", values))
    assert one.best == "all"
    few = next(row for row in one.rows if row.method == "few")
    assert few.items == 1
    assert few.difference is not None
    assert (few.difference.items, few.difference.mean, few.difference.p) == (1, 1.0, None)


def test_curves_are_means_of_the_measured_items_at_the_shares() -> None:
    spec = MetricSpec(name="hiding", params={"shares": (0.1, 0.5)})
    found = scores("hiding", {"a": [0.5, 0.3, "no position of its own"]})
    found = [
        replace(one, curve=curve)
        for one, curve in zip(found, [(0.8, 0.2), (0.4, 0.2), ()], strict=True)
    ]
    one = made(spec, plan_of(["a"], spec), found)
    assert one.x == (0.1, 0.5)
    assert one.rows[0].curve == pytest.approx((0.6, 0.2))
    assert one.baseline == "auto"
    uneven = [found[0], replace(found[1], curve=(1.0,))]
    assert made(spec, plan_of(["a"], spec), uneven).rows[0].curve == ()


def hits(details: object) -> Scored:
    """A metric of all items together."""
    given = list(details)  # type: ignore[call-overload]
    return Scored(value=sum(one["hit"] for one in given) / len(given), curve=(0.0, 1.0))


def test_a_metric_of_all_items_together(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = replace(metric_facts("runtime"), corpus=f"{__name__}:hits", better="higher")
    monkeypatch.setattr(evaluation_tables, "metric_facts", lambda _name: facts)
    spec, labels = MetricSpec(name="runtime"), {"a": [1, 0, 1, 1, 1, 1], "b": [0, 1, 0, 0, 0, 0]}
    found = [
        MetricScore(
            item_id=str(number),
            method=label,
            target="predicted",
            metric="runtime",
            value=None,
            detail={"hit": hit},
        )
        for label, given in labels.items()
        for number, hit in enumerate(given)
    ]
    failed = replace(found[0], item_id="6", detail={}, reason="the model failed")
    one = table(gather([*found, failed], ["runtime"]), plan_of("ab", spec), "predicted", spec)
    assert one is not None
    best, other = one.rows
    assert (best.method, best.mean, best.items) == ("a", 5 / 6, 6)
    assert best.missing == {"the model failed": 1}
    assert best.curve == (0.0, 1.0)
    assert other.difference is not None
    assert other.difference.mean == pytest.approx(1 / 6 - 5 / 6)
    assert other.difference.p is None
    assert other.difference.interval is not None


def test_the_sentences_say_who_leads_and_whether_it_is_luck(db: Database) -> None:
    step = [0.01 * number for number in range(10)]
    values = {
        "clear": [0.9 + one for one in step],
        "next": [0.5 + one for one in step],
        "random": [0.2 + one for one in step],
    }
    close = {**values, "next": [0.9 + one * (-1) ** n for n, one in enumerate(step)]}
    lost = {**values, "random": [1.0 + one for one in step]}
    plan = plan_of(["clear", "next", "random"], HIGHER)
    printed = {}
    for name, given in {"clear": values, "close": close, "lost": lost}.items():
        found = scores("comprehensiveness", given)
        printed[name] = tabulate(db, stored(db, plan, found, 10)).headline
    assert printed["clear"][0].text == "Explanations of 10 texts were measured."
    kind, text = printed["clear"][1].kind, printed["clear"][1].text
    assert kind == "good"
    assert "clear is best (0.945, 95\u00a0% interval 0.9" in text
    # two of the 2^10 changes of sign are as far from 0, for both rivals
    assert "Its lead over next (p = 0.002) and all others is beyond chance." in text
    assert text.endswith("It beats random beyond chance.")
    assert printed["close"][1].kind == "fact"
    assert "Its lead over next may be chance." in printed["close"][1].text
    assert printed["lost"][1].kind == "problem"
    assert printed["lost"][1].text.endswith("It does not beat random beyond chance.")


def test_a_handful_of_items_gives_no_best_method(db: Database) -> None:
    values = {"a": [0.9] * 4, "b": [0.1] * 4, "random": [0.2] * 4}
    plan = plan_of(list(values), HIGHER)
    line = tabulate(db, stored(db, plan, scores("comprehensiveness", values), 4)).headline[1]
    assert line.kind == "fact"
    assert line.text == (
        "Comprehensiveness (AOPC): a is best (0.900; 4 items). Too few items to judge its lead "
        "over b. Too few items to compare it with random."
    )


def test_a_run_without_scores_is_distinguished_from_one_that_measures_nothing(db: Database) -> None:
    empty = tabulate(db, stored(db, plan_of(["a"], HIGHER), [], 1))
    assert empty.tables == ()
    assert empty.headline[0].text == "Explanations of 0 texts were measured."
    run_id = stored(db, plan_of(["a"], HIGHER), [], 1, evaluation=None, task="audit")
    with pytest.raises(ConfigurationError, match="measured no explanations"):
        tabulate(db, run_id)
